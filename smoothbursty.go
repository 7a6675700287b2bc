package weir

import (
	"fmt"
	"math"
	"time"

	"github.com/weirflow/weir/internal/u128"
)

// SmoothBursty is Guava's RateLimiter.create(rate), with the knob that is hidden there: permits come at Rate, and while nobody asks, those
// of MaxBurst are stored. A request is never refused for its size: it goes when the one before it has been paid for, and the next one
// waits for what it cost.
//
// In any interval of length D it admits at most Rate*MaxBurst + Rate*D + the largest cost. It starts with nothing stored. In exact
// arithmetic it does what Guava does, step for step, SetLimit included: the time of the next free permit stays, and what is stored is
// scaled. State: as TokenBucket's.
type SmoothBursty struct {
	Rate     Rate          // how fast permits come; may be Unlimited
	MaxBurst time.Duration // for how long they are stored while nobody asks; 0 means 1 s, below 0 none
}

// Validate reports what is wrong with the numbers.
func (l SmoothBursty) Validate() error {
	const name = "SmoothBursty"
	if l.Rate != Unlimited {
		if err := l.Rate.validate(); err != nil {
			return field(name, "Rate", err)
		}
	}
	if l.MaxBurst > maxSpan {
		return field(name, "MaxBurst", fmt.Errorf("%v is longer than 100 years", l.MaxBurst))
	}
	return nil
}

func (l SmoothBursty) compile(unit time.Duration) (rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	l = l.normal().(SmoothBursty)
	store, err := wholeUnits(max(l.MaxBurst, 0), unit)
	if err != nil {
		return nil, field("SmoothBursty", "MaxBurst", err)
	}
	b := &bucket{n: 1, size: math.MaxInt64, tick: unit, horizon: int64(maxSpan / unit)}
	if l.Rate != Unlimited {
		if b, err = newBucket(l.Rate, 0, unit); err != nil {
			return nil, field("SmoothBursty", "Rate", err)
		}
		q, _, fits := u128.Mul(uint64(store), b.n).Div(b.p)
		if b.size = int64(min(q, math.MaxInt64)); !fits {
			b.size = math.MaxInt64
		}
	}
	b.owing = true
	b.passes = u128.Mul(uint64(store), b.n)
	if b.full = b.passes; b.p != 0 {
		b.missing = b.passes // of permits without end, any number is stored
	}
	return b, nil
}

func (l SmoothBursty) normal() Limit {
	switch {
	case l.MaxBurst == 0:
		l.MaxBurst = time.Second
	case l.MaxBurst < 0:
		l.MaxBurst = -1
	}
	l.Rate = normalRate(l.Rate)
	return l
}
