package decisions

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
)

// decide is what an engine does with a decision.
func decide(o *Observers, d policy.Observed) {
	if o.Sees(d.Outcome, d.Limit, d.Shadow) {
		o.Observe(d)
	}
}

// TestFilter: a watcher gets what fits its filter.
func TestFilter(t *testing.T) {
	key := policy.EncodeKey("ann")
	for name, c := range map[string]struct {
		filter Filter
		want   int
	}{
		"all":            {Filter{}, 4},
		"a limit":        {Filter{Limits: []string{"a"}}, 3},
		"outcomes":       {Filter{Outcomes: []policy.Outcome{policy.Deny}}, 3},
		"a key":          {Filter{Key: key}, 1},
		"a route":        {Filter{Routes: []string{"/x"}}, 1},
		"no shadows":     {Filter{Shadows: WithoutShadows}, 3},
		"only shadows":   {Filter{Shadows: OnlyShadows}, 1},
		"several things": {Filter{Limits: []string{"a"}, Outcomes: []policy.Outcome{policy.Deny}, Shadows: WithoutShadows}, 1},
	} {
		o := New()
		w, err := o.Watch(c.filter)
		if err != nil {
			t.Fatal(err)
		}
		decide(o, policy.Observed{Limit: "a", Key: key})
		decide(o, policy.Observed{Limit: "a", Outcome: policy.Deny, Match: "/x"})
		decide(o, policy.Observed{Limit: "b", Outcome: policy.Deny})
		decide(o, policy.Observed{Limit: "a", Outcome: policy.Deny, Shadow: true})
		if events, lost := w.Next(time.Now()); len(events) != c.want || lost != (Lost{}) {
			t.Errorf("%s: %d events, want %d; lost: %+v", name, len(events), c.want, lost)
		}
		if w.Close(); len(*o.watchers.Load()) != 0 {
			t.Error("a closed watcher is still there")
		}
	}
}

// TestFloodOfOneSort: a flood of admitted work hides no refusals, and what is lost is counted.
func TestFloodOfOneSort(t *testing.T) {
	o := New()
	w, err := o.Watch(Filter{PerSecond: 10})
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		decide(o, policy.Observed{})
	}
	decide(o, policy.Observed{Outcome: policy.Deny})
	events, lost := w.Next(w.filled.Add(time.Second))
	if len(events) != 11 || lost != (Lost{Others: 990}) {
		t.Errorf("%d events, lost %+v", len(events), lost)
	}
	now := w.filled
	total := 0
	for range 100 { // calls of Next at any moments make room for 10 in a second together
		for range 100 {
			decide(o, policy.Observed{})
		}
		now = now.Add(33 * time.Millisecond)
		events, lost := w.Next(now)
		if total += len(events); len(events)+int(lost.Others) != 100 {
			t.Fatalf("of 100 decisions, %d were events, and %d were lost", len(events), lost.Others)
		}
	}
	if want := 10 + 33; total < want-1 || total > want {
		t.Errorf("%d events in 3.3 s, want about %d", total, want)
	}
}

// TestNoneIsLostUncounted: whatever calls come at the same time, each decision is an event or counted as
// lost, for each watcher; and a watcher that nobody reads keeps no more than its bound.
func TestNoneIsLostUncounted(t *testing.T) {
	o := New()
	var all []*Watcher
	for i := range 4 {
		w, err := o.Watch(Filter{PerSecond: 50 << i})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	const each, callers = 500, 8
	var work sync.WaitGroup
	for range callers {
		work.Go(func() {
			for i := range each {
				decide(o, policy.Observed{Outcome: policy.Outcome(i % 3), Key: fmt.Sprint(i)})
			}
		})
	}
	work.Wait()
	for i, w := range all {
		events, lost := w.Next(time.Now())
		if got := uint64(len(events)) + lost.Refused + lost.Others; got != each*callers || len(events) > 2*(50<<i) {
			t.Errorf("watcher %d: %d events and %+v lost are %d, want %d", i, len(events), lost, got, each*callers)
		}
	}
}

// TestLogBesideManyWatchers: however many clients watch, another LogTo replaces the log: none of the decisions from
// then on is logged as the earlier one said, which may have shown keys.
func TestLogBesideManyWatchers(t *testing.T) {
	o := New()
	var shown, hashed bytes.Buffer
	o.LogTo(slog.New(slog.NewTextHandler(&shown, nil)), &LogOptions{Keys: true})
	for range MostWatchers {
		if _, err := o.Watch(Filter{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := o.Watch(Filter{}); err != ErrTooMany {
		t.Error("a client more than may watch:", err)
	}
	decide(o, policy.Observed{Limit: "a", Key: policy.EncodeKey("ann")})
	o.LogTo(slog.New(slog.NewTextHandler(&hashed, nil)), &LogOptions{})
	decide(o, policy.Observed{Limit: "a", Key: policy.EncodeKey("bea")})
	o.LogTo(nil, nil)
	decide(o, policy.Observed{Limit: "a", Key: policy.EncodeKey("eve")})
	if text := shown.String(); strings.Count(text, "msg=decision") != 1 || !strings.Contains(text, "ann") {
		t.Errorf("the first log: %q", text)
	}
	if text := hashed.String(); strings.Count(text, "msg=decision") != 1 || strings.Contains(text, "bea") || !strings.Contains(text, "key_hash") {
		t.Errorf("the second log: %q", text)
	}
	if n := len(*o.watchers.Load()); n != MostWatchers {
		t.Errorf("%d watchers after the log has ended", n)
	}
}

// TestHashes: the hash of a key differs from limit to limit and from process to process.
func TestHashes(t *testing.T) {
	a, b := New(), New()
	if a.Hash("x", "k") != a.Hash("x", "k") || a.Hash("x", "k") == a.Hash("y", "k") || a.Hash("x", "k") == b.Hash("x", "k") {
		t.Error("hashes are not what they should be")
	}
}

// TestSeesAllocatesNothing: a decision that nobody watches costs no memory.
func TestSeesAllocatesNothing(t *testing.T) {
	o := New()
	if n := testing.AllocsPerRun(100, func() { decide(o, policy.Observed{Outcome: policy.Deny, Limit: "a"}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
