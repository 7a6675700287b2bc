package nginx

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
)

var (
	sequences = flag.Int("sequences", 20, "how many sequences are compared for each directive")
	inFlight  = flag.Int("in-flight", 60, "how many sequences are played at once")
)

// binary is the weir command, built once, and without the race detector, which would slow it down.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weir")
	if err == nil {
		defer os.RemoveAll(dir)
		binary, err = servers.BuildWeir(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// patience is how long a server may take to be ready.
const patience = 2 * time.Minute

// upstream responds at once, or after the duration in the header field Hold.
func upstream(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hold, err := time.ParseDuration(r.Header.Get("Hold"))
		if err != nil {
			return
		}
		timer := time.NewTimer(hold)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// pair is an nginx, and the gateway with the policy that is imported from it.
type pair struct {
	nginx  *servers.Server
	weir   *servers.Weir
	dir    string
	policy string // the file
}

// start starts both, with nginx's arithmetic. edit, if it is not nil, changes the policy.
func start(t *testing.T, http string, edit func(string) string) pair {
	t.Helper()
	hurry(t)
	p := startFor(t, http, true, edit)
	hurry(t) // also for threads that came meanwhile
	return p
}

// start starts the gateway with a policy.
func (p *pair) start(ctx context.Context, t *testing.T, policy []byte, edit func(string) string) {
	t.Helper()
	if edit != nil {
		policy = []byte(edit(string(policy)))
	}
	p.policy = filepath.Join(p.dir, "policy.yaml")
	if err := os.WriteFile(p.policy, policy, 0o644); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.weir, err = servers.StartWeir(ctx, binary, p.policy); err != nil {
		t.Fatalf("%v\n%s", err, policy)
	}
	stopAtEnd(t, p.weir.Process)
}

func stopAtEnd(t *testing.T, p *servers.Process) {
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// tally counts the results of the sequences of a class.
type tally struct {
	mu                 sync.Mutex
	same, late, unlike int // plays
	differences        []string
	statuses           map[int]int
	delayed            int
	apart              []time.Duration
}

// tries is how often a sequence is played while it is late or differs. A sequence that differed in `each`
// plays counts as different.
const (
	tries = 40
	each  = 8
)

// TestSameAsNginx plays random sequences for each directive: nginx and the gateway give the same results.
func TestSameAsNginx(t *testing.T) {
	all := classes()
	p := start(t, block(all, upstream(t)), nil)
	players := newPlayer(p.nginx.Addr, p.weir.Gateway)
	defer players.client.CloseIdleConnections()
	tallies := make([]tally, len(all))
	slots, pace := make(chan struct{}, *inFlight), time.NewTicker(4*time.Millisecond)
	defer pace.Stop()
	var wg sync.WaitGroup
	began := time.Now()
	for n := range *sequences * 5 / 4 { // each class in turn, so that all meet the same weather; some cannot be compared
		for c := range all {
			if tallies[c].enough() {
				continue
			}
			r := rand.New(rand.NewPCG(seeds.Seed(), uint64(c)<<32|uint64(n)))
			v := n % len(all[c].variants)
			s := drawn(r, c, v, all[c].variants[v])
			slots <- struct{}{}
			<-pace.C // not all at once: connections would come late
			wg.Go(func() {
				defer func() { <-slots }()
				tallies[c].compare(t.Context(), players, s, fmt.Sprintf("s%d-%d", c, n))
			})
		}
	}
	wg.Wait()
	total := 0
	for i := range tallies {
		c := &tallies[i]
		total += c.same
		c.report(t, all[i].name)
	}
	t.Logf("%d sequences compared in %v", total, time.Since(began).Round(time.Second))
}

// enough reports whether as many sequences were compared as the flag -sequences asks for.
func (c *tally) enough() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.same >= *sequences
}

// compare plays a sequence until both servers give the same results, or until all tries are used.
func (c *tally) compare(ctx context.Context, p *player, s *sequence, id string) {
	unlike, last := 0, ""
	for try := range tries {
		outcomes := p.play(ctx, s, fmt.Sprintf("%s-%d", id, try))
		v, apart := judge(s, outcomes)
		c.mu.Lock()
		switch v {
		case same:
			c.same++
			for i, r := range s.requests {
				c.statuses = count(c.statuses, outcomes[0][i].status)
				if r.delay > 0 && s.of.conns == 0 {
					c.delayed++
				}
			}
			c.apart = append(c.apart, apart...)
		case late:
			c.late++
		case different:
			c.unlike++
			unlike, last = unlike+1, tell(s, outcomes)
		}
		found := unlike == each
		if found {
			c.differences = append(c.differences, fmt.Sprintf("%d times of %d:\n%s", unlike, unlike, last))
		}
		c.mu.Unlock()
		if v == same || found {
			return
		}
	}
}

func count(m map[int]int, status int) map[int]int {
	if m == nil {
		m = map[int]int{}
	}
	m[status]++
	return m
}

func (c *tally) report(t *testing.T, name string) {
	slices.Sort(c.apart)
	median, most := time.Duration(0), time.Duration(0)
	if n := len(c.apart); n > 0 {
		median, most = c.apart[n/2], c.apart[n-1]
	}
	t.Logf("%-20s %5d the same (statuses %v, %d delayed; answers %v apart at the median, %v at most), %d plays too late, %d by chance different",
		name, c.same, c.statuses, c.delayed, median.Round(10*time.Microsecond), most.Round(10*time.Microsecond), c.late, c.unlike)
	for i, d := range c.differences {
		if i == 3 {
			t.Errorf("%s: and %d more", name, len(c.differences)-i)
			break
		}
		t.Errorf("%s: nginx and weir differ, %s", name, d)
	}
	least := *sequences
	if least < 100 {
		least = 1 // of a busy machine little can be said in a short run, and something can always
	}
	if c.same < least {
		t.Errorf("%s: only %d of %d sequences could be compared: this machine is too busy", name, c.same, *sequences)
	}
	if len(c.statuses) < 2 && c.delayed == 0 && name != "limit_req_dry_run" && name != "limit_conn_dry_run" {
		t.Errorf("%s: the sequences do not refuse anything", name)
	}
}

// TestPlantedDifferenceIsFound: if the gateway admits one request more than nginx, sequences with refusals
// differ.
func TestPlantedDifferenceIsFound(t *testing.T) {
	planted := []class{{"nodelay", rated, reqs(1, never, " burst=1 nodelay", 3000)}}
	p := start(t, block(planted, upstream(t)), func(policy string) string {
		return strings.ReplaceAll(policy, "queue: 1, delay_after: 1", "queue: 2, delay_after: 2")
	})
	players := newPlayer(p.nginx.Addr, p.weir.Gateway)
	defer players.client.CloseIdleConnections()
	refuses := func(r planned) bool { return r.status == 503 }
	for n := range uint64(tries) {
		s := drawn(rand.New(rand.NewPCG(1, n)), 0, 0, planted[0].variants[0])
		if !slices.ContainsFunc(s.requests, refuses) {
			continue
		}
		if v, _ := judge(s, players.play(t.Context(), s, fmt.Sprint(n))); v == different {
			return
		}
	}
	t.Error("nothing was found")
}
