package rules

import "time"

// LeakyBucket is the parameters of the limit of that name.
type LeakyBucket struct {
	Rate       Rate
	Queue      int64
	DelayAfter int64
}

// Compile returns the rule for clock units of length unit. The parameters have been validated.
func (l LeakyBucket) Compile(unit time.Duration) (Rule, error) {
	b, err := newGCRA("leaky_bucket", l.Rate, l.Queue+1, unit)
	if err != nil {
		return nil, err
	}
	b.leaky = true
	b.passes = b.cost(l.DelayAfter)
	return b, nil
}

var leakyBucketKind = Kind{
	Name:       "leaky_bucket",
	GoName:     "LeakyBucket",
	Doc:        "Leaky bucket: requests go on at a constant spacing, and early ones wait in a queue.",
	Returns:    "one request after the other goes on, at the rate",
	Page:       "LeakyBucket",
	Zero:       LeakyBucket{},
	Script:     bucketScript,
	Lists:      true,
	ResetRanks: true,
	Queues:     true,
	Fields: []Field{
		{Name: "rate", Type: RateField, Required: true},
		{Name: "queue", Type: CountField, Default: "0", Doc: "How many requests may wait in the queue; further ones are refused."},
		{Name: "delay_after", Type: CountField, Default: "0", Doc: "How many queued requests pass without delay (nginx's delay)."},
	},
	NoLease:   "tokens that were taken ahead would be used at once, and not at the bucket's spacing",
	NoRegions: "the regions would each release at a spacing of their own, so the sum would have none",
}

// Kind implements Params.
func (l LeakyBucket) Kind() *Kind { return &leakyBucketKind }

// MostPerRequest implements Params.
func (l LeakyBucket) MostPerRequest() (int64, string) {
	return l.Queue + 1, "queue (and one that is served)"
}

// QuotaWindow implements Params: delays change nothing of it.
func (l LeakyBucket) QuotaWindow() time.Duration {
	return TokenBucket{Rate: l.Rate, Burst: l.Queue + 1}.QuotaWindow()
}

// MostWords implements Params.
func (l LeakyBucket) MostWords() int64 { return 8 }

// Resets implements Params.
func (l LeakyBucket) Resets() bool { return true }

// Share implements Shared.
func (l LeakyBucket) Share(n int64) Params {
	l.Rate = l.Rate.dividedBy(n)
	l.Queue = part(l.Queue+1, n) - 1
	l.DelayAfter = min(l.DelayAfter/n, l.Queue)
	return l
}

// UsedUp implements Shared: as if one had gone now, and all that may go without delay.
func (l LeakyBucket) UsedUp(time.Duration) []Use { return usedAll(l.Queue - l.DelayAfter) }

// StoreNumbers implements Stored.
func (l LeakyBucket) StoreNumbers(c Counting) ([]int64, error) {
	return c.bucketNumbers(storedLeakyBucket, l.Rate, l.Queue+1, l.DelayAfter)
}
