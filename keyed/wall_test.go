package keyed_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// TestTakeTextReadsTheLimitsClock: for a key in a buffer, Take used the process's clock, also if
// the limit uses wall time.
func TestTakeTextReadsTheLimitsClock(t *testing.T) {
	wall := int64(time.Hour)
	l, err := keyed.New[string](weir.FixedWindow{Limit: 1, Window: time.Second}, keyed.Options{
		Clock:     func() int64 { return 0 },
		WallClock: func() int64 { return wall },
		Timers:    neverFires,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 3 {
		if d := keyed.TakeText(l, []byte("a"), 1); !d.Allowed {
			t.Errorf("at %v: %+v", time.Duration(wall), d)
		}
		wall += int64(time.Second)
	}
}

// TestKeysOfWallTimeAreEvicted: after a wait or a settlement, the time at which a key becomes idle
// was computed with a clock that is not the limit's.
func TestKeysOfWallTimeAreEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := keyed.New[string](weir.FixedWindow{Limit: 1, Window: time.Second}, keyed.Options{MaxKeys: 1, Full: keyed.Refuse})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		r, ok := l.Reserve("a", 1, 0)
		if !ok {
			t.Fatal("refused")
		}
		r.Settle(2)
		if err := l.Wait(t.Context(), "a", 1); err != nil {
			t.Error(err)
		}
		if d := l.Take("b", 1); d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > 2*time.Second {
			t.Errorf("%+v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		<-time.After(3 * time.Second)
		if err := l.Wait(ctx, "b", 1); err != nil {
			t.Errorf("the other key's time has come: %v", err)
		}
	})
}

// TestReserveAboveTheCapacity: a limit that allows debt charges a cost above its capacity. Settling
// that charged it twice.
func TestReserveAboveTheCapacity(t *testing.T) {
	now := int64(0)
	l, err := keyed.New[string](weir.SmoothBursty{Rate: weir.PerSecond(1), MaxBurst: -1}, keyed.Options{Clock: func() int64 { return now }, Timers: neverFires})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, ok := l.Reserve("a", 5, 0)
	if !ok {
		t.Fatalf("%+v", r.Decision())
	}
	r.Settle(5)
	if d := l.Peek("a", 1); d.RetryAfter != 5*time.Second {
		t.Errorf("%+v", d)
	}
	r, _ = l.Reserve("b", 5, 0)
	r.Cancel()
	if d := l.Peek("b", 1); d.RetryAfter > time.Second {
		t.Errorf("nothing was given back: %+v", d)
	}
}

// TestIdleKeysAreEvictedAtMidnight: when the day ends, all keys of a daily quota are evicted,
// although the table no longer has words for their states.
func TestIdleKeysAreEvictedAtMidnight(t *testing.T) {
	day := int64(24 * time.Hour)
	now := 20_000 * day
	l, err := keyed.New[int](weir.FixedWindow{Limit: 3, Align: "day:Europe/Berlin"}, keyed.Options{WallClock: func() int64 { return now }, Timers: neverFires})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for key := range 5000 {
		l.Take(key, 3)
	}
	now += day
	for key := range 100 {
		if d := l.Take(10_000+key, 3); !d.Allowed {
			t.Fatalf("%+v", d)
		}
	}
	if s := l.Stats(); s.Keys != 100 || s.EvictedIdle != 5000 {
		t.Errorf("%+v", s)
	}
}
