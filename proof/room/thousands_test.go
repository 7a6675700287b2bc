package room

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
)

// guest is a visitor with an app, which keeps its tickets.
type guest struct {
	ticket string // of its place in the queue
	place  int64  // as the first response says
	inside string // the ticket for inside
}

// reply is a response of a waiting room.
type reply struct {
	State  string `json:"state"`
	Place  int64  `json:"place"`
	Ticket string `json:"ticket"`
}

// crowd is the guests of two gateways, one of which will be killed.
type crowd struct {
	t        *testing.T
	client   *http.Client
	gateways [2]string
	random   *rand.Rand
	dead     atomic.Bool // the first one
}

// ask makes a request at a living gateway, and at the other one if that was just killed.
func (c *crowd) ask(ticket string) (status int, a reply, given string) {
	for range 100 {
		at := c.random.IntN(2)
		if c.dead.Load() {
			at = 1
		}
		r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, "http://"+c.gateways[at]+"/sale/", nil)
		if err != nil {
			c.t.Error(err)
			return
		}
		r.Header.Set("Accept", "application/json")
		r.Header.Set("User-Agent", "guest")
		if ticket != "" {
			r.Header.Set("Weir-Ticket", ticket)
		}
		resp, err := c.client.Do(r)
		if err != nil {
			if at == 0 {
				continue // it is being killed
			}
			c.t.Error(err)
			return
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			continue
		}
		if resp.Header.Get("Weir-Room") == "new" {
			ticket = resp.Header.Get("Weir-Ticket")
			continue
		}
		if resp.StatusCode != http.StatusOK {
			if err := json.Unmarshal(body, &a); err != nil {
				c.t.Errorf("%d %s", resp.StatusCode, body)
			}
		}
		return resp.StatusCode, a, resp.Header.Get("Weir-Ticket")
	}
	c.t.Error("no gateway answers")
	return
}

// each runs a function for the numbers below n, with 32 goroutines.
func each(n int, do func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	all.Wait()
}

// TestTenThousandWait: ten thousand wait at two gateways with one queue in Redis, and four thousand with one in
// PostgreSQL. The room opens, and one
// gateway is killed. All are admitted in the order in which they came, each once, and not faster
// than the policy allows.
func TestTenThousandWait(t *testing.T) {
	t.Run("redis", func(t *testing.T) {
		s := servers.StartRedis(t, servers.RedisOptions{})
		thousandsWait(t, s.URL(), 10_000, func() (inside, waiting int64) {
			counts := [2]int64{-1, -1}
			for i, key := range []string{"inside", "line"} {
				got, err := s.Do(t.Context(), "ZCARD", "weir:{room/sale}:"+key)
				if err != nil {
					t.Fatal(err)
				}
				counts[i], _ = got.(int64)
			}
			return counts[0], counts[1]
		})
	})
	t.Run("postgres", func(t *testing.T) {
		s := servers.StartPostgres(t, servers.PostgresOptions{})
		pool := connectTo(t, s.URL())
		thousandsWait(t, s.URL(), 4_000, func() (inside, waiting int64) {
			if err := pool.QueryRow(t.Context(), "SELECT count(*) FILTER (WHERE place IS NULL), count(place) FROM weir.visitors").Scan(&inside, &waiting); err != nil {
				t.Fatal(err)
			}
			return inside, waiting
		})
	})
}

func thousandsWait(t *testing.T, url string, n int, count func() (inside, waiting int64)) {
	const rate, burst = 1500, 100
	var came atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came.Add(1)
		if r.Header.Get("Weir-Ticket") != "" {
			t.Error("the upstream was shown a ticket")
		}
	}))
	defer up.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	policy := func(admit string) string {
		return strings.NewReplacer("STORE", url, "UP", up.URL, "SECRET", secret, "ADMIT", admit).Replace(`
stores: { shared: { url: "STORE", deadline: 20s } }
waiting_rooms: { sale: { ADMIT, store: shared, secret_file: SECRET, joins: 1000000/s, visitors_per_address: 1000000, poll_timeout: 10m, idle: 1h, session: 1h, enter_within: 1h } }
upstreams: { up: { url: "UP" } }
routes: [{ match: /sale/, upstream: up, waiting_room: sale }]
`)
	}
	shut := policy("admit: 1/d, burst: 1")
	gateways := []*gateway{startWeir(t, shut), startWeir(t, shut)}
	c := &crowd{t: t, random: seeds.Of("TestTenThousandWait"), gateways: [2]string{gateways[0].Gateway, gateways[1].Gateway}, client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: servers.Patience,
	}}
	defer c.client.CloseIdleConnections()
	if status, _, _ := c.ask(""); status != http.StatusOK {
		t.Fatalf("who comes first: %d", status)
	}
	guests := make([]*guest, n+1) // by place
	each(n, func(int) {
		status, a, ticket := c.ask("")
		if status != http.StatusServiceUnavailable || a.State != "waiting" || a.Place < 1 || a.Place > int64(n) || ticket == "" || ticket != a.Ticket {
			t.Errorf("%d %+v", status, a)
			return
		}
		guests[a.Place] = &guest{ticket: ticket, place: a.Place}
	})
	for place, g := range guests[1:] {
		if g == nil {
			t.Fatalf("nobody was given place %d", place+1)
		}
	}
	began := time.Now()
	for _, g := range gateways {
		g.write(t, policy("admit: "+strconv.Itoa(rate)+"/s, burst: "+strconv.Itoa(burst)))
		servers.Poll(t, "the reload", func() bool { return strings.Contains(g.Output(), "policy reloaded") })
	}

	// They poll in blocks; each block is shuffled.
	order := make([]int, n)
	for i := range order {
		order[i] = i + 1
	}
	for i := 0; i < n; i += 200 {
		block := order[i:min(i+200, n)]
		c.random.Shuffle(len(block), func(i, j int) { block[i], block[j] = block[j], block[i] })
	}
	var furthest, waits, entered atomic.Int64
	var kill sync.Once
	each(n, func(i int) {
		g := guests[order[i]]
		for range 300 {
			before := furthest.Load()
			status, a, ticket := c.ask(g.ticket)
			switch {
			case status == http.StatusOK && ticket != "":
				g.inside = ticket
				for now := furthest.Load(); now < g.place && !furthest.CompareAndSwap(now, g.place); now = furthest.Load() {
				}
				if entered.Add(1) > int64(n/3) {
					kill.Do(func() { c.dead.Store(true); gateways[0].Kill() })
				}
				return
			case status == http.StatusServiceUnavailable && a.State == "waiting":
				waits.Add(1)
				if g.place < before {
					t.Errorf("who had place %d waits, and %d was let in before", g.place, before)
				}
				g.ticket = a.Ticket
			case status != http.StatusTooManyRequests:
				t.Errorf("place %d: %d %+v", g.place, status, a)
				return
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-t.Context().Done():
				return
			}
		}
		t.Errorf("place %d was not let in", g.place)
	})
	took := time.Since(began)
	if least := time.Duration(n-2*burst) * time.Second / rate; took < least {
		t.Errorf("all were let in within %v, which takes %v at least", took, least)
	}
	t.Logf("%d entered in %v; %d responses said to wait", entered.Load(), took, waits.Load())

	// Tickets of the queue are used again, by many at once: they are the same visitors.
	each(200, func(i int) {
		g := guests[1+c.random.IntN(n)]
		for _, ticket := range []string{g.ticket, g.inside} {
			if status, _, _ := c.ask(ticket); status != http.StatusOK {
				t.Errorf("with the ticket of who is inside: %d", status)
			}
		}
	})
	if inside, waiting := count(); inside != int64(n)+1 || waiting != 0 {
		t.Errorf("%d inside, want %d; %d wait", inside, n+1, waiting)
	}
	if came.Load() < int64(n)+1+400 {
		t.Errorf("%d requests came to the upstream", came.Load())
	}
}
