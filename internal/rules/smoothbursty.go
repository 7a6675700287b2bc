package rules

import (
	"math"
	"time"

	"github.com/weirflow/weir/internal/u128"
)

// SmoothBursty is the parameters of the limit of that name.
type SmoothBursty struct {
	Rate     Rate
	MaxBurst time.Duration // default: 1 s; below 0: none
}

// Normal fills in MaxBurst.
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
		b.missing = b.passes // at an unlimited rate, idle time stores any number of permits
	}
	return b, nil
}

var smoothBurstyKind = Kind{
	Name:       "smooth_bursty",
	GoName:     "SmoothBursty",
	Doc:        "Guava's RateLimiter: no request is refused for its size; the next one waits for what it cost.",
	Returns:    "permits come back at the rate, and a request waits for what the one before it cost",
	Page:       "SmoothBursty",
	Zero:       SmoothBursty{},
	Script:     bucketScript,
	Lists:      true,
	ResetRanks: true,
	Fields: []Field{
		{Name: "rate", Type: RateField, Required: true, Word: "unlimited", Doc: "A count per duration: 100/s, 6/m, 5000/h, 1/d, 20/100ms; or unlimited."},
		{Name: "max_burst", Type: DurationField, Word: "none", WordIs: -1, Default: "1s", Doc: "How much idle time is stored as permits: a duration, or none."},
	},
	NoLease:   "a request may take any number of permits ahead of their time, so there is no number that could be granted",
	NoRegions: "a request may take any number of permits ahead of their time, at the rate of a part that has moved since",
	NoZone:    "what it admits does not depend on how much was used",
}

// Kind implements Params.
func (l SmoothBursty) Kind() *Kind { return &smoothBurstyKind }

// MostPerRequest implements Params.
func (l SmoothBursty) MostPerRequest() (int64, string) { return math.MaxInt64, "" }

// QuotaWindow implements Params.
func (l SmoothBursty) QuotaWindow() time.Duration { return max(l.Normal().MaxBurst, 0) }

// MostWords implements Params.
func (l SmoothBursty) MostWords() int64 { return 8 }

// Resets implements Params: a new state has nothing stored, but a used one has after a while.
func (l SmoothBursty) Resets() bool { return l.MaxBurst < 0 || l.Rate == Unlimited }

// Share implements Shared.
func (l SmoothBursty) Share(n int64) Params {
	l.Rate = l.Rate.dividedBy(n)
	return l
}

// UsedUp implements Shared.
func (l SmoothBursty) UsedUp(time.Duration) []Use {
	if l.Rate == Unlimited {
		return nil
	}
	return usedAll(0)
}

// StoreNumbers implements Stored.
func (l SmoothBursty) StoreNumbers(c Counting) ([]int64, error) {
	store := c.units(l.QuotaWindow())
	if l.Rate == Unlimited {
		return []int64{storedSmoothBursty, 1, 0, c.Most, store}, nil
	}
	r, err := l.Compile(c.Unit)
	if err != nil {
		return nil, err
	}
	return c.bucketNumbers(storedSmoothBursty, l.Rate, r.Capacity(), store)
}
