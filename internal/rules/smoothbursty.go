package rules

import (
	"math"
	"time"

	"github.com/weirflow/weir/internal/u128"
)

// SmoothBursty is the parameters of the limit of that name.
type SmoothBursty struct {
	Rate     Rate
	MaxBurst time.Duration // 0: 1 s; below 0: none
}

// Normal has the MaxBurst that is in force.
func (l SmoothBursty) Normal() SmoothBursty {
	switch {
	case l.MaxBurst == 0:
		l.MaxBurst = time.Second
	case l.MaxBurst < 0:
		l.MaxBurst = -1
	}
	l.Rate = l.Rate.Normal()
	return l
}

// Compile returns the rule for clock units of length unit. The parameters have been validated.
func (l SmoothBursty) Compile(unit time.Duration) (Rule, error) {
	store, err := wholeUnits("MaxBurst", max(l.Normal().MaxBurst, 0), unit)
	if err != nil {
		return nil, err
	}
	b := &gcraRule{ruleBasics: basicsFor(unit), kind: "smooth_bursty", n: 1, size: math.MaxInt64}
	if l.Rate != Unlimited {
		if b, err = newGCRA(b.kind, l.Rate, 0, unit); err != nil {
			return nil, err
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
