package rules

import "time"

// Paced is the Params of algorithms whose requests are above a rate by some amount, which logs name in nginx's words.
type Paced interface {
	Params
	// Excess is by how much a request is above the rate, in thousandths, as nginx counts it: the first from idle by nothing. level and reset
	// are those of the decision.
	Excess(admitted bool, level int64, reset time.Duration, cost int64) int64
}

// excess is Paced.Excess of a bucket, of which all that was used has drained after reset.
func (r Rate) excess(admitted bool, reset time.Duration, cost int64) int64 {
	used := float64(reset) / float64(r.Per) * float64(r.N) * Thousand // for logs alone
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
