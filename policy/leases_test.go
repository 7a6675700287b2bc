package policy_test

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// TestCheckLeases: limits that cannot be leased are refused. There is a warning for a limit whose
// leases are of no use.
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
		"plain bucket":          "", // the leased one is called last
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
			{Name: "plain", URL: "redis://a"},
			{Name: "leased", URL: "redis://a", Lease: policy.Lease{On: true}},
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
		if !strings.Contains(want, "!") {
			bound := boundBy(t, p)
			for name := range strings.FieldsSeq(limits) {
				if l := all[name]; l.Store == "leased" && !l.Shadow && bound[name] != strings.Contains("; "+want, "; "+name+":") {
					t.Errorf("%s: the charge of %s has conditions: %v", limits, name, bound[name])
				}
			}
		}
	}
}

// boundBy returns the limits that an engine charged in a way that a lease cannot decide: in a
// group, or to be given back.
func boundBy(t *testing.T, p policy.Policy) map[string]bool {
	t.Helper()
	r := &recorder{Store: weirtest.NewStore(nil), bound: map[string]bool{}}
	e, err := policy.New(p, policy.Options{Stores: map[string]weir.Store{"leased": r, "plain": r}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	e.Decide(get("/", "x"))
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.bound)
}

// recorder is a store that records which charges have conditions.
type recorder struct {
	weir.Store
	mu    sync.Mutex // shadows are evaluated in the background
	bound map[string]bool
}

func (r *recorder) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	r.mu.Lock()
	for _, c := range batch {
		r.bound[c.Name] = c.Keep || c.Group > 0
	}
	r.mu.Unlock()
	return r.Store.Do(ctx, batch, out)
}
