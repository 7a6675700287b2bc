package weir

import (
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// SmoothBursty is Guava's RateLimiter.create(rate), with the parameter maxBurstSeconds, which Guava
// hides. Permits come at Rate. Idle time stores permits, up to those of MaxBurst. A request is
// never refused for its size: it goes once the previous request has been paid for, and the next
// request waits for what this one cost.
//
// In any interval of length D it admits at most Rate*MaxBurst + Rate*D + the largest cost. It
// starts with nothing stored. It does what Guava does, step for step, in exact arithmetic. That
// includes SetLimit: the time of the next free permit stays, and stored permits are scaled. State:
// as TokenBucket's.
type SmoothBursty struct {
	Rate     Rate          // how fast permits come; may be Unlimited
	MaxBurst time.Duration // how much idle time stores permits; default: 1s; below 0: none
}

// Validate returns an error if a parameter is invalid. The error names the field.
func (l SmoothBursty) Validate() error {
	const name = "SmoothBursty"
	if l.Rate != Unlimited {
		if err := l.Rate.validate(); err != nil {
			return field(name, "Rate", err)
		}
	}
	if l.MaxBurst > rules.MaxSpan {
		return field(name, "MaxBurst", fmt.Errorf("%v is longer than 100 years", l.MaxBurst))
	}
	return nil
}

// parameters is the limit as package rules compiles it.
func (l SmoothBursty) parameters() rules.SmoothBursty {
	return rules.SmoothBursty{Rate: rules.Rate(l.Rate), MaxBurst: l.MaxBurst}
}

func (l SmoothBursty) compile(unit time.Duration) (rules.Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return compiled("SmoothBursty")(l.parameters().Compile(unit))
}

func (l SmoothBursty) normal() Limit {
	n := l.parameters().Normal()
	return SmoothBursty{Rate: Rate(n.Rate), MaxBurst: n.MaxBurst}
}
