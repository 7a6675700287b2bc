package keyed_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// TestGiveBack: the count of a key is lowered wherever its state is: in a slot, as a key without one, in
// a limiter of its own, and not for a key with a fixed decision.
func TestGiveBack(t *testing.T) {
	now := int64(0)
	l, err := keyed.New[string](weir.FixedWindow{Limit: 5, Window: time.Hour}, keyed.Options{Clock: func() int64 { return now }, WallClock: func() int64 { return now }, Timers: neverFires})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.Take("slot", 5)
	l.Take("own", 4)
	r, _ := l.Reserve("own", 1, 0)
	l.Take("over", 3)
	if err := l.Override("over", keyed.Override{Deny: true}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key             string
		back, remaining int64
		ok              bool
	}{{"slot", 2, 2, true}, {"slot", 100, 5, true}, {"unused", 1, 5, true}, {"own", 3, 3, true}, {"over", 1, 0, false}} {
		if d, ok := l.GiveBack(c.key, c.back); ok != c.ok || ok && d.Remaining != c.remaining {
			t.Errorf("%+v: %+v, %t", c, d, ok)
		}
	}
	if r.Cancel(); l.Peek("own", 0).Remaining != 4 {
		t.Errorf("after the reservation of %q was cancelled: %+v", "own", l.Peek("own", 0))
	}
	now = int64(time.Hour)
	if l.Take("slot", 5); l.Peek("slot", 0).Remaining != 0 {
		t.Error("what was given back counts in the next window")
	}
}
