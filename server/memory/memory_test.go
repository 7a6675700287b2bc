package memory

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirtest"
)

// TestConforms compares the store with the reference model, reservations and changes of the limit
// included.
func TestConforms(t *testing.T) {
	raced.Skip(t)
	weirtest.Conform(t, weirtest.Subject{Seed: seeds.Seed(), Walks: 20, Open: func(l weir.Limit, c *weirtest.Clock) (weirtest.Taker, error) {
		return weirtest.Stored(New(Options{Clock: c.Now}), l), nil
	}})
}

// TestUsage: a peek says what is used, also beyond the limit.
func TestUsage(t *testing.T) { weirtest.Usage(t, New(Options{}), "usage") }

// one carries out a charge.
func one(t *testing.T, s *Store, c weir.Charge) (weir.Charge, weir.Decision) {
	t.Helper()
	if c.Name == "" {
		c.Name = "limit"
	}
	batch, out := []weir.Charge{c}, make([]weir.Decision, 1)
	if err := s.Do(t.Context(), batch, out); err != nil {
		t.Fatalf("%v: %v", c.Op, err)
	}
	return batch[0], out[0]
}

func perHour(burst int64) weir.Limit {
	return weir.TokenBucket{Rate: weir.PerHour(1), Burst: burst}
}

// TestGroups: charges of a group are made together or not at all, also where callers use the same keys in
// another order at the same time, and where a key is there twice.
func TestGroups(t *testing.T) {
	s := New(Options{})
	group := func(random *rand.Rand, limits ...string) (ok bool) {
		var batch []weir.Charge
		for _, name := range limits {
			batch = append(batch, weir.Charge{Name: name, Key: "k", Limit: perHour(100), Cost: 1 + random.Int64N(3), Group: 7})
		}
		out := make([]weir.Decision, len(batch))
		if err := s.Do(t.Context(), batch, out); err != nil {
			t.Error(err)
		}
		all := 0
		for _, d := range out {
			if d.Allowed {
				all++
			}
		}
		return all == len(batch)
	}
	var wg sync.WaitGroup
	var admitted atomic.Int64
	for i := range 4 {
		wg.Go(func() {
			random := seeds.Of(fmt.Sprint("groups", i))
			for range 100 {
				order := []string{"a", "b", "c", "a"}
				random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
				if group(random, order...) {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	left := map[string]int64{}
	for _, name := range []string{"a", "b", "c"} {
		_, d := one(t, s, weir.Charge{Name: name, Key: "k", Limit: perHour(100), Op: weir.OpPeek})
		left[name] = 100 - d.Remaining
	}
	if n := admitted.Load(); n == 0 || left["a"] < 2*n || left["a"] > 6*n || left["b"] < n || left["b"] > 3*n || left["c"] < n || left["c"] > 3*n {
		t.Errorf("%d groups were admitted, used %v", n, left)
	}
	batch := []weir.Charge{{Name: "x", Key: "k", Limit: perHour(5), Cost: 4, Group: 1}, {Name: "y", Key: "k", Limit: perHour(5), Cost: 6, Group: 1}, {Name: "x", Key: "k", Limit: perHour(5), Cost: 1}}
	out := make([]weir.Decision, 3)
	if err := s.Do(t.Context(), batch, out); err != nil || !out[0].Allowed || out[0].Remaining != 5 || out[1].Allowed || !out[2].Allowed || out[2].Remaining != 4 {
		t.Errorf("a refused group is charged: %+v %v", out, err)
	}
}

// TestTwoVersions: while callers have two versions of a limit, each decides by its own, and what one
// admits is used in the other one. Together they admit no more than the larger version and what fits
// into the other.
func TestTwoVersions(t *testing.T) {
	clock := new(weirtest.Clock)
	s := New(Options{Clock: clock.Now})
	strict, loose := perHour(5), weir.SlidingLog{Limit: 20, Window: time.Hour}
	take := func(l weir.Limit, cost int64) weir.Decision {
		_, d := one(t, s, weir.Charge{Key: "k", Limit: l, Cost: cost})
		return d
	}
	take(strict, 3)
	if d := take(loose, 10); !d.Allowed || d.Remaining != 7 {
		t.Errorf("a new version does not begin with what was used: %+v", d)
	}
	if d := take(strict, 1); d.Allowed {
		t.Errorf("what the other version admitted is not used: %+v", d)
	}
	if d := take(loose, 1); !d.Allowed || d.Remaining != 6 {
		t.Errorf("a refused call of the other version is charged: %+v", d)
	}
	for i := range 10 { // in turn: nothing is lost and nothing is created
		take(strict, 1)
		if d := take(loose, 0); d.Remaining != 6 {
			t.Fatalf("%d: %+v", i, d)
		}
	}
	third := weir.FixedWindow{Limit: 100, Window: time.Hour}
	if d := take(third, 2); d.Allowed {
		t.Errorf("a third version admits what the strict one refuses: %+v", d)
	}
	c, _ := one(t, s, weir.Charge{Key: "k", Limit: loose, Cost: 4, Keep: true, Estimate: true})
	c.Op, c.Cost = weir.OpSettle, 1
	if _, d := one(t, s, c); d.Remaining != 5 {
		t.Errorf("settled: %+v", d)
	}
	clock.Set(int64(30 * time.Hour))
	if d := take(strict, 5); !d.Allowed {
		t.Errorf("all came back, and yet: %+v", d)
	}
	if n := len(s.shards[s.shardOf(&c)].keys[id{"limit", "k"}].versions); n != 1 {
		t.Errorf("%d versions are kept after one has ended", n)
	}
}

// TestBounds: there are never more keys and receipts than the options say. What is idle goes first; with
// Refuse, nothing else does.
func TestBounds(t *testing.T) {
	clock := new(weirtest.Clock)
	for _, refuse := range []bool{false, true} {
		clock.Set(0)
		s := New(Options{MaxKeys: 50, MaxReceipts: 10, Refuse: refuse, Clock: clock.Now})
		var failed int
		take := func(i int) {
			batch := []weir.Charge{{Name: "limit", Key: fmt.Sprint(i), Limit: perHour(5), Cost: 1, Keep: true, Estimate: true}}
			if err := s.Do(t.Context(), batch, make([]weir.Decision, 1)); err != nil {
				if !errors.Is(err, ErrFull) || !errors.Is(err, weir.ErrCharge) {
					t.Fatal(err)
				}
				failed++
			}
		}
		for i := range 200 {
			take(i)
		}
		if want := map[bool]int{true: 150}[refuse]; s.Len() != 50 || failed != want || len(s.receipts.byID) != 10 {
			t.Errorf("refuse %v: %d keys, %d failed, %d receipts", refuse, s.Len(), failed, len(s.receipts.byID))
		}
		evicted := s.Evicted()
		clock.Set(int64(2 * time.Hour))
		if take(1000); s.Len() > 50 || s.Evicted() != evicted || failed > 150 {
			t.Errorf("refuse %v: %d keys, %d evicted, %d failed: an idle key does not make room", refuse, s.Len(), s.Evicted(), failed)
		}
	}
}

// TestReceipts: a receipt is settled once, by its own key alone; one that was evicted stays charged.
func TestReceipts(t *testing.T) {
	s := New(Options{})
	c, _ := one(t, s, weir.Charge{Key: "k", Limit: perHour(5), Cost: 4, Op: weir.OpReserve, Within: -1, Estimate: true})
	settle := func(key string) error {
		return s.Do(t.Context(), []weir.Charge{{Name: "limit", Key: key, Limit: perHour(5), Op: weir.OpSettle, Receipt: c.Receipt}}, make([]weir.Decision, 1))
	}
	if err := settle("other"); !errors.Is(err, ErrReceipt) {
		t.Errorf("settled with another key: %v", err)
	}
	if err := settle("k"); err != nil {
		t.Error(err)
	}
	if err := settle("k"); !errors.Is(err, ErrReceipt) || !errors.Is(err, weir.ErrCharge) {
		t.Errorf("settled twice: %v", err)
	}
	if _, d := one(t, s, weir.Charge{Key: "k", Limit: perHour(5), Op: weir.OpPeek}); d.Remaining != 5 {
		t.Errorf("%+v", d)
	}
	if err := s.Do(t.Context(), []weir.Charge{{Name: "limit", Key: "k", Limit: weir.Concurrency{Limit: 1}, Cost: 1}}, make([]weir.Decision, 1)); !errors.Is(err, weir.ErrCharge) {
		t.Errorf("a concurrency: %v", err)
	}
}
