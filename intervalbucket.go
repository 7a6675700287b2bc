package weir

import (
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// IntervalBucket is a token bucket that refills in whole steps: Refill tokens each Every, up to
// Burst. The first step comes Every after the charge that leaves a full bucket.
//
// In any interval of length D it admits at most Burst + Refill*ceil(D/Every). A TokenBucket of the
// same rate spreads the same tokens evenly. It is the better choice unless you need steps: here,
// clients that are refused together retry together. State: three words.
type IntervalBucket struct {
	Burst  int64 // the most tokens that the bucket holds; at least 1
	Refill int64 // tokens added at each step; at least 1
	// the time between steps; at least 1ns, and the bucket must fill within 100 years
	Every time.Duration
}

// Validate returns an error if a parameter is invalid. The error names the field.
func (l IntervalBucket) Validate() error {
	const name = "IntervalBucket"
	switch {
	case l.Burst < 1:
		return field(name, "Burst", fmt.Errorf("%d lets nothing pass: it must be at least 1", l.Burst))
	case l.Refill < 1:
		return field(name, "Refill", fmt.Errorf("%d never fills: it must be at least 1", l.Refill))
	case l.Every < 1 || l.Every > rules.MaxSpan:
		return field(name, "Every", fmt.Errorf("%v is not within 1ns and 100 years", l.Every))
	case !l.parameters().FillsInTime():
		return field(name, "Burst", fmt.Errorf("%d tokens take more than 100 years to come at %d each %v", l.Burst, l.Refill, l.Every))
	}
	return nil
}

// parameters is the limit as package rules compiles it.
func (l IntervalBucket) parameters() rules.IntervalBucket {
	return rules.IntervalBucket(l)
}

func (l IntervalBucket) compile(unit time.Duration) (rules.Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return compiled("IntervalBucket")(l.parameters().Compile(unit))
}

func (l IntervalBucket) normal() Limit { return l }
