package policy_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// speedPolicy has a route with one limit, and one with two.
func speedPolicy(l weir.Limit) policy.Policy {
	return policy.Policy{
		Limits: []policy.Limit{
			{Name: "per-client", Key: []string{"client.ip"}, Limit: l},
			{Name: "per-item", Key: []string{"header.user-id", "query.item", "path.shop"}, Limit: l},
		},
		Routes: []policy.Route{
			{Match: "GET /one", Limits: []string{"per-client"}},
			{Match: "GET /parts/{shop}", Limits: []string{"per-item"}},
			{Match: "GET /two/{shop}", Limits: []string{"per-client", "per-item"}},
		},
	}
}

var (
	speedy = weir.TokenBucket{Rate: weir.PerSecond(1e9), Burst: 1e9}
	slow   = weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1}
)

func speedRequest(path string) policy.Request {
	return policy.Request{Method: "GET", Host: "shop.example", Path: path, Query: "page=2&item=7", Client: "192.0.2.1", Header: http.Header{"User-Id": {"u7"}}}
}

// TestReadCostAllocatesLittle: what reads and settles the cost of a response is made in few allocations, as
// the first byte of the response waits for most of them; and nothing for its body is made before that comes.
func TestReadCostAllocatesLittle(t *testing.T) {
	e, err := policy.New(costly(speedy, policy.Costs{Before: terms("100"), After: terms("openai")}, func(l *policy.Limit) { l.Key = nil }), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	header, event := http.Header{"Content-Type": {"text/event-stream"}}, []byte("data: {\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":10}}\n\n")
	req := speedRequest("/")
	v := new(policy.Verdict)
	for body, most := range map[bool]float64{false: 6, true: 8} {
		if n := testing.AllocsPerRun(100, func() {
			*v = e.Decide(req)
			m := v.Meter()
			if m.Header(200, header); body {
				m.Write(event)
			}
			m.End(policy.Ending{Complete: true})
		}); n > most {
			t.Errorf("with a body: %v; %v allocations, want at most %v", body, n, most)
		}
	}
}

// TestDecideAllocatesNothing: with one local limit and a key that has a state, admitted or refused.
func TestDecideAllocatesNothing(t *testing.T) {
	for _, path := range []string{"/one", "/parts/s1"} {
		for want, limit := range map[policy.Outcome]weir.Limit{policy.Allow: speedy, policy.Deny: slow} {
			now := int64(time.Hour)
			e, err := policy.New(speedPolicy(limit), policy.Options{Clock: func() int64 { return now }})
			if err != nil {
				t.Fatal(err)
			}
			req := speedRequest(path)
			e.Decide(req)
			if n := testing.AllocsPerRun(100, func() {
				if v := e.Decide(req); v.Outcome != want {
					t.Fatal(v.Outcome)
				}
			}); n != 0 {
				t.Errorf("%s, %v: %v allocations", path, want, n)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, path := range []string{"/one", "/parts/s1", "/two/s1"} {
		for name, limit := range map[string]weir.Limit{"admitted": speedy, "refused": slow} {
			b.Run(path[1:4]+"/"+name, func(b *testing.B) {
				e, err := policy.New(speedPolicy(limit), policy.Options{})
				if err != nil {
					b.Fatal(err)
				}
				defer e.Close()
				req := speedRequest(path)
				b.ReportAllocs()
				for b.Loop() {
					e.Decide(req)
				}
			})
		}
	}
}
