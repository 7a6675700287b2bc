package weir

import (
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/rules"
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
