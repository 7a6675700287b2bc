package rules

import (
	"math"
	"time"
)

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

var tokenBucketKind = Kind{
	Name:       "token_bucket",
	GoName:     "TokenBucket",
	Doc:        "Token bucket (GCRA): refills continuously at rate, and up to burst requests may come at once.",
	Returns:    "tokens come back one by one, at the rate",
	Page:       "TokenBucket",
	Zero:       TokenBucket{},
	Script:     bucketScript,
	Lists:      true,
	ResetRanks: true,
	Fields: []Field{
		{Name: "rate", Type: RateField, Required: true},
		{Name: "burst", Type: CountField, Required: true, Doc: "How many requests may come at once (the bucket's capacity); at least 1."},
		{Name: "initial", Type: CountField, Word: "empty", WordIs: InitialEmpty, Default: "burst",
			Doc: "How many tokens a new key starts with: a number, or empty."},
	},
}

// Kind implements Params.
func (l TokenBucket) Kind() *Kind { return &tokenBucketKind }

// MostPerRequest implements Params.
func (l TokenBucket) MostPerRequest() (int64, string) { return l.Burst, "burst" }

// QuotaWindow implements Params.
func (l TokenBucket) QuotaWindow() time.Duration {
	l.Initial = 0
	return filling(l)
}

// MostWords implements Params.
func (l TokenBucket) MostWords() int64 { return 8 }

// Resets implements Params: a bucket that starts with less than Burst is full after a while, and
// never again as it started.
func (l TokenBucket) Resets() bool { return l.Initial == 0 || l.Initial == l.Burst }

// Share implements Shared.
func (l TokenBucket) Share(n int64) Params {
	l.Rate, l.Burst = l.Rate.dividedBy(n), part(l.Burst, n)
	if l.Initial > 0 {
		if l.Initial /= n; l.Initial == 0 {
			l.Initial = InitialEmpty
		}
	}
	return l
}

// Meter implements Metered.
func (l TokenBucket) Meter() (rate Rate, size int64) { return l.Rate, l.Burst }

// UsedUp implements Shared.
func (l TokenBucket) UsedUp(time.Duration) []Use { return usedAll(0) }

// LeaseEnds implements Leased.
func (l TokenBucket) LeaseEnds(_, _ time.Duration) (time.Duration, bool) { return 0, false }

// LongestLease implements Leased.
func (l TokenBucket) LongestLease() time.Duration { return math.MaxInt64 }

// LeasePause implements Leased.
func (l TokenBucket) LeasePause(lifetime time.Duration) time.Duration {
	return min(lifetime/32, l.Rate.timeFor(l.Burst)/4)
}

// MoreWait implements Leased.
func (l TokenBucket) MoreWait(more int64) (time.Duration, bool) { return l.Rate.timeFor(more), true }

// LeaseResets implements Leased.
func (l TokenBucket) LeaseResets() bool { return false }

// StoreNumbers implements Stored.
func (l TokenBucket) StoreNumbers(c Counting) ([]int64, error) {
	missing := int64(0)
	switch {
	case l.Initial == InitialEmpty:
		missing = l.Burst
	case l.Initial != 0:
		missing = l.Burst - l.Initial
	}
	return c.bucketNumbers(storedTokenBucket, l.Rate, l.Burst, missing)
}
