package weir_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// TestIntervalBucketBeyondTheBound: with more outstanding reservations than an IntervalBucket can
// keep different bounds for, each gives back at least what the rule of a state alone does, and all
// of them together no more than was charged.
func TestIntervalBucketBeyondTheBound(t *testing.T) {
	raced.Skip(t)
	const burst = 1 << 31
	inexact, given := uint64(0), int64(0)
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 16))
		l, c := onClock(t, weir.IntervalBucket{Burst: burst, Refill: 1, Every: time.Second})
		c.Set(int64(time.Hour))
		type open struct {
			r                    weir.Reservation
			cost                 int64
			lacks, steps, before int64 // just after the charge; before: what had been given back
		}
		var all []open
		start, returned := c.Now(), int64(0)
		charged := int64(1)
		l.Take(charged)
		steps := func() int64 { return (c.Now() - start) / int64(time.Second) }
		lacks := func() int64 { return burst - l.Peek(0).Remaining }
		for range 6000 {
			switch n := rnd.IntN(10); {
			case n < 3 && lacks() > 2: // it is never full
				most := int64(2)
				if seed%3 == 0 {
					most = min(lacks()-1, 1000)
				}
				c.Set(c.Now() + rnd.Int64N(most)*int64(time.Second))
			case n < 8 || len(all) < 1300:
				cost := []int64{1, 1, 1, rnd.Int64N(2000) + 1}[rnd.IntN(4)]
				r, ok := l.Reserve(cost, 0)
				if !ok {
					t.Fatal(r.Decision())
				}
				charged += cost
				all = append(all, open{r, cost, lacks(), steps(), returned})
			default:
				i := rnd.IntN(len(all))
				if seed%2 == 0 {
					i = 0
				}
				o := all[i]
				all = slices.Delete(all, i, i+1)
				least := max(0, min(o.cost, o.lacks-(returned-o.before)-(steps()-o.steps)))
				was := lacks()
				o.r.Cancel()
				charged -= o.cost
				got := was - lacks()
				if got < least {
					t.Fatalf("seed %d: %d of %d are given back, by the state alone %d", seed, got, o.cost, least)
				}
				if want := charged - steps(); lacks() < want {
					t.Fatalf("seed %d: %d are lacking, of what is left %d", seed, lacks(), want)
				}
				returned += got
				given += got
			}
		}
		inexact += l.Inexact()
	}
	if inexact == 0 || given == 0 {
		t.Errorf("%d were beyond the bound, %d were given back", inexact, given)
	}
}

// TestIntervalBucketGivesBackBehindADelay: a reservation that delayed a later one gives back all, once
// the later one has given back all.
func TestIntervalBucketGivesBackBehindADelay(t *testing.T) {
	l, err := weir.New(weir.IntervalBucket{Refill: 1, Every: time.Second, Burst: 1}, weir.WithClock(func() int64 { return 0 }))
	if err != nil {
		t.Fatal(err)
	}
	first, _ := l.Reserve(1, time.Minute)
	second, _ := l.Reserve(1, time.Minute)
	if second.Delay() != time.Second {
		t.Fatalf("delayed by %v", second.Delay())
	}
	second.Cancel()
	first.Cancel()
	if d := l.Peek(1); !d.Allowed || d.Remaining != 1 || d.ResetAfter != 0 {
		t.Errorf("%+v", d)
	}
}
