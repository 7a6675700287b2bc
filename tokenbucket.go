package weir

import (
	"fmt"
	"time"
)

// TokenBucket admits what it has tokens for: tokens come in continuously at Rate, up to Burst, and a cost of c takes c of them.
//
// In any interval of length D it admits at most Burst + Rate*D. A rate in reduced form, N tokens per P clock units, is kept exactly:
// the state is the time at which the bucket is full, in clock units and a remainder of 1/N of one, so that nothing is rounded away
// and nothing adds up (the generic cell rate algorithm of ITU-T I.371). State: one number, in one machine word wherever it fits.
type TokenBucket struct {
	Rate    Rate  // how fast tokens come in
	Burst   int64 // how many it holds; at least 1, and filled within 100 years
	Initial int64 // how many it holds at first contact; 0 means Burst, InitialEmpty means none
}

// InitialEmpty is the Initial of a bucket that starts without a token.
const InitialEmpty int64 = -1

// Validate reports what is wrong with the numbers.
func (l TokenBucket) Validate() error {
	const name = "TokenBucket"
	if err := l.Rate.validate(); err != nil {
		return field(name, "Rate", err)
	}
	switch {
	case l.Burst < 1:
		return field(name, "Burst", fmt.Errorf("%d lets nothing pass: it must be at least 1", l.Burst))
	case !fillsInTime(l.Rate, l.Burst):
		return field(name, "Burst", fmt.Errorf("%d tokens take more than 100 years to come at %v", l.Burst, l.Rate))
	case l.Initial < InitialEmpty || l.Initial > l.Burst:
		return field(name, "Initial", fmt.Errorf("%d is not within 0 and the burst of %d (nor -1, for empty)", l.Initial, l.Burst))
	}
	return nil
}

func (l TokenBucket) compile(unit time.Duration) (rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	b, err := newBucket(l.Rate, l.Burst, unit)
	if err != nil {
		return nil, field("TokenBucket", "Rate", err)
	}
	switch l.Initial {
	case 0:
	case InitialEmpty:
		b.missing = b.full
	default:
		b.missing = b.cost(l.Burst - l.Initial)
	}
	return b, nil
}

func (l TokenBucket) normal() Limit {
	l.Rate = normalRate(l.Rate)
	if l.Initial == 0 {
		l.Initial = l.Burst
	}
	return l
}
