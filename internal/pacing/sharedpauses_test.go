package pacing_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pacing"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirtest"
)

// TestSharedPauses: the longest pause of all processes holds for all, also if several set it at once, and
// each call of the store takes another time. A process once took a pause for long enough that another had
// extended by too much and was about to shorten.
func TestSharedPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := weirtest.NewStore(func() int64 { return time.Now().UnixNano() })
		defer store.Close()
		rng := seeds.Of(t.Name())
		processes := make([]*pacing.SharedPauses, 6)
		for i := range processes {
			late := &late{Store: store, rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
			var err error
			if processes[i], err = pacing.NewSharedPauses(late, "pauses"); err != nil {
				t.Fatal(err)
			}
		}
		if d := processes[0].Left(t.Context(), "a"); d != 0 {
			t.Fatalf("%v at the start", d)
		}
		var ends time.Time // of the longest pause so far
		for range 500 {
			var all sync.WaitGroup
			for _, p := range processes {
				d := time.Duration(rng.IntN(5000)+1) * time.Millisecond
				if end := time.Now().Add(d); end.After(ends) {
					ends = end
				}
				all.Go(func() {
					if err := p.Set(t.Context(), "a", d); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			elapse(pacing.Refresh)
			left := processes[rng.IntN(len(processes))].Left(t.Context(), "a")
			if least := time.Until(ends); left < least || left > max(least, 0)+20*mostLate {
				t.Fatalf("the pause is %v, the longest of all is %v", left, least)
			}
			elapse(time.Duration(rng.Int64N(int64(10 * time.Second))))
		}
		if d := processes[0].Left(t.Context(), "b"); d != 0 {
			t.Errorf("another key is paused for %v", d)
		}
	})
}

// mostLate is how long a call of a late store takes at most, each way.
const mostLate = 2 * time.Millisecond

// late is a store to which each call takes a while, and back.
type late struct {
	weir.Store
	rng *rand.Rand
}

func (l *late) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	elapse(time.Duration(l.rng.Int64N(int64(mostLate))))
	defer elapse(time.Duration(l.rng.Int64N(int64(mostLate))))
	return l.Store.Do(ctx, batch, out)
}

// TestSharedPausesMeet: if another process extends a pause between the two calls that extend it, the
// later end counts, and not the sum.
func TestSharedPausesMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := weirtest.NewStore(func() int64 { return time.Now().UnixNano() })
		defer store.Close()
		between := &meeting{Store: store}
		one, _ := pacing.NewSharedPauses(between, "pauses")
		other, _ := pacing.NewSharedPauses(store, "pauses")
		if err := other.Set(t.Context(), "a", 5*time.Second); err != nil {
			t.Fatal(err)
		}
		between.first = func() {
			if err := other.Set(t.Context(), "a", 20*time.Second); err != nil {
				t.Error(err)
			}
		}
		if err := one.Set(t.Context(), "a", 30*time.Second); err != nil {
			t.Fatal(err)
		}
		if d := other.Left(t.Context(), "a"); between.first != nil || d < 30*time.Second || d > 30*time.Second+time.Millisecond {
			t.Errorf("the pause is %v, want 30s", d)
		}
	})
}

// meeting is a store that calls a function before the first charge ahead.
type meeting struct {
	weir.Store
	first func()
}

func (m *meeting) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if f := m.first; f != nil && batch[0].Op == weir.OpReserve {
		m.first = nil
		f()
	}
	return m.Store.Do(ctx, batch, out)
}

// TestSharedPausesWithoutStore: a store that fails is not asked again for a second, and delays no
// request by more than its timeout.
func TestSharedPausesWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hanging{}
		p, err := pacing.NewSharedPauses(store, "pauses")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range 100 {
			if d := p.Left(t.Context(), strconv.Itoa(store.calls)); d != 0 {
				t.Errorf("%v", d)
			}
		}
		if store.calls != 1 || time.Since(began) > 100*time.Millisecond {
			t.Errorf("%d calls, %v", store.calls, time.Since(began))
		}
		if err := p.Set(t.Context(), "a", time.Second); err == nil {
			t.Error("the failure of the store is not reported")
		}
	})
}

// hanging is a store that does not respond.
type hanging struct{ calls int }

func (h *hanging) Do(ctx context.Context, _ []weir.Charge, _ []weir.Decision) error {
	h.calls++
	<-ctx.Done()
	return ctx.Err()
}

func (h *hanging) Close() error { return nil }
