package policy_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// TestReset: a key of each sort of limit starts over, in memory and in a store, and no other key does. A
// ban stays.
func TestReset(t *testing.T) {
	clock := new(weirtest.Clock)
	p := named()
	e := sharing(t, p, clock, map[string]weir.Store{"shared": weirtest.NewStore(clock.Now)})
	remaining := func(limit string, key []string) int64 {
		t.Helper()
		a, err := e.Peek(t.Context(), []policy.Ask{{Limit: limit, Key: key}})
		if err != nil {
			t.Fatal(err)
		}
		return a.Each[0].Decision.Remaining
	}
	for _, l := range p.Limits {
		key, other := keyOf(p, l.Name, "10.0.0.1", "a"), keyOf(p, l.Name, "10.0.0.9", "b")
		full := remaining(l.Name, key)
		for _, k := range [][]string{key, other} {
			if _, err := e.Take(t.Context(), []policy.Ask{{Limit: l.Name, Key: k, Cost: 1}}); err != nil {
				t.Fatal(err)
			}
		}
		used := remaining(l.Name, other)
		if err := e.Reset(t.Context(), policy.Ask{Limit: l.Name, Key: key}); err != nil {
			t.Fatalf("%s: %v", l.Name, err)
		}
		if got := remaining(l.Name, key); got != full {
			t.Errorf("%s: %d remain after a reset, want %d", l.Name, got, full)
		}
		if got := remaining(l.Name, other); len(key) > 0 && got != used {
			t.Errorf("%s: another key has %d after a reset, want %d", l.Name, got, used)
		}
	}
	var wrong *policy.AskError
	if err := e.Reset(t.Context(), policy.Ask{Limit: "nothing"}); !errors.As(err, &wrong) {
		t.Errorf("a limit that is not there: %v", err)
	}
	except(t, e, policy.Override{Limit: "window", Key: []string{"10.0.0.1"}, Ban: true, For: time.Hour})
	if err := e.Reset(t.Context(), policy.Ask{Limit: "window", Key: []string{"10.0.0.1"}}); err != nil {
		t.Fatal(err)
	}
	if a, err := e.Take(t.Context(), []policy.Ask{{Limit: "window", Key: []string{"10.0.0.1"}, Cost: 1}}); err != nil || !a.Banned() {
		t.Errorf("a reset lifted a ban: %v", err)
	}
}
