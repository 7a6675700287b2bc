package decisions

import (
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// BenchmarkDecide shows what it costs that decisions are observed: by nobody, with histograms, and with a
// client that watches.
func BenchmarkDecide(b *testing.B) {
	p := policy.Policy{
		Limits: []policy.Limit{{Name: "a", Key: []string{"client.ip"}, Limit: weir.TokenBucket{Rate: weir.PerSecond(1e9), Burst: 1e9}}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"a"}, Respond: policy.Response{Status: 204}}},
	}
	for name, filter := range map[string]*Filter{"nobody": nil, "all": {}, "refusals": {Outcomes: []policy.Outcome{policy.Deny}}} {
		o := New()
		if filter != nil {
			if _, err := o.Watch(*filter); err != nil {
				b.Fatal(err)
			}
		}
		run(b, name, p, o)
	}
	run(b, "unobserved", p, nil)
}

func run(b *testing.B, name string, p policy.Policy, o policy.Observer) {
	b.Run(name, func(b *testing.B) {
		e, err := policy.New(p, policy.Options{Observer: o})
		if err != nil {
			b.Fatal(err)
		}
		defer e.Close()
		req := policy.Request{Method: "GET", Path: "/", Client: "192.0.2.1"}
		b.ReportAllocs()
		for b.Loop() {
			if v := e.Decide(req); v.Outcome != policy.Allow {
				b.Fatal(v.Outcome)
			}
		}
	})
}
