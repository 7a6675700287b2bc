package weirkv

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirtest"
)

// TestManyOnce: however many settlements with a Once a key had, a repeat of any changes nothing. Those beyond
// 128 were forgotten, and a repeat was charged again.
func TestManyOnce(t *testing.T) {
	clock, kv := new(weirtest.Clock), new(Memory)
	clock.Set(int64(time.Hour))
	a, b := open(t, kv, Options{Clock: clock.Now}), open(t, kv, Options{Clock: clock.Now})
	limit := weir.FixedWindow{Limit: 10_000, Window: 10_000 * time.Hour}
	const n = 700
	settle := func(i int) weir.Charge {
		return weir.Charge{Name: "limit", Key: "k", Limit: limit, Op: weir.OpSettle, Cost: 1, Once: fmt.Sprint(i), OnceFor: time.Hour}
	}
	used := func() int64 {
		_, d := do(t, a, weir.Charge{Limit: limit, Op: weir.OpPeek})
		return 10_000 - d.Remaining
	}
	for i := range n / 2 {
		do(t, []*Store{a, b}[i%2], settle(i))
	}
	var batch []weir.Charge
	for i := range n {
		batch = append(batch, settle(i))
	}
	for range 2 {
		if err := b.Do(t.Context(), batch, make([]weir.Decision, n)); err != nil || used() != n {
			t.Errorf("%d are charged after %d settlements: %v", used(), n, err)
		}
	}
	for i := range n {
		do(t, a, settle(i))
	}
	if used() != n {
		t.Errorf("%d are charged after repeats, want %d", used(), n)
	}
	clock.Set(int64(3 * time.Hour)) // all have expired, and count anew, although their keys are still there
	for _, i := range []int{0, 1, n - 1} {
		do(t, a, settle(i))
	}
	for i := range n / 2 {
		do(t, a, settle(n+i))
	}
	for _, i := range []int{0, 1, n - 1} {
		do(t, b, settle(i))
	}
	if want := int64(n + 3 + n/2); used() != want {
		t.Errorf("%d are charged after settlements expired, want %d", used(), want)
	}
	if item, _ := kv.Get(t.Context(), a.key("limit", "k")); len(item.Value) > 128*20+200 {
		t.Errorf("the value has %d bytes", len(item.Value))
	}
}

// TestManyOnceLostReplies: settlements of one key by several nodes count once, where each is repeated by
// another node, and replies of writes are lost.
func TestManyOnceLostReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := &lossy{random: seeds.Of("many once")}
		limit := weir.FixedWindow{Limit: 10_000, Window: 10_000 * time.Hour}
		var wg sync.WaitGroup
		for node := range 3 {
			s := open(t, kv, Options{Timeout: time.Hour, Attempts: 1 << 30, fewOnce: true})
			random := seeds.Of(fmt.Sprint("many once", node))
			for range 4 {
				order := random.Perm(60)
				wg.Go(func() {
					for _, i := range order {
						do(t, s, weir.Charge{Limit: limit, Op: weir.OpSettle, Cost: 1, Once: fmt.Sprint(i), OnceFor: time.Hour})
					}
				})
			}
		}
		wg.Wait()
		kv.late.Wait()
		kv.off.Store(true)
		if _, d := do(t, open(t, kv, Options{}), weir.Charge{Limit: limit, Op: weir.OpPeek}); d.Remaining != 10_000-60 {
			t.Errorf("%d are charged, want 60", 10_000-d.Remaining)
		}
	})
}

// TestOnceUnreadable: a key of a settlement that cannot be read counts as one.
func TestOnceUnreadable(t *testing.T) {
	for value, want := range map[string]int64{"": math.MaxInt64, "x\x00y": math.MaxInt64} {
		if got := movedUntil(Item{Value: []byte(value), Revision: 1}); got != want {
			t.Errorf("%q: %d", value, got)
		}
	}
	if movedUntil(Item{}) != 0 {
		t.Error("no key")
	}
}

// TestConformsWithFewOnce compares the store with the reference model where nearly all settlements have keys
// of their own.
func TestConformsWithFewOnce(t *testing.T) {
	raced.Skip(t)
	weirtest.Conform(t, weirtest.Subject{Seed: seeds.Seed(), Walks: 4, Tick: unit, Limits: weirtest.StoredLimits(), Open: func(l weir.Limit, c *weirtest.Clock) (weirtest.Taker, error) {
		o := exact(c.Now)
		o.fewOnce = true
		s, err := New(new(Memory), o)
		if err != nil {
			return nil, err
		}
		return weirtest.Stored(s, l), nil
	}})
}
