package regions

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/weirtest"
)

// distant is a store that is far away.
type distant struct {
	weir.Store
	delay time.Duration
}

// Do implements weir.Store.
func (d distant) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	_ = pause.For(ctx, d.delay)
	err := d.Store.Do(ctx, batch, out)
	_ = pause.For(ctx, d.delay)
	return err
}

// TestNodesInParallel: nodes with leases and failover around the store of their region, with many
// callers each, find their shares and stay within the bound.
func TestNodesInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const term = 4 * time.Second
		limit := weir.TokenBucket{Rate: weir.PerSecond(40), Burst: 40}
		w := &world{t: t, limit: limit}
		home := weirtest.NewStore(nil)
		var mu sync.Mutex
		var running sync.WaitGroup
		var all []*Store
		var closers []func() error
		end := time.Now().Add(6 * term)
		for i, r := range three {
			here := weirtest.NewStore(nil)
			for range 3 {
				leased, err := lease.New(here, lease.Options{})
				if err != nil {
					t.Fatal(err)
				}
				safe, err := failover.New(leased, failover.Options{Nodes: 3, Deadline: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				s, err := New(safe, distant{home, time.Duration(50*i+1) * ms}, Options{Here: r.Name, Regions: three, Term: term})
				if err != nil {
					t.Fatal(err)
				}
				shared, err := weir.NewShared(limit, s, weir.Named("l"))
				if err != nil {
					t.Fatal(err)
				}
				all, closers = append(all, s), append(closers, s.Close, safe.Close, leased.Close)
				for range 2 {
					running.Go(func() {
						for time.Now().Before(end) {
							if pause.For(t.Context(), time.Duration(40+400*i)*ms) != nil {
								return
							}
							d, err := shared.Take(t.Context(), "k", 1)
							if err != nil {
								t.Error(err)
								return
							}
							if d.Allowed {
								mu.Lock()
								w.took = append(w.took, admission{time.Now().UnixNano(), 1, "k"})
								mu.Unlock()
							}
						}
					})
				}
			}
		}
		running.Wait()
		for i, s := range all {
			now, _ := s.Share("l")
			if busy := i < 3; busy && now < 780 || !busy && now > 120 {
				t.Errorf("node %d of the nine has %d thousandths", i, now)
			}
		}
		for _, f := range closers {
			if err := f(); err != nil {
				t.Error(err)
			}
		}
		w.extra = 40 * lease.DefaultLifetime.Seconds()
		w.checkBucket()
		t.Log(len(w.took), "admitted,", w.excess(40/1e9), "above the rate")
	})
}

// TestCloseDuringCall: Close waits for the call that is on its way, whose reply changes nothing more.
func TestCloseDuringCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(weirtest.NewStore(nil), distant{weirtest.NewStore(nil), 300 * ms}, Options{Here: three[0].Name, Regions: three, Term: 4 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		shared, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(40), Burst: 40}, s, weir.Named("l"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := shared.Take(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		for s.Stats().Calls == 0 {
			_ = pause.For(t.Context(), 10*ms)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if n := s.Stats().Calls; n != 1 {
			t.Errorf("%d calls of the home, want 1: none after Close", n)
		}
	})
}
