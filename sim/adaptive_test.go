package sim

import (
	"container/heap"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/policy"
)

// adaptivePolicy has an upstream of so many targets with adaptive limits, and a route with one of its own.
func adaptivePolicy(targets int, route policy.Adaptive) policy.Policy {
	u := policy.Upstream{Name: "app", Adaptive: policy.Adaptive{On: true}}
	for i := range targets {
		u.Targets = append(u.Targets, policy.Target{URL: fmt.Sprintf("http://10.0.0.%d:9000", i+1), Weight: 1})
	}
	return policy.Policy{Upstreams: []policy.Upstream{u}, Routes: []policy.Route{
		{Match: "/reports/", Upstream: "app", Adaptive: route},
		{Match: "/", Upstream: "app"},
	}}
}

type times []time.Duration

func (t times) Len() int           { return len(t) }
func (t times) Less(i, j int) bool { return t[i] < t[j] }
func (t times) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *times) Push(x any)        { *t = append(*t, x.(time.Duration)) }
func (t *times) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// serviceLog returns the log of a service with so many workers, each of which takes 100 ms: of an hour that begins
// with half of what it can do, and has three times that from its 20th second to its 40th.
func serviceLog(workers int) string {
	const work = 100 * time.Millisecond
	free := make(times, workers)
	var b strings.Builder
	start := time.Date(2026, 5, 4, 9, 0, 0, 0, time.UTC)
	for at := time.Duration(0); at < 40*time.Second; {
		began := max(at, free[0])
		free[0] = began + work
		heap.Fix(&free, 0)
		fmt.Fprintf(&b, `{"time":%q,"client":"192.0.2.1","method":"GET","uri":"/","status":200,"duration":%.6f}`+"\n", start.Add(at).Format(time.RFC3339Nano), (began + work - at).Seconds())
		each := 2 * work
		if at >= 20*time.Second {
			each = work / 3
		}
		at += each / time.Duration(workers)
	}
	return b.String()
}

// replayed returns the report of a log. From a pipe, all requests are sorted first.
func replayed(t *testing.T, p policy.Policy, log string, pipe bool) *Report {
	t.Helper()
	var r io.Reader = strings.NewReader(log)
	if pipe {
		r = io.MultiReader(r)
	}
	report, err := Replay(t.Context(), Options{Policy: p, Inputs: []Input{{Name: "log", R: r}}})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestAdaptiveReplay: while the logged service bore its load, no adaptive limit refuses; when its latency rose,
// they do, and more than in a gateway, as the log's latency does not fall. Each target gets its part.
func TestAdaptiveReplay(t *testing.T) {
	log := serviceLog(20)
	calm := strings.Join(strings.SplitAfter(log, "\n")[:20*5*20], "") // 20 s of 100 a second
	for targets := 1; targets <= 2; targets++ {
		p := adaptivePolicy(targets, policy.Adaptive{})
		if r := replayed(t, p, calm, false); r.Limited != 0 || r.Adaptive[0].OK != 2000/int64(targets) {
			t.Errorf("%d targets, no overload: %d limited, %+v", targets, r.Limited, r.Adaptive)
		}
		r := replayed(t, p, log, false)
		if share := float64(r.Limited) / float64(r.Requests); share < 0.3 || share > 0.9 {
			t.Errorf("%d targets, an overload: %.2f are limited", targets, share)
		}
		refused := int64(0)
		for _, c := range r.Adaptive {
			refused += c.Refused
			if c.Limit != "adaptive:app" || c.Lowest > 40 || c.Highest < 20 || c.OK < 500 || c.Dropped+c.Ignored != 0 {
				t.Errorf("%+v", c)
			}
		}
		if refused != r.Limited || len(r.Adaptive) != targets || r.Adaptive[0].Target != "10.0.0.1:9000" {
			t.Errorf("%d refused, %d limited: %+v", refused, r.Limited, r.Adaptive)
		}
		if sorted := replayed(t, p, log, true); fmt.Sprint(sorted.Adaptive, sorted.Limited) != fmt.Sprint(r.Adaptive, r.Limited) {
			t.Errorf("sorted first: %+v", sorted.Adaptive)
		}
	}
}

// TestAdaptiveReplayOutcomes: what a status says of the load, requests without a duration, those that a limit
// refuses and those that our own gateway had refused.
func TestAdaptiveReplayOutcomes(t *testing.T) {
	p := adaptivePolicy(1, policy.Adaptive{On: true, Algorithm: adaptive.Knee{Initial: 1, Max: 1}, Queue: adaptive.Queue{Length: 9}})
	p.Limits = []policy.Limit{{Name: "two", Limit: weir.TokenBucket{Rate: weir.Rate{N: 1, Per: time.Hour}, Burst: 2}}}
	p.Routes[0].Limits = []string{"two"}
	log := ""
	for _, rest := range []string{
		`"uri":"/","status":200,"duration":1`, `"uri":"/","status":404,"duration":1`, `"uri":"/","status":503,"duration":1`,
		`"uri":"/","status":429,"duration":1`, `"uri":"/","status":499,"duration":1`, `"uri":"/","status":200`,
		`"uri":"/","status":429,"duration":0.001,"decision":"deny"`,
		`"uri":"/reports/a","status":200,"duration":60`, // has the only place of the route
		`"uri":"/reports/b","status":200,"duration":60`, // and takes nothing of the limit
	} {
		log += `{"time":"2026-05-04T09:00:00Z","client":"192.0.2.1","method":"GET",` + rest + "}\n"
	}
	for _, c := range []struct{ at, want string }{{"09:01:00", "allow"}, {"09:02:00", "deny"}} {
		log += `{"time":"2026-05-04T` + c.at + `Z","client":"192.0.2.1","method":"GET","uri":"/reports/c","status":200,"duration":1}` + "\n"
	}
	r := replayed(t, p, log, false)
	want := "[{adaptive:/reports/  2 0 0 1 1 1 1} {adaptive:app 10.0.0.1:9000 4 1 2 0 20 20 20}]"
	if got := fmt.Sprint(r.Adaptive); got != want || r.NoDuration != 2 {
		t.Errorf("%s, want %s; %d without a duration", got, want, r.NoDuration)
	}
	if r.Limited != 2 || r.Limits[0].Allowed != 2 || r.Limits[0].Limited != 1 {
		t.Errorf("%d limited, %+v", r.Limited, r.Limits)
	}
	text, err := json.Marshal(r)
	if want := `{"limit":"adaptive:/reports/","ok":2,"ignored":0,"dropped":0,"refused":1,"lowest":1,"highest":1,"last":1}`; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%s %v", text, err)
	}
}
