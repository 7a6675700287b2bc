package rules

import (
	"fmt"
	"math"
	"math/big"
	"time"
)

// WarmUp is the parameters of the limit of that name.
type WarmUp struct {
	Rate       Rate
	Period     time.Duration
	ColdFactor float64 // default: 3

	Scratch ScratchPool // memory to compute in; nil: each computation allocates
}

// A ScratchPool provides a *Scratch for each computation, so that none allocates. A *sync.Pool is
// one. The holder owns the pool, as this package shares nothing between goroutines.
type ScratchPool interface {
	Get() any
	Put(any)
}

// ColdParts is the denominator to which a ColdFactor is rounded.
const ColdParts = 1 << 16

// Normal fills in ColdFactor.
func (l WarmUp) Normal() WarmUp {
	if l.ColdFactor == 0 {
		l.ColdFactor = 3
	}
	l.Rate = l.Rate.Normal()
	return l
}

// Compile returns the rule for clock units of length unit. The parameters have been validated.
func (l WarmUp) Compile(unit time.Duration) (Rule, error) {
	period, err := wholeUnits("Period", l.Period, unit)
	if err != nil {
		return nil, err
	}
	w := &warmUpRule{ruleBasics: basicsFor(unit), free: l.Rate == Unlimited, period: period, limit: math.MaxInt64, pool: l.Scratch}
	if w.pool == nil {
		w.pool = noPool{}
	}
	if w.free {
		w.full, w.parts, w.perUnit = new(big.Int), big.NewInt(1), big.NewInt(1)
		return w, nil
	}
	n, p, err := l.Rate.ticks(unit)
	if err != nil {
		return nil, &FieldError{"Rate", err}
	}
	k := int64(math.Round(l.Normal().ColdFactor * ColdParts))
	g := gcd(k, ColdParts)
	w.compute(n, p, period, k/g, ColdParts/g)
	if w.full.BitLen() > 126 {
		return nil, &FieldError{"Rate", fmt.Errorf("%v over %v is too much to count in units of %v", l.Rate, l.Period, unit)}
	}
	return w, nil
}

// noPool allocates.
type noPool struct{}

func (noPool) Get() any { return new(Scratch) }
func (noPool) Put(any)  {}

var warmUpKind = Kind{
	Name:    "warm_up",
	GoName:  "WarmUp",
	Doc:     "Guava's RateLimiter with a warm-up, for upstreams with cold caches: after idling, the rate climbs from rate/cold_factor to rate over period.",
	Returns: "permits come back at the rate, more slowly after idling, and a request waits for what the one before it cost",
	Page:    "WarmUp",
	Zero:    WarmUp{},
	Script:  Script{Name: "warm", Number: 7, Limbs: true},
	Fields: []Field{
		{Name: "rate", Type: RateField, Required: true, Word: "unlimited", Doc: "A count per duration: 100/s, 6/m, 5000/h, 1/d, 20/100ms; or unlimited."},
		{Name: "period", Type: DurationField, Required: true, Doc: "How long the warm-up takes, like 10s."},
		{Name: "cold_factor", Type: NumberField, Default: "3", Doc: "How many times slower it is when cold; at least 1."},
	},
	NoLease:   "a request may take any number of permits ahead of their time, so there is no number that could be granted",
	NoRegions: "each region would warm up by itself",
	NoZone:    "what it admits does not depend on how much was used",
	Lists:     true,
}

// Kind implements Params.
func (l WarmUp) Kind() *Kind { return &warmUpKind }

// MostPerRequest implements Params.
func (l WarmUp) MostPerRequest() (int64, string) { return math.MaxInt64, "" }

// QuotaWindow implements Params.
func (l WarmUp) QuotaWindow() time.Duration { return l.Period }

// MostWords implements Params.
func (l WarmUp) MostWords() int64 { return 8 }

// Resets implements Params.
func (l WarmUp) Resets() bool { return true }

// Share implements Shared.
func (l WarmUp) Share(n int64) Params {
	l.Rate = l.Rate.dividedBy(n)
	return l
}

// UsedUp implements Shared: it begins cold, at its slowest rate.
func (l WarmUp) UsedUp(time.Duration) []Use { return nil }

// StoreNumbers implements Stored: the rate in ticks, the period, and the cold factor as a fraction;
// n is 0 for a rate without end.
func (l WarmUp) StoreNumbers(c Counting) ([]int64, error) {
	if l.Rate == Unlimited {
		return []int64{0, 1, 0, 1, 1}, nil
	}
	n, p, err := c.ticks(l.Rate)
	if err != nil {
		return nil, err
	}
	r, err := l.Compile(c.Unit)
	if err != nil {
		return nil, err
	}
	if permits := r.Capacity(); permits > c.Most {
		return nil, &FieldError{"Period", fmt.Errorf("%v at %v stores %d permits, which is more than %s can count: at most %d", l.Period, l.Rate, permits, c.Store, c.Most)}
	}
	k := int64(math.Round(l.Normal().ColdFactor * ColdParts))
	g := gcd(k, ColdParts)
	return []int64{n, p, c.units(l.Period), k / g, ColdParts / g}, nil
}
