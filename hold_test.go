package weir_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

func TestHoldsExpire(t *testing.T) {
	var c weirtest.Clock
	l, holds := held(t, weir.Concurrency{Limit: 2, MaxHold: sec}, &c)
	c.Set(int64(400 * ms))
	if !holds[1].Extend() {
		t.Error("a heartbeat in time was refused")
	}
	if _, d := l.TryEnter(); d.Allowed || d.RetryAfter != 600*ms || d.ResetAfter != sec {
		t.Errorf("%+v", d)
	}
	if _, d := l.TryEnterCost(2); d.RetryAfter != sec {
		t.Errorf("%+v", d)
	}
	c.Set(int64(sec) - 1)
	if _, d := l.TryEnter(); d.Allowed || d.RetryAfter != 1 {
		t.Errorf("%+v", d)
	}
	c.Set(int64(sec))
	next, d := l.TryEnter()
	if !d.Allowed {
		t.Errorf("after what RetryAfter said: %+v", d)
	}
	if holds[0].Extend() {
		t.Error("an expired hold was extended")
	}
	holds[0].Done(weir.OK) // after expiry it does nothing, although another hold may have its record
	if l.Holding() != 2 {
		t.Errorf("%d are held", l.Holding())
	}
	c.Set(int64(300 * ms)) // a step back: the hold stays expired, and no other hold lasts longer
	holds[0].Done(weir.OK)
	if l.Holding() != 2 || !next.Extend() {
		t.Errorf("%d are held", l.Holding())
	}
	c.Set(int64(1400 * ms))
	if l.Holding() != 1 {
		t.Errorf("%d are held", l.Holding())
	}
	next.Done(weir.OK)
	holds[1].Done(weir.Dropped)
	if got, want := l.Outcomes(), (weir.Outcomes{OK: 1, Expired: 2}); got != want {
		t.Errorf("%+v", got)
	}
	if d := l.Peek(2); !d.Allowed || d.ResetAfter != 0 {
		t.Errorf("%+v", d)
	}
}

func TestExpiryServesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newConcurrency(t, weir.Concurrency{Limit: 1, Queue: 2, MaxHold: sec})
		start := time.Now()
		crashed, _ := l.Enter(t.Context())
		<-time.After(200 * ms)
		var wg sync.WaitGroup
		for _, at := range []time.Duration{sec, 2 * sec} {
			wg.Go(func() {
				h, err := l.Enter(t.Context())
				if err != nil || time.Since(start) != at || h.Fence() <= crashed.Fence() {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			})
			synctest.Wait()
		}
		_, err := l.Enter(t.Context())
		var limited *weir.LimitedError
		if !errors.As(err, &limited) || limited.Decision.RetryAfter != 800*ms {
			t.Errorf("there is room in the queue in 800ms: %v", err)
		}
		if _, d := l.TryEnter(); d.RetryAfter != 2800*ms {
			t.Errorf("both before it may take all their time: %+v", d)
		}
		soon, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		if err := l.SetLimit(weir.Concurrency{Limit: 1, Queue: 3, MaxHold: sec}); err != nil {
			t.Error(err)
		}
		if _, err := l.Enter(soon); err != context.DeadlineExceeded || time.Since(start) != 300*ms {
			t.Errorf("a deadline: %v after %v", err, time.Since(start))
		}
		wg.Wait()
	})
}

func TestFence(t *testing.T) {
	var c weirtest.Clock
	for _, maxHold := range []time.Duration{0, time.Hour} {
		c.Set(int64(sec))
		l, holds := held(t, weir.Concurrency{Limit: 3, MaxHold: maxHold}, &c)
		last := int64(sec/time.Microsecond) - 1
		for _, h := range holds {
			f := h.Fence()
			if copied := h; f != last+1 || copied.Fence() != f || h.Fence() != f {
				t.Errorf("%d after %d", f, last)
			}
			last = f
		}
		holds[0].Done(weir.OK)
		if f := holds[0].Fence(); (f != 0) != (maxHold != 0) {
			t.Errorf("MaxHold %v: the fence of a hold that has ended is %d", maxHold, f)
		}
		c.Set(0) // the clock steps back, and the fence does not
		h, _ := l.TryEnter()
		if f := h.Fence(); f != last+1 {
			t.Errorf("%d after %d", f, last)
		}
		holds[1].Done(weir.OK)
		c.Set(int64(time.Minute))
		h, _ = l.TryEnter()
		if f := h.Fence(); f != int64(time.Minute/time.Microsecond) {
			t.Errorf("%d", f)
		}
	}
	l := newConcurrency(t, weir.Concurrency{Limit: 1, MaxHold: time.Hour})
	before := time.Now().UnixMicro()
	h, _ := l.TryEnter()
	if f := h.Fence(); f < before || f > time.Now().UnixMicro() {
		t.Errorf("%d is not the wall clock's", f)
	}
}

// TestMaxHoldChanges: a hold keeps its expiry until it is extended.
func TestMaxHoldChanges(t *testing.T) {
	var c weirtest.Clock
	l, holds := held(t, weir.Concurrency{Limit: 3, MaxHold: sec}, &c)
	set := func(l *weir.ConcurrencyLimiter, d time.Duration) {
		t.Helper()
		if err := l.SetLimit(weir.Concurrency{Limit: 3, MaxHold: d}); err != nil {
			t.Fatal(err)
		}
	}
	set(l, 0)
	if _, d := l.TryEnter(); d.RetryAfter != sec {
		t.Errorf("%+v", d)
	}
	if !holds[1].Extend() {
		t.Error("not extended")
	}
	if _, d := l.TryEnterCost(3); d.RetryAfter != weir.Never || d.ResetAfter != weir.Never {
		t.Errorf("one does not expire any more: %+v", d)
	}
	set(l, 100*ms)
	if !holds[2].Extend() { // extending never shortens a hold
		t.Error("not extended")
	}
	c.Set(int64(sec) - 1)
	if l.Holding() != 3 {
		t.Errorf("%d are held", l.Holding())
	}
	c.Set(int64(sec))
	if l.Holding() != 1 {
		t.Errorf("%d are held", l.Holding())
	}
	set(l, 0)
	holds[1].Done(weir.OK)

	l, holds = held(t, weir.Concurrency{Limit: 3}, &c)
	c.Set(int64(time.Hour))
	set(l, sec)
	if _, d := l.TryEnter(); d.Allowed || d.RetryAfter != weir.Never {
		t.Errorf("they were entered for ever: %+v", d)
	}
	holds[0].Done(weir.OK)
	h, d := l.TryEnter()
	if !d.Allowed {
		t.Errorf("%+v", d)
	}
	if _, d = l.TryEnter(); d.RetryAfter != sec {
		t.Errorf("%+v", d)
	}
	h.Done(weir.OK)
	if !holds[1].Extend() {
		t.Error("lost")
	}
}

// TestMaxHoldAddedByAChange: if a change adds a MaxHold and also admits a waiter, the waiter holds its
// place for MaxHold from the change on.
func TestMaxHoldAddedByAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newConcurrency(t, weir.Concurrency{Limit: 1, Queue: 1})
		l.TryEnter()
		<-time.After(time.Hour)
		entered := make(chan weir.Hold)
		go func() {
			h, _ := l.Enter(t.Context())
			entered <- h
		}()
		synctest.Wait()
		if err := l.SetLimit(weir.Concurrency{Limit: 2, MaxHold: sec}); err != nil {
			t.Fatal(err)
		}
		h := <-entered
		if _, d := l.TryEnter(); d.RetryAfter != sec || !h.Extend() {
			t.Errorf("%+v", d)
		}
	})
}
