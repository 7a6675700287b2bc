package weir

import (
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// TokenBucket admits work while it has tokens: tokens come in continuously at Rate, up to Burst,
// and a cost of c takes c tokens.
//
// In any interval of length D it admits at most Burst + Rate*D. It is exact: the state is the time
// at which the bucket is full, in clock units and a remainder in units of 1/N, for a rate in
// reduced form of N tokens per P clock units. Nothing is rounded away and nothing adds up. This is
// the generic cell rate algorithm (GCRA) of ITU-T I.371. State: one number, in one machine word
// wherever it fits.
type TokenBucket struct {
	Rate Rate // how fast tokens come in
	// the most tokens that the bucket holds; at least 1, and it must fill within 100 years
	Burst   int64
	Initial int64 // tokens at first call; default: Burst; InitialEmpty: none
}

// InitialEmpty is the Initial of a bucket that starts without tokens.
const InitialEmpty int64 = -1

// Validate returns an error if a parameter is invalid. The error names the field.
func (l TokenBucket) Validate() error {
	const name = "TokenBucket"
	if err := l.Rate.validate(); err != nil {
		return field(name, "Rate", err)
	}
	switch {
	case l.Burst < 1:
		return field(name, "Burst", fmt.Errorf("%d lets nothing pass: it must be at least 1", l.Burst))
	case !rules.Rate(l.Rate).FillsInTime(l.Burst):
		return field(name, "Burst", fmt.Errorf("%d tokens take more than 100 years to come at %v", l.Burst, l.Rate))
	case l.Initial < InitialEmpty || l.Initial > l.Burst:
		return field(name, "Initial", fmt.Errorf("%d is not within 0 and the burst of %d (nor -1, for empty)", l.Initial, l.Burst))
	}
	return nil
}

// parameters is the limit as package rules compiles it.
func (l TokenBucket) parameters() rules.TokenBucket {
	return rules.TokenBucket{Rate: rules.Rate(l.Rate), Burst: l.Burst, Initial: l.Initial}
}

func (l TokenBucket) compile(unit time.Duration) (rules.Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return compiled("TokenBucket")(l.parameters().Compile(unit))
}

func (l TokenBucket) normal() Limit {
	l.Rate = Rate(rules.Rate(l.Rate).Normal())
	if l.Initial == 0 {
		l.Initial = l.Burst
	}
	return l
}
