package lease_test

import (
	"errors"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/weirtest"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// TestLeaseGrowsAndGoesBack: leases of a hot key grow. Unused tokens are back in the store before
// the lifetime is over, without further calls.
func TestLeaseGrowsAndGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := open(t, day, lease.Options{Lifetime: 80 * ms}, ms)
		start := time.Now()
		leased := 0
		for i := range 200 {
			d := c.take(1)
			if !d.Allowed || d.Limit != 1000 || d.By != "l" || d.Remaining > int64(999-i) || d.ResetAfter <= 0 {
				t.Fatalf("%d: %+v", i, d)
			}
			if d.Source == weir.SourceLease {
				leased++
			}
		}
		synctest.Wait()
		if n := r.calls.Load(); n > 20 || leased < 190 {
			t.Errorf("%d calls of the store, %d of 200 decided here", n, leased)
		}
		if c.left(r) >= 800 {
			t.Error("nothing is held")
		}
		rest := 80*ms - time.Since(start)
		<-time.After(rest)
		synctest.Wait()
		if n := c.left(r); n != 800 {
			t.Errorf("%d left of 800 after the lifetime", n)
		}
		if s := c.s.Stats(); s.Leased != 200-uint64(200-leased)+s.Returned || s.Lost != 0 || s.RoundTrips != uint64(r.calls.Load()) {
			t.Errorf("%+v, %d decided here, %d calls", s, leased, r.calls.Load())
		}
		<-time.After(sec) // and the key is removed
		if s := c.s.Stats(); s.Keys != 0 {
			t.Errorf("%+v", s)
		}
		calls := r.calls.Load()
		<-time.After(time.Hour)
		if r.calls.Load() != calls {
			t.Error("the store is asked for nobody")
		}
	})
}

// TestCloseGivesBack: all tokens are returned, and every later call is an error.
func TestCloseGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := open(t, day, lease.Options{}, 5*ms)
		for range 100 {
			c.take(1)
		}
		if err := c.s.Close(); err != nil {
			t.Fatal(err)
		}
		if n := c.left(r); n != 900 {
			t.Errorf("%d left of 900", n)
		}
		if _, _, err := c.do(weir.Charge{Cost: 1}); !errors.Is(err, lease.ErrClosed) {
			t.Error(err)
		}
		if err := c.s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestRefusalsAreRepeatedWithoutRoundTrips: a refusal is the store's, and is repeated without a round trip until
// RetryAfter.
func TestRefusalsAreRepeatedWithoutRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := open(t, weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 5}, lease.Options{}, 0)
		for range 5 {
			if !c.take(1).Allowed {
				t.Fatal("refused while there is something")
			}
		}
		d := c.take(1)
		synctest.Wait()
		calls := r.calls.Load()
		if d.Allowed || d.RetryAfter != 100*ms || d.Remaining != 0 || d.Limit != 5 {
			t.Errorf("%+v", d)
		}
		<-time.After(40 * ms)
		for range 100 {
			if d := c.take(1); d.Allowed || d.RetryAfter != 60*ms || d.Source != weir.SourceLease {
				t.Fatalf("%+v", d)
			}
		}
		if d := c.take(3); d.Allowed || d.RetryAfter != 260*ms {
			t.Errorf("%+v", d)
		}
		if d := c.take(6); d.Allowed || d.RetryAfter != weir.Never {
			t.Errorf("%+v", d)
		}
		if n := r.calls.Load(); n != calls+1 {
			t.Errorf("%d calls for what was known, and one", n-calls)
		}
		<-time.After(60 * ms)
		if d := c.take(1); !d.Allowed {
			t.Errorf("%+v", d)
		}
	})
}

// TestAnEmptyWindowIsTriedAgain: the store is called again now and then about a window that is used up,
// because other nodes may have returned tokens.
func TestAnEmptyWindowIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := open(t, day, lease.Options{Lifetime: 100 * ms}, 0)
		other := weir.Charge{Name: "l", Key: "k", Limit: day, Cost: 1000, Keep: true}
		batch := []weir.Charge{other}
		if err := r.Store.Do(t.Context(), batch, make([]weir.Decision, 1)); err != nil {
			t.Fatal(err)
		}
		if d := c.take(1); d.Allowed || d.RetryAfter < 20*time.Hour {
			t.Errorf("%+v", d)
		}
		batch[0].Op, batch[0].Cost = weir.OpSettle, 990
		if err := r.Store.Do(t.Context(), batch, make([]weir.Decision, 1)); err != nil {
			t.Fatal(err)
		}
		if c.take(1).Allowed {
			t.Error("a refusal was dropped at once")
		}
		<-time.After(100 * ms)
		for range 10 {
			if !c.take(1).Allowed {
				t.Error("what came back is not found")
			}
		}
		if c.take(1).Allowed {
			t.Error("one too many")
		}
		before := r.calls.Load()
		for range 1000 {
			<-time.After(ms)
			c.take(1)
		}
		if n := r.calls.Load() - before; n > 20 {
			t.Errorf("%d calls in 10 lifetimes", n)
		}
	})
}

// TestManyCallersShareARoundTrip: no caller gets another's tokens, and one or a few round trips
// serve all of them.
func TestManyCallersShareARoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := open(t, weir.FixedWindow{Limit: 50, Window: 24 * time.Hour, Align: weir.AlignFirst}, lease.Options{}, 10*ms)
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if c.take(1).Allowed {
					allowed.Add(1)
				}
			})
		}
		wg.Wait()
		if n := r.calls.Load(); allowed.Load() != 50 || n > 6 {
			t.Errorf("%d of 50 allowed in %d calls", allowed.Load(), n)
		}
	})
}

// TestWindowEnds: no token of a window is used in the next one.
func TestWindowEnds(t *testing.T) {
	for _, l := range []weir.Limit{
		weir.FixedWindow{Limit: 100, Window: 100 * ms, Align: weir.AlignFirst},
		weir.SlidingCounter{Limit: 100, Window: 100 * ms},
		weir.SlidingWindow{Limit: 100, Window: 400 * ms, Slots: 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, r := open(t, l, lease.Options{Lifetime: 10 * sec}, 0)
			for range 20 {
				c.take(1)
			}
			synctest.Wait()
			held := 80 - c.left(r)
			if held <= 0 {
				t.Fatalf("%T: nothing is held", l)
			}
			<-time.After(100*ms - time.Duration(time.Now().UnixNano()%int64(100*ms)))
			calls := r.calls.Load()
			if c.take(1); r.calls.Load() == calls {
				t.Errorf("%T: a token of the window before was used", l)
			}
		})
	}
}

// TestChangedLimit: tokens leased under one limit are not used under another, and are returned.
func TestChangedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := open(t, day, lease.Options{}, 0)
		for range 100 {
			c.take(1)
		}
		synctest.Wait()
		c.limit = weir.FixedWindow{Limit: 120, Window: 24 * time.Hour, Align: weir.AlignFirst}
		allowed := 0
		for range 200 {
			if c.take(1).Allowed {
				allowed++
			}
		}
		if allowed != 20 {
			t.Errorf("%d of 20 allowed, %d left", allowed, c.left(r))
		}
	})
}

// TestMaxOutstanding: no more tokens are held, whatever the demand.
func TestMaxOutstanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := open(t, day, lease.Options{MaxOutstanding: 7}, 0)
		used := int64(0)
		for range 300 {
			c.take(1)
			synctest.Wait()
			if used++; 1000-used-c.left(r) > 7 {
				t.Fatalf("%d used, %d left: more than 7 are held", used, c.left(r))
			}
		}
		if d := c.take(20); !d.Allowed || d.Source != weir.SourceStore {
			t.Errorf("%+v", d)
		}
	})
}

// TestLargerCosts: a cost above the leased tokens takes them and requests the rest.
func TestLargerCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := open(t, day, lease.Options{Lifetime: sec}, ms)
		total := int64(0)
		for i := int64(0); total < 1000; i++ {
			cost := min(1+i*7%23, 1000-total)
			if d := c.take(cost); !d.Allowed {
				t.Fatalf("%d after %d: %+v", cost, total, d)
			}
			total += cost
		}
		if d := c.take(1); d.Allowed || d.RetryAfter < 23*time.Hour {
			t.Errorf("%+v", d)
		}
	})
}

var calls = flag.Int("lease.calls", 1000, "how many calls each goroutine of TestEverythingAtOnce makes")

// TestEverythingAtOnce makes all kinds of calls concurrently: no token is used twice, and all
// unused ones come back. The race detector sees it too.
func TestEverythingAtOnce(t *testing.T) {
	store := weirtest.NewStore(nil)
	limit := weir.FixedWindow{Limit: 10 * int64(*calls), Window: 1000 * time.Hour, Align: weir.AlignFirst}
	var stores []*lease.Store
	for range 2 {
		s, err := lease.New(store, lease.Options{Lifetime: 2 * ms, Timeout: time.Minute, MaxKeys: 3})
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	var allowed [5]atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			batch := []weir.Charge{{Name: "l", Limit: limit, Cost: 1}, {Name: "l", Limit: limit, Cost: 3}}
			out := make([]weir.Decision, 2)
			for i := range *calls {
				k := [2]int{(i/100 + g) % 5, i % 5}
				batch[0].Key, batch[1].Key = fmt.Sprint(k[0]), fmt.Sprint(k[1])
				if err := stores[g%2].Do(t.Context(), batch, out); err != nil {
					t.Error(err)
					return
				}
				for j := range batch {
					if out[j].Allowed {
						allowed[k[j]].Add(batch[j].Cost)
					}
				}
			}
		})
	}
	wg.Wait()
	for _, s := range stores {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for k := range allowed {
		out := make([]weir.Decision, 1)
		if err := store.Do(t.Context(), []weir.Charge{{Name: "l", Key: fmt.Sprint(k), Limit: limit, Op: weir.OpPeek}}, out); err != nil {
			t.Fatal(err)
		}
		if n := allowed[k].Load(); n+out[0].Remaining != limit.Limit {
			t.Errorf("key %d: %d allowed and %d left of %d", k, n, out[0].Remaining, limit.Limit)
		}
	}
}
