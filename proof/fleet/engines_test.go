package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// TestAllOrNothing: two engines with concurrent callers, over limits in memory, two in one Redis
// and one in another. In the end each limit has been charged for the admitted requests alone: if
// one limit refused, the others got their charges back.
func TestAllOrNothing(t *testing.T) {
	names := []string{"memory", "a1", "a2", "b1"}
	const keys, per = 6, 1000 * time.Hour
	bursts := map[string]int64{"memory": 9, "a1": 16, "a2": 17, "b1": 15}
	p := policy.Policy{Stores: []policy.Store{{Name: "a"}, {Name: "b"}}}
	for _, n := range names {
		l := policy.Limit{Name: n, Key: []string{"header." + n}, Limit: weir.TokenBucket{Rate: weir.Rate{N: 1, Per: per}, Burst: bursts[n]}}
		if n != "memory" {
			l.Store = n[:1]
		}
		p.Limits = append(p.Limits, l)
		p.Routes = append(p.Routes, policy.Route{Match: "/" + n, Limits: []string{n}})
	}
	p.Routes = append(p.Routes, policy.Route{Match: "/all", Limits: names})
	addrs := map[string]string{"a": servers.StartRedis(t, servers.RedisOptions{}).URL(), "b": servers.StartRedis(t, servers.RedisOptions{}).URL()}
	var engines []*policy.Engine
	for range 2 {
		engines = append(engines, newEngine(t, p, addrs))
	}

	ctx, cancel := context.WithTimeout(t.Context(), 4*servers.Patience)
	defer cancel()
	var mu sync.Mutex
	used := map[string]int64{} // by engine (of a limit in memory), limit and key
	refused := map[string]int{}
	id := func(e int, n, key string) string {
		if n == "memory" {
			return fmt.Sprint(e, n, key)
		}
		return n + key
	}
	request := func(path string, of map[string]string) policy.Request {
		r := policy.Request{Method: "GET", Path: path, Header: http.Header{}}
		for name, key := range of {
			r.Header.Set(name, key)
		}
		return r
	}
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(caller), 7))
			for range 150 {
				e, of := rnd.IntN(2), map[string]string{}
				for _, n := range names {
					of[n] = string(rune('a' + rnd.IntN(keys)))
				}
				v := engines[e].DecideContext(ctx, request("/all", of))
				mu.Lock()
				switch {
				case v.Err != nil:
					t.Error(v.Err)
				case v.Outcome == policy.Deny:
					refused[v.Limit]++
				default:
					for _, n := range names {
						used[id(e, n, of[n])]++
					}
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	for e, engine := range engines {
		for _, n := range names {
			for k := range keys {
				key := string(rune('a' + k))
				v := engine.DecideContext(ctx, request("/"+n, map[string]string{n: key}))
				if v.Outcome == policy.Allow {
					used[id(e, n, key)]++ // the refusing limit itself
				}
				// Far less than a token refills meanwhile, so what is left is exactly what was not
				// admitted.
				if want := bursts[n] - used[id(e, n, key)]; v.Decision.Remaining != want || want < 0 {
					t.Errorf("engine %d, %s of %s: %d of %d remain, want %d", e, n, key, v.Decision.Remaining, bursts[n], want)
				}
			}
		}
	}
	for _, n := range names {
		if refused[n] == 0 {
			t.Errorf("%s has refused nothing: %v", n, refused)
		}
	}
	for _, e := range engines {
		for _, c := range e.Counts() {
			if c.Lost != 0 || c.Failed != 0 {
				t.Errorf("%+v", c)
			}
		}
	}
}

// newEngine returns an engine with stores of its own, as another node has it.
func newEngine(t *testing.T, p policy.Policy, addrs map[string]string) *policy.Engine {
	t.Helper()
	stores := map[string]weir.Store{}
	for name, url := range addrs {
		s, err := weirrueidis.Open(url, weirredis.Options{Timeout: servers.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		stores[name] = s
	}
	e, err := policy.New(p, policy.Options{Stores: stores})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// TestBytesAreSettled: a body of unknown length is charged by its actual length, in a store too.
func TestBytesAreSettled(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{})
	up := newUpstream(t)
	g := startWeir(t, strings.NewReplacer("STORE", s.URL(), "UP", up.URL).Replace(`
stores: { shared: { url: "STORE", on_failure: deny, deadline: 10s } }
limits: { bytes: { token_bucket: { rate: 1/d, burst: 1000 }, cost: bytes, store: shared } }
upstreams: { up: { url: "UP" } }
routes: [{ match: /, upstream: up, limits: [bytes] }]
`))
	for i, want := range []int{200, 200, 429} { // 600 and 600 of 1000: neither length was known before, so there is a debt
		body := struct{ *strings.Reader }{strings.NewReader(strings.Repeat("x", 600))}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+g.Gateway, body)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = -1
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("request %d: %s", i, resp.Status)
		}
		if i < 2 {
			servers.Poll(t, "the charge", func() bool {
				_, h := g.get(t, "/")
				left := map[int]string{0: "r=400", 1: "r=0"}[i]
				return strings.Contains(h.Get("RateLimit"), left)
			})
		}
	}
}
