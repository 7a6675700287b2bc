package rules

import "time"

// TokenBucket is the parameters of the limit of that name.
type TokenBucket struct {
	Rate    Rate
	Burst   int64
	Initial int64 // 0: Burst; InitialEmpty: none
}

// InitialEmpty is the Initial of a bucket that starts without a token.
const InitialEmpty int64 = -1

// Compile returns the rule for clock units of length unit. The parameters have been validated.
func (l TokenBucket) Compile(unit time.Duration) (Rule, error) {
	b, err := newGCRA("token_bucket", l.Rate, l.Burst, unit)
	if err != nil {
		return nil, err
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
