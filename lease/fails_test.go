package lease_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/lease"
)

// TestCallersLeaveWithTheirContexts: a caller does not wait longer than its context. Tokens that arrive for it later are
// used by other callers, or returned to the store.
func TestCallersLeaveWithTheirContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := open(t, day, lease.Options{Lifetime: 400 * ms, Timeout: 100 * ms}, 50*ms)
		c.take(1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
		defer cancel()
		start := time.Now()
		batch := []weir.Charge{{Name: "l", Key: "k", Limit: day, Cost: 5}}
		err := c.s.Do(ctx, batch, make([]weir.Decision, 1))
		for range 3 { // the first requests tokens for itself, and the others wait for that request
			wait := []weir.Charge{{Name: "l", Key: "k", Limit: day, Cost: 1}}
			if err := c.s.Do(ctx, wait, make([]weir.Decision, 1)); !errors.Is(err, context.DeadlineExceeded) || wait[0].Err == nil {
				t.Error(err, wait[0].Err)
			}
		}
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 11*ms {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		<-time.After(sec)
		if n := c.left(r); n != 999 && n != 994 {
			t.Errorf("%d left: the tokens that no caller used were not returned", n)
		}
	})
}

// TestWaitersGetTheStoresError: if a request for tokens fails, all callers that wait for it get the
// store's error. When the store is back, the next call succeeds.
func TestWaitersGetTheStoresError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := open(t, day, lease.Options{Lifetime: 100 * ms}, ms)
		down := errors.New("down")
		for range 20 {
			c.take(1)
		}
		<-time.After(10 * ms)
		r.mu.Lock()
		r.fail = func(int64) error { return down }
		r.mu.Unlock()
		var failed, took atomic.Int64
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				ch, d, err := c.do(weir.Charge{Cost: 1})
				switch {
				case errors.Is(err, down) && errors.Is(ch.Err, down):
					failed.Add(1)
				case err == nil && d.Allowed:
					took.Add(1)
				default:
					t.Errorf("%+v, %v", d, err)
				}
			})
		}
		wg.Wait()
		if failed.Load() == 0 || took.Load() > 40 {
			t.Errorf("%d failed, %d were allowed from the tokens that were left", failed.Load(), took.Load())
		}
		r.mu.Lock()
		r.fail = nil
		r.mu.Unlock()
		<-time.After(200 * ms)
		if d := c.take(1); !d.Allowed || c.s.Stats().Lost == 0 {
			t.Errorf("%+v, %+v", d, c.s.Stats())
		}
	})
}

// TestHangingStore: a request to a store that does not respond ends at Options.Timeout, also without
// a deadline of the caller.
func TestHangingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := open(t, day, lease.Options{Lifetime: 100 * ms}, ms)
		for range 20 {
			c.take(1)
		}
		r.way = time.Hour
		start := time.Now()
		for {
			if _, _, err := c.do(weir.Charge{Cost: 1}); err != nil {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				break
			}
		}
		if err := c.s.Close(); err == nil {
			t.Log("no tokens were left to return")
		}
		if d := time.Since(start); d > 200*ms {
			t.Errorf("it took %v", d)
		}
	})
}

// TestLateReplies: tokens that arrive after their lifetime are not used, but returned.
func TestLateReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := open(t, day, lease.Options{Lifetime: 10 * ms, Timeout: sec}, 0)
		c.take(1)
		r.way = 30 * ms
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if d := c.take(1); !d.Allowed || d.Source != weir.SourceStore {
					t.Errorf("%+v", d)
				}
			})
		}
		wg.Wait()
		<-time.After(sec)
		if n := c.left(r); n != 991 {
			t.Errorf("%d left of 991", n)
		}
	})
}
