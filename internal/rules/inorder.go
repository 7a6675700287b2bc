package rules

import "math"

// RetryInOrder returns the clock units until one call that charges several costs, one after another,
// is admitted as a whole: 0 if it is now, Never if no wait helps. It is exact if nobody else calls
// and nobody waits.
//
// Most algorithms need as long for their sum. But SmoothBursty and WarmUp admit a cost of any size and
// make the next one wait for it, and LeakyBucket delays what comes after DelayAfter.
func RetryInOrder(r Rule, state []int64, now int64, costs []int64) int64 {
	s := sequence{rule: r, state: Contacted(r, state, now), costs: costs}
	wait := retryAfter(r, s.state, now, Queue{}, s.sum())
	if wait == Never {
		return Never
	}
	if s.retry(now+wait) == 0 {
		return wait
	}
	_, idle := r.Look(s.state, now, 0)
	if idle > math.MaxInt64-max(now, 0) || s.retry(now+idle) != 0 {
		return Never // not even an untouched limit admits one after the other
	}
	// The wait of a refused cost is too short by what those before it have used up, and never too long:
	// the later they are charged, the longer they block.
	for range mostRetries {
		more := s.retry(now + wait)
		if more == 0 {
			return wait
		}
		if more == Never || more >= idle-wait {
			break
		}
		wait += more
	}
	return idle
}

// mostRetries bounds the search of RetryInOrder. Algorithms need two or three steps, and an All as
// many for each of its parts; beyond the bound, the result is sufficient and may be too long.
const mostRetries = 64

// A sequence is costs that one call charges one after another.
type sequence struct {
	rule    Rule
	state   []int64
	scratch []int64
	costs   []int64
}

// sum adds the costs; a sum that is too large is the largest cost, and a negative cost is the sum.
func (s *sequence) sum() (sum int64) {
	for _, c := range s.costs {
		if c < 0 {
			return c
		}
		sum += min(c, math.MaxInt64-sum)
	}
	return sum
}

// retry charges the costs at a time on a copy of the state, and returns the wait of the first one
// that is refused; 0 if none is.
func (s *sequence) retry(at int64) int64 {
	s.scratch = append(s.scratch[:0], s.state...)
	for _, c := range s.costs {
		var v Verdict
		if s.scratch, v = Take(s.rule, nil, s.scratch, at, Queue{}, c); v.Retry != 0 {
			return v.Retry
		}
	}
	return 0
}
