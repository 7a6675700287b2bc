package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
)

// bench is an upstream on the test's own clock.
type bench struct {
	*Set
	*Upstream
	t   *testing.T
	now time.Time
	log *bytes.Buffer
}

func newBench(t *testing.T, u policy.Upstream) *bench {
	b := &bench{t: t, now: time.Unix(1e9, 0), log: new(bytes.Buffer)}
	b.Set = NewSet(Options{Log: slog.New(slog.NewTextHandler(b.log, nil)), Now: func() time.Time { return b.now }})
	t.Cleanup(b.Set.Close)
	b.change(u)
	b.Upstream = b.Get("up")
	return b
}

func (b *bench) change(u policy.Upstream) {
	b.t.Helper()
	u.Name = "up"
	c, err := b.Prepare([]Spec{{Upstream: u}})
	if err != nil {
		b.t.Fatal(err)
	}
	c.Commit()
}

// targets returns http://a, http://b and so on, with these weights.
func targets(weights ...int) (all []policy.Target) {
	for i, w := range weights {
		all = append(all, policy.Target{URL: "http://" + string(rune('a'+i)), Weight: w})
	}
	return all
}

func (b *bench) pick(not ...*Target) Exchange {
	b.t.Helper()
	e, err := b.Pick(not...)
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

// ends sends requests to their targets one after another, and returns which these were.
func (b *bench) ends(n int, o Outcome) string {
	b.t.Helper()
	var went strings.Builder
	for range n {
		e := b.pick()
		went.WriteString(e.Target.URL().Host)
		if o == Answered {
			e.Heard()
		}
		e.Done(o, "a test")
	}
	return went.String()
}

func (b *bench) state() string {
	var all []string
	for _, t := range b.Stats()[0].Targets {
		all = append(all, fmt.Sprintf("%s %d/%d/%d %t", t.Target, t.Requests, t.Failures, t.InFlight, t.Up))
	}
	return strings.Join(all, ", ")
}

func TestTakingTurns(t *testing.T) {
	for _, c := range []struct {
		weights []int
		want    string
	}{
		{[]int{1, 1, 1}, "abcabcabc"},
		{[]int{2, 1}, "abaabaaba"},
		{[]int{5, 1, 1}, "aabacaaaabacaa"},
		{[]int{1}, "aaa"},
	} {
		b := newBench(t, policy.Upstream{Targets: targets(c.weights...)})
		if got := b.ends(len(c.want), Answered); got != c.want {
			t.Errorf("%v: %s, not %s", c.weights, got, c.want)
		}
	}
}

// TestLeastLoaded: requests in flight count by weight, and an ended one does not count.
func TestLeastLoaded(t *testing.T) {
	b := newBench(t, policy.Upstream{Targets: targets(3, 1)})
	open := map[string][]Exchange{}
	for range 400 {
		e := b.pick()
		open[e.Target.URL().Host] = append(open[e.Target.URL().Host], e)
	}
	if len(open["a"]) != 300 || len(open["b"]) != 100 {
		t.Fatalf("%d and %d", len(open["a"]), len(open["b"]))
	}
	for i := range open["b"] {
		open["b"][i].Done(Left, "")
		open["b"][i].Done(Failed, "twice counts once")
	}
	for range 100 { // a has 300 in flight: b gets all until it has as many for its weight
		if e := b.pick(); e.Target.URL().Host != "b" {
			t.Fatal(b.state())
		}
	}
	if got := b.state(); got != "a 300/0/300 true, b 200/0/100 true" {
		t.Error(got)
	}
}

func TestTargetGoesDownAndUp(t *testing.T) {
	b := newBench(t, policy.Upstream{Targets: targets(1, 1), Health: policy.Health{Failures: 3, DownFor: 10 * time.Second}})
	old := b.pick() // in flight all the time, at a
	fail := func(n int) {
		for range n {
			e := b.pick(b.targets[1])
			e.Done(Failed, "a test")
		}
	}
	fail(2)
	if e := b.pick(b.targets[1]); e.Target != b.targets[0] {
		t.Fatal("out too early")
	} else {
		e.Heard()
		e.Done(Answered, "")
	}
	fail(3)
	if _, err := b.Pick(b.targets[1]); !errors.Is(err, ErrOut) {
		t.Fatal(err)
	}
	if got := b.ends(4, Answered); got != "bbbb" {
		t.Fatal(got)
	}
	// A request from before it went down says nothing about it now.
	old.Heard()
	old.Done(Answered, "")
	for i, out := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		b.now = b.now.Add(out - 1)
		if got := b.ends(3, Answered); got != "bbb" {
			t.Fatalf("back too early, time %d: %s", i, got)
		}
		b.now = b.now.Add(1)
		trial := b.pick(b.targets[1])
		if _, err := b.Pick(b.targets[1]); !errors.Is(err, ErrOut) {
			t.Fatalf("two at once on trial: %v", err)
		}
		if i == 0 {
			trial.Done(Left, "") // no result: the next one is the trial
			trial = b.pick(b.targets[1])
		}
		trial.Done(Failed, "a test")
	}
	b.now = b.now.Add(80 * time.Second)
	trial := b.pick(b.targets[1])
	trial.Heard()
	trial.Done(Answered, "")
	if got := b.ends(4, Answered); strings.Count(got, "a") != 2 {
		t.Errorf("not back: %s", got)
	}
	// It was up for longer than it was down, so it starts over.
	b.now = b.now.Add(81 * time.Second)
	fail(3)
	b.now = b.now.Add(10 * time.Second)
	trial = b.pick(b.targets[1])
	trial.Heard()
	trial.Done(Answered, "")
	if got := b.state(); !strings.HasPrefix(got, "a 18/11/0 true") {
		t.Error(got)
	}
	if log := b.log.String(); strings.Count(log, "target is down") != 5 || strings.Count(log, "target is up") != 2 || !strings.Contains(log, "for=1m20s") || !strings.Contains(log, `why="a test"`) {
		t.Error(log)
	}
}

// TestAllDown: with all_down: try, all targets count as up, and the first that responds is up. With
// all_down: refuse, requests fail at once.
func TestAllDown(t *testing.T) {
	u := policy.Upstream{Targets: targets(1, 1), Health: policy.Health{Failures: 1}}
	b := newBench(t, u)
	b.ends(2, Failed)
	if got := b.state(); got != "a 1/1/0 false, b 1/1/0 false" {
		t.Fatal(got)
	}
	if got := b.ends(4, Failed); strings.Count(got, "a") != 2 {
		t.Errorf("%s", got)
	}
	if _, err := b.Pick(b.targets[0]); !errors.Is(err, ErrOut) {
		t.Errorf("a request was sent again to a target that is out: %v", err)
	}
	b.ends(1, Answered)
	if got := b.state(); strings.Count(got, "true") != 1 {
		t.Error(got)
	}
	u.Health.AllDown = "refuse"
	b = newBench(t, u)
	b.ends(2, Failed)
	if _, err := b.Pick(); !errors.Is(err, ErrOut) {
		t.Error(err)
	}
	b.now = b.now.Add(10 * time.Second)
	b.ends(1, Answered)
	// The only target can be down and up again, too.
	b = newBench(t, policy.Upstream{URL: "http://a"})
	if got := b.ends(100, Failed); got != strings.Repeat("a", 100) {
		t.Error(got)
	}
}

func TestMaxRequests(t *testing.T) {
	b := newBench(t, policy.Upstream{Targets: targets(1, 3), MaxRequests: 2})
	var open []Exchange
	for range 4 {
		open = append(open, b.pick())
	}
	if _, err := b.Pick(); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	open[0].Done(Left, "")
	if e := b.pick(); e.Target != open[0].Target {
		t.Error(b.state())
	}
}

// TestChange: targets that stay keep their state, whatever else changes.
func TestChange(t *testing.T) {
	u := policy.Upstream{Targets: targets(1, 1), Health: policy.Health{Failures: 1}}
	b := newBench(t, u)
	transport := b.settings.Load().transport
	b.ends(1, Failed) // a is down
	open := b.pick()
	u.Targets = []policy.Target{{URL: "http://c", Weight: 1}, {URL: "http://b", Weight: 2}, {URL: "http://a", Weight: 1}}
	b.change(u)
	if got := b.state(); got != "c 0/0/0 true, b 1/0/1 true, a 1/1/0 false" {
		t.Error(got)
	}
	open.Done(Answered, "")
	if got := b.ends(6, Answered); strings.Count(got, "b") != 4 || strings.Contains(got, "a") {
		t.Error(got)
	}
	if b.settings.Load().transport != transport {
		t.Error("connections were not kept")
	}
	gone := b.pick()
	u.Targets, u.Timeouts.Connect = targets(1), time.Second
	b.change(u)
	gone.Done(Failed, "it is not there any more")
	if b.settings.Load().transport == transport {
		t.Error("connections are made as before")
	}
	if got := b.state(); got != "a 1/1/0 false" {
		t.Error(got)
	}
	c, err := b.Prepare(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Commit()
	if b.Get("up") != nil || len(b.Stats()) != 0 {
		t.Error("the upstream is still there")
	}
	b.ends(1, Answered) // its requests in flight go on
}

func TestBudget(t *testing.T) {
	b, err := newBudget(20)
	if err != nil {
		t.Fatal(err)
	}
	spent := 0
	for range 10_000 {
		b.request()
		if b.spend() {
			spent++
		}
	}
	if spent < burst+1999 || spent > burst+2000 {
		t.Errorf("%d retries for 10000 requests", spent)
	}
}

// TestCallersWithTheirOwnClient: callers that send requests themselves have the same budget and counters as RoundTrip.
func TestCallersWithTheirOwnClient(t *testing.T) {
	b := newBench(t, policy.Upstream{Targets: targets(1, 1), Protocol: "http1", Timeouts: policy.Timeouts{Response: time.Second}})
	sent := 0
	for range 1000 {
		first := b.pick()
		first.Done(Left, "")
		if !b.MayRetry() {
			continue
		}
		second := b.pick(first.Target)
		if second.Target == first.Target {
			t.Fatal("the same target")
		}
		second.Done(Answered, "")
		sent++
	}
	if st := b.stats(); sent < burst+199 || sent > burst+200 || st.Retries != uint64(sent) || st.Spared != uint64(1000-sent) {
		t.Errorf("%d retries of 1000, %+v", sent, st)
	}
}
