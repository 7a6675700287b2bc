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
