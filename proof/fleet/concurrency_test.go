package fleet

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// slowUpstream responds to a request for /held/NAME when free is called with that name, and to all
// others at once.
type slowUpstream struct {
	*httptest.Server
	inside, most atomic.Int64
	mu           sync.Mutex
	gates        map[string]chan struct{}
	came         map[string]bool // the names that have come
}

func newSlowUpstream(t *testing.T) *slowUpstream {
	u := &slowUpstream{gates: map[string]chan struct{}{}, came: map[string]bool{}}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := u.inside.Add(1)
		defer u.inside.Add(-1)
		for most := u.most.Load(); n > most && !u.most.CompareAndSwap(most, n); most = u.most.Load() {
		}
		if name, held := strings.CutPrefix(r.URL.Path, "/held/"); held {
			gate := u.gate(name)
			u.mu.Lock()
			u.came[name] = true
			u.mu.Unlock()
			select {
			case <-gate:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(u.Close)
	return u
}

func (u *slowUpstream) gate(name string) chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.gates[name] == nil {
		u.gates[name] = make(chan struct{})
	}
	return u.gates[name]
}

func (u *slowUpstream) has(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.came[name]
}

func (u *slowUpstream) free(name string) { close(u.gate(name)) }

// documented returns the policy of docs/stores.md with some of its words replaced.
func documented(t *testing.T, s *servers.RedisServer, up *slowUpstream, oldnew ...string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/stores.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(text), "# checkout.yaml\n")
	policy, _, found := strings.Cut(page, "```")
	for oldnew = append(oldnew, "redis://127.0.0.1:6379/0", s.URL(), "http://127.0.0.1:9000", up.URL); len(oldnew) > 0; oldnew = oldnew[2:] {
		found = found && strings.Contains(policy, oldnew[0])
		policy = strings.Replace(policy, oldnew[0], oldnew[1], 1)
	}
	if !found {
		t.Fatalf("docs/stores.md has another policy now:\n%s", policy)
	}
	return policy
}

// TestConcurrencyOfTwoGateways: the policy of docs/stores.md at two gateways with one redis-server.
// Together they have at most the limit in flight. A request keeps its place for longer than
// max_hold, because its gateway extends it. The place of a killed gateway comes back.
//
// max_hold is real time, in Redis: it is long enough for a gateway to extend a place although the
// machine stood still for seconds.
func TestConcurrencyOfTwoGateways(t *testing.T) {
	t.Parallel()
	s := servers.StartRedis(t, servers.RedisOptions{})
	up := newSlowUpstream(t)
	policy := documented(t, s, up, "limit: 2", "limit: 2, max_hold: 9s", "nodes: 2", "nodes: 2, deadline: 10s")
	a, b := startWeir(t, policy), startWeir(t, policy)
	var held sync.WaitGroup
	hold := func(g *gateway, name string) {
		held.Go(func() {
			for t.Context().Err() == nil { // an earlier place is given back just after its response
				resp, err := http.Get("http://" + g.Gateway + "/held/" + name)
				if err != nil {
					return
				}
				if resp.Body.Close(); resp.StatusCode != 429 {
					return
				}
			}
		})
		servers.Poll(t, name+" is at the upstream", func() bool { return up.has(name) })
	}
	hold(a, "of a")
	hold(b, "of b")
	pulse := time.NewTicker(50 * time.Millisecond)
	defer pulse.Stop()
	for end := time.Now().Add(11 * time.Second); time.Now().Before(end); <-pulse.C { // longer than max_hold
		for _, g := range []*gateway{a, b} {
			if status, h := g.get(t, "/"); status != 429 || h.Get("Retry-After") == "" {
				t.Fatalf("two requests are in flight, and the limit is two: status %d, %v", status, h)
			}
		}
	}
	if !a.has(t, `weir_limit_requests_total{limit="checkout",outcome="allowed"} 1`) {
		t.Error(a.Metrics(t))
	}
	up.free("of b")
	servers.Poll(t, "the place of b is free", func() bool { status, _ := a.get(t, "/"); return status == 200 })
	hold(b, "of b again")
	a.Kill()
	killed := time.Now()
	servers.Poll(t, "the place of the gateway that was killed comes back", func() bool { status, _ := b.get(t, "/"); return status == 200 })
	t.Logf("it came back after %v", time.Since(killed).Round(10*time.Millisecond))
	up.free("of a")
	up.free("of b again")
	held.Wait()
	if n := up.most.Load(); n != 2 {
		t.Errorf("%d were in flight at once", n)
	}
}

// TestConcurrencyQueueOfTwoGateways: requests that wait at either gateway are admitted one at a
// time.
func TestConcurrencyQueueOfTwoGateways(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{})
	up := newSlowUpstream(t)
	policy := documented(t, s, up, "limit: 2", "limit: 1, queue: 20", "nodes: 2", "nodes: 2, deadline: 10s")
	gateways := []*gateway{startWeir(t, policy), startWeir(t, policy)}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if status, _ := gateways[i%2].get(t, "/"); status != 200 {
				t.Errorf("request %d: status %d", i, status)
			}
		})
	}
	all.Wait()
	if n := up.most.Load(); n != 1 {
		t.Errorf("%d were in flight at once", n)
	}
}

// TestConcurrencyWithoutItsStore: while Redis is down each gateway has its share of the limit,
// which includes its requests in flight. When Redis is back, it decides again.
func TestConcurrencyWithoutItsStore(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{})
	up := newSlowUpstream(t)
	policy := documented(t, s, up, "nodes: 2", "nodes: 2, deadline: 500ms")
	g := startWeir(t, policy)
	startWeir(t, policy) // a second node, so that the share is a half
	var held sync.WaitGroup
	defer held.Wait()
	defer up.free("x")
	hold := func() {
		held.Go(func() {
			if resp, err := http.Get("http://" + g.Gateway + "/held/x"); err == nil {
				resp.Body.Close()
			}
		})
	}
	servers.Poll(t, "the store decides", func() bool { status, _ := g.get(t, "/"); return status == 200 })
	s.Kill()
	if status, _ := g.get(t, "/"); status != 200 {
		t.Errorf("the share is one place, and it is free: status %d", status)
	}
	hold()
	servers.Poll(t, "one is in flight", func() bool { return up.inside.Load() == 1 })
	if status, _ := g.get(t, "/"); status != 429 {
		t.Errorf("the share is one place, and it is taken: status %d", status)
	}
	if !g.has(t, `weir_limit_requests_total{limit="checkout",outcome="limited"} 1`) || g.value(t, `weir_limit_decisions_total{limit="checkout",source="share"}`) == "0" {
		t.Error(g.Metrics(t))
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	servers.Poll(t, "the store decides again", func() bool { status, _ := g.get(t, "/"); return status == 200 })
}
