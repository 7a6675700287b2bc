package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// TestCheckLeases: what cannot be leased is refused, and where leases are of no use that is said, with the limit for which they are none.
func TestCheckLeases(t *testing.T) {
	window := weir.FixedWindow{Limit: 5, Window: time.Second}
	all := map[string]policy.Limit{
		"bucket":  {Limit: bucket("1/s", 5), Store: "leased"},
		"window":  {Limit: window, Store: "leased"},
		"memory":  {Limit: bucket("1/s", 5)},
		"queue":   {Limit: weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 3}},
		"plain":   {Limit: window, Store: "plain"},
		"waits":   {Limit: weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 3}, Store: "plain"},
		"shadow":  {Limit: window, Store: "leased", Shadow: true},
		"places":  {Limit: weir.Concurrency{Limit: 5}},
		"log":     {Limit: weir.SlidingLog{Limit: 5, Window: time.Second}, Store: "leased"},
		"unknown": {Limit: window, Store: "nowhere"},
	}
	for limits, want := range map[string]string{
		"bucket":                "",
		"bucket memory queue":   "",
		"bucket shadow":         "",
		"plain bucket":          "", // the leased one is asked last
		"plain places waits":    "",
		"bucket window":         "bucket: window; window: bucket",
		"bucket plain":          "bucket: plain",
		"waits bucket":          "bucket: waits",
		"memory bucket places":  "bucket: places",
		"bucket shadow plain":   "bucket: plain",
		"log":                   "!log",
		"log bucket":            "!log; bucket: log",
		"bucket bucket":         "!limits 1",
		"unknown bucket places": "!unknown; bucket: places",
	} {
		p := policy.Policy{Stores: []policy.Store{
			{Name: "plain", Redis: "redis://a"},
			{Name: "leased", Redis: "redis://a", Lease: policy.Lease{On: true}},
		}}
		r := policy.Route{Match: "/"}
		for name := range strings.FieldsSeq(limits) {
			l := all[name]
			if l.Name = name; !strings.Contains(strings.Join(r.Limits, " "), name) {
				p.Limits = append(p.Limits, l)
			}
			r.Limits = append(r.Limits, name)
		}
		p.Routes = []policy.Route{r}
		var got []string
		for _, q := range p.Check() {
			if !q.Warning {
				got = append(got, "!"+strings.TrimSuffix(strings.Join(q.Path[len(q.Path)-2:], " "), " store"))
				continue
			}
			quoted := strings.Split(q.Message, `"`)
			got = append(got, quoted[1]+": "+quoted[3])
		}
		if text := strings.Join(got, "; "); text != want {
			t.Errorf("%s: %q, want %q", limits, text, want)
		}
	}
}
