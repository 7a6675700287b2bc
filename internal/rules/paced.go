package rules

import "time"

// Paced is the Params of algorithms with an excess: by how much a request is above the rate, as
// nginx logs it.
type Paced interface {
	Params
	// Excess is by how much a request is above the rate, in thousandths, as nginx counts it: 0 for
	// the first request from idle. level and reset are those of the decision.
	Excess(admitted bool, level int64, reset time.Duration, cost int64) int64
}

// excess is Paced.Excess of a bucket that is empty after reset.
func (r Rate) excess(admitted bool, reset time.Duration, cost int64) int64 {
	// floating point: only logs show it
	used := float64(reset) / float64(r.Per) * float64(r.N) * Thousand
	if !admitted {
		used += float64(cost) * Thousand
	}
	return int64(max(used-Thousand, 0))
}

// Excess implements Paced.
func (l TokenBucket) Excess(admitted bool, _ int64, reset time.Duration, cost int64) int64 {
	return l.Rate.excess(admitted, reset, cost)
}

// Excess implements Paced.
func (l LeakyBucket) Excess(admitted bool, _ int64, reset time.Duration, cost int64) int64 {
	return l.Rate.excess(admitted, reset, cost)
}

// Excess implements Paced: what nginx writes into its log.
func (l NginxBucket) Excess(admitted bool, level int64, _ time.Duration, cost int64) int64 {
	if admitted {
		return max(level-Thousand, 0)
	}
	return level + (cost-1)*Thousand
}
