package weir_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

func TestTakeAtMost(t *testing.T) {
	l, c := onClock(t, weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 10})
	for _, step := range []struct {
		at            time.Duration
		n, want, left int64
		retry         time.Duration
	}{
		{0, 0, 0, 10, 0},
		{0, -1, 0, 10, weir.Never},
		{0, math.MinInt64, 0, 10, weir.Never},
		{0, 4, 4, 6, 0},
		{0, 100, 6, 0, 0},
		{0, 100, 0, 0, 100 * ms},
		{0, 1, 0, 0, 100 * ms},
		{250 * ms, math.MaxInt64, 2, 0, 0},
		{250 * ms, 5, 0, 0, 50 * ms},
		{sec, 5, 5, 3, 0},
	} {
		c.Set(int64(step.at))
		n, d := l.TakeAtMost(step.n)
		if n != step.want || d.Remaining != step.left || d.RetryAfter != step.retry || d.Allowed != (step.want > 0 || step.n == 0) {
			t.Errorf("%d at %v: %d, %+v", step.n, step.at, n, d)
		}
	}
	p, _ := l.Join(10, -1)
	if n, d := l.TakeAtMost(1); n != 0 || d.Allowed {
		t.Errorf("while another waits: %d, %+v", n, d)
	}
	p.Leave()
	if n, d := l.TakeAtMost(5); n != 3 || !d.Allowed {
		t.Errorf("%d, %+v", n, d)
	}
	if n := testing.AllocsPerRun(100, func() { l.TakeAtMost(5) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestTakeAtMostOfDebt takes what is stored, or one if that is admitted.
func TestTakeAtMostOfDebt(t *testing.T) {
	l, c := onClock(t, weir.SmoothBursty{Rate: weir.PerSecond(2), MaxBurst: 5 * sec})
	if n, d := l.TakeAtMost(5); n != 1 || !d.Allowed {
		t.Errorf("nothing is stored yet: %d, %+v", n, d)
	}
	if n, d := l.TakeAtMost(5); n != 0 || d.RetryAfter != 500*ms {
		t.Errorf("%d, %+v", n, d)
	}
	c.Set(int64(3 * sec))
	if n, d := l.TakeAtMost(100); n != 5 || d.Remaining != 0 {
		t.Errorf("%d, %+v", n, d)
	}
}

// TestTakeAtMostIsTheMost: for every limit, the cost that it took is admitted, and one more would
// not have been.
func TestTakeAtMostIsTheMost(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		limit := anyPart(r)
		if r.IntN(3) == 0 {
			limit = weir.All(limit, anyPart(r))
		}
		owes := slices.ContainsFunc(weir.Parts(limit), func(l weir.Limit) bool {
			switch l.(type) {
			case weir.SmoothBursty, weir.WarmUp:
				return true
			}
			return false
		})
		l, c := onClock(t, limit)
		c.Set(int64(time.Hour))
		for range 50 {
			c.Set(c.Now() + r.Int64N(int64(sec)))
			n := 1 + r.Int64N(12)
			d := l.Peek(1)
			want := min(n, d.Remaining)
			if d.Allowed {
				want = max(want, 1)
			}
			more := l.Peek(want + 1)
			got, _ := l.TakeAtMost(n)
			if got != want || !owes && want < n && more.Allowed {
				t.Fatalf("seed %d: %+v: %d of %d, want %d", seed, limit, got, n, want)
			}
		}
	}
}

func TestTakeAtMostOnAllCores(t *testing.T) {
	const burst = 100_000
	l, _ := onClock(t, weir.TokenBucket{Rate: weir.PerHour(1), Burst: burst})
	var taken atomic.Int64
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for {
				n, d := l.TakeAtMost(int64(7 + g))
				if taken.Add(n); !d.Allowed {
					return
				}
				if l.Allow() {
					taken.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if taken.Load() != burst {
		t.Errorf("%d of %d", taken.Load(), burst)
	}
}
