package weir

import (
	"fmt"
	"sync"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// WarmUp is Guava's RateLimiter.create(rate, warmupPeriod), with the parameter coldFactor, which
// Guava hides. It is for services that have to warm up, like a cache or a connection pool: after
// idle time, permits come at Rate/ColdFactor, and the rate climbs from there to Rate over Period.
// As with SmoothBursty, a request is never refused for its size; the next request waits for what it
// cost.
//
// It starts cold. Waits are exact: a fraction of a nanosecond is carried into the next wait, so the
// long-run rate is Rate, up to 10^9/s. Only the permits that idle time stores are rounded, up to
// the next tick; that delays later requests by at most half a nanosecond for each idle time. Guava
// truncates both parts of each wait to microseconds, so its waits are up to 2 us shorter. State:
// four words, and more for odd rates.
//
// Only the last 64 charges can be given back: of 100 outstanding reservations that are all cancelled,
// the first 36 stay charged.
type WarmUp struct {
	Rate   Rate          // how fast permits come once warm; may be Unlimited
	Period time.Duration // how long the warm-up takes; at least 1ns
	// how much slower it is when cold; at least 1, in steps of 1/65536; default: 3
	ColdFactor float64
}

// Validate returns an error if a parameter is invalid. The error names the field.
func (l WarmUp) Validate() error {
	const name = "WarmUp"
	if l.Rate != Unlimited {
		if err := l.Rate.validate(); err != nil {
			return field(name, "Rate", err)
		}
	}
	switch f := l.ColdFactor; {
	case l.Period < 1 || l.Period > rules.MaxSpan:
		return field(name, "Period", fmt.Errorf("%v is not within 1ns and 100 years (without a time to get warm, there is SmoothBursty)", l.Period))
	case f != 0 && !(f >= 1 && f <= rules.ColdParts):
		return field(name, "ColdFactor", fmt.Errorf("%v is not within 1 and %d", f, rules.ColdParts))
	}
	return nil
}

// parameters is the limit as package rules compiles it.
func (l WarmUp) parameters() rules.WarmUp {
	return rules.WarmUp{Rate: rules.Rate(l.Rate), Period: l.Period, ColdFactor: l.ColdFactor, Scratch: &scratches}
}

func (l WarmUp) compile(unit time.Duration) (rules.Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return compiled("WarmUp")(l.parameters().Compile(unit))
}

func (l WarmUp) normal() Limit {
	n := l.parameters().Normal()
	return WarmUp{Rate: Rate(n.Rate), Period: n.Period, ColdFactor: n.ColdFactor}
}

// scratches pools the memory that WarmUps compute in, so that their decisions do not allocate.
var scratches = sync.Pool{New: func() any { return new(rules.Scratch) }}
