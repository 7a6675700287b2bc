package pacing_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pacing"
)

// limited makes a try of a limiter.
func limited(l *weir.Limiter) func() pacing.Try {
	return func() pacing.Try {
		d := l.Take(1)
		return pacing.Try{Sent: d.Allowed, Wait: d.RetryAfter, By: d}
	}
}

// TestLinesPriority: a level is worth 10 s of waiting, and no more: those of a low level are not
// overtaken for ever.
func TestLinesPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := pacing.NewLines(1000)
		l, _ := weir.New(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1})
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		send := func(name string, level int) {
			all.Go(func() {
				if err := lines.Wait(t.Context(), pacing.Request{Key: "a", Level: level}, limited(l)); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
			})
			synctest.Wait()
		}
		for i := range 3 {
			send("low"+strconv.Itoa(i), 0)
		}
		for i := range 30 { // one a second, as fast as they are sent
			send("high"+strconv.Itoa(i), 1)
			elapse(time.Second)
		}
		all.Wait()
		at := map[string]int{}
		for i, name := range order {
			at[name] = i
		}
		if at["high0"] > at["low1"] || at["high5"] > at["low2"] || at["low2"] > at["high15"] {
			t.Errorf("%v", order)
		}
		if lines.Waiting() != 0 {
			t.Errorf("%d wait", lines.Waiting())
		}
	})
}

// TestLinesDeadline: a request whose turn comes after its deadline gets an error at once, alone and
// behind others. One whose context ends leaves, and those behind it move up.
func TestLinesDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := pacing.NewLines(20)
		l, _ := weir.New(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1})
		l.Take(1)
		began := time.Now()
		soon, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		err := lines.Wait(soon, pacing.Request{Key: "a"}, limited(l))
		if !errors.Is(err, weir.ErrLimited) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 0 {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
		var all sync.WaitGroup
		leaving, leave := context.WithCancel(t.Context())
		for i := range 20 {
			all.Go(func() {
				ctx := t.Context()
				if i < 10 {
					ctx = leaving
				}
				err := lines.Wait(ctx, pacing.Request{Key: "a", Costs: []int64{1}}, limited(l))
				if (i < 10) != errors.Is(err, context.Canceled) {
					t.Errorf("%d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		err = lines.Wait(t.Context(), pacing.Request{Key: "b"}, limited(l))
		if !errors.Is(err, weir.ErrLimited) {
			t.Errorf("more wait than may: %v", err)
		}
		leave()
		synctest.Wait()
		var ahead int64
		err = lines.Wait(soon, pacing.Request{Key: "a", Costs: []int64{5}, TooLate: func(costs []int64) error {
			ahead = costs[0]
			return context.DeadlineExceeded
		}}, limited(l))
		if err == nil || ahead != 15 {
			t.Errorf("%v with %d ahead", err, ahead)
		}
		all.Wait()
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("the ten behind the ten that left took %v", d)
		}
	})
}

// TestLinesChange: a change wakes the first, and without one it looks again by itself.
func TestLinesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var signal pacing.Signal
		lines := pacing.NewLines(20)
		var open atomic.Bool
		try := func() pacing.Try {
			changed := signal.Changed()
			return pacing.Try{Sent: open.Load(), Wait: weir.Never, Changed: changed}
		}
		began := time.Now()
		time.AfterFunc(time.Millisecond, func() { open.Store(true); signal.Notify() })
		if err := lines.Wait(t.Context(), pacing.Request{Key: "a"}, try); err != nil || time.Since(began) != time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		open.Store(false)
		time.AfterFunc(time.Millisecond, func() { open.Store(true) })
		if err := lines.Wait(t.Context(), pacing.Request{Key: "a"}, try); err != nil || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
