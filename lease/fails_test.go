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

// TestContext: a caller does not wait longer than its context, and what comes for it later is there
// for others, or goes back.
func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := open(t, day, lease.Options{Lifetime: 400 * ms, Timeout: 100 * ms}, 50*ms)
		c.take(1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
		defer cancel()
		start := time.Now()
		batch := []weir.Charge{{Name: "l", Key: "k", Limit: day, Cost: 5}}
		err := c.s.Do(ctx, batch, make([]weir.Decision, 1))
		for range 3 { // one who asks for itself, and those who wait for what is asked for meanwhile
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
			t.Errorf("%d left: what nobody used did not come back", n)
		}
	})
}

// TestStoreFails: those who wait are told, all at once, after no longer than the timeout; then it
// works again.
func TestStoreFails(t *testing.T) {
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
			t.Errorf("%d failed, %d took what there was", failed.Load(), took.Load())
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

// TestHangingStore: the timeout ends what nobody else ends.
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
			t.Log("there was nothing to give back")
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
