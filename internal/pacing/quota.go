package pacing

import (
	"slices"
	"strings"
	"time"
)

// A quota is what a server said remains of one of its limits.
type quota struct {
	Quota
	ends time.Time // when Remaining is Limit again, as far as is known
	by   uint64    // the request whose response said so
}

// A Quota is what a response says about a limit of the server.
type Quota struct {
	Name      string        // tells the limits of one server apart
	Limit     int64         // how much there is after the reset; 0: unknown
	Remaining int64         // how many more requests may be sent before the reset
	Reset     time.Duration // from now
	Tokens    bool          // Limit and Remaining count tokens, and not requests
	// what was used comes back evenly until the reset, as in a token bucket, and not all at once
	Gradual bool
}

// mostQuotas is how many limits of a server are kept, and longestName how much of their names.
const (
	mostQuotas  = 8
	longestName = 64
)

// left is what remains of a limit now, below 0 if that is unknown, and the time until it is more.
func (q *quota) left(now time.Time) (left int64, more time.Duration) {
	rest := q.ends.Sub(now)
	switch used := q.Limit - q.Remaining; {
	case rest <= -rampTime:
		return -1, 0
	case rest <= 0: // what the server counts now is not known: one request goes first, and its response tells
		since := -rest
		left = 1 << (since / time.Second)
		if q.Limit > 0 && !q.Tokens {
			left = min(left, q.Limit)
		}
		return left, time.Second - since%time.Second
	case q.Gradual && used > 0:
		each := q.Reset / time.Duration(used)
		if each <= 0 {
			return q.Limit, rest
		}
		back := (q.Reset - rest) / each
		return q.Remaining + int64(back), (back+1)*each - (q.Reset - rest)
	}
	return q.Remaining, rest
}

// more is 0 if one more request in flight fits into what remains of a limit, and otherwise the time
// until it may. What is in flight counts as not yet taken: the server may have counted it before or
// after it said what remains. So its response may tell that more fits: then sooner is true.
//
// Of several processes, each has half of its share in flight: what the others take meanwhile is not
// known yet. If that is less than one request, each sends one at a time, and no more of them until the
// reset than its share: see turn.
func (s *state) more(q *quota, tokens, processes int64, now time.Time) (d time.Duration, sooner bool) {
	left, wait := q.left(now)
	switch {
	case left < 0:
		return 0, false
	case left == 0:
		return wait, false
	case !now.Before(q.ends): // left is how many requests of this process may go first
		if s.inFlight < left {
			return 0, false
		}
		return wait, true
	}
	cost, flying, share := int64(1), s.inFlight, left
	if q.Tokens {
		cost, flying = tokens, s.tokens
	}
	if processes > 1 {
		share = left / (2 * processes)
	}
	switch {
	case flying+cost <= share:
		return 0, false
	case s.inFlight > 0:
		return wait, true
	case q.Limit == 0, q.Limit/4 < processes, q.Tokens && left >= q.Limit:
		return 0, false // the limit is small beside the number of processes or the request
	case processes > 1 && !q.Tokens && !q.Gradual:
		return s.turn(q, processes, now), false
	}
	return wait, false
}

// turn is the time until this process may send the next one of the last requests before a reset: of
// all processes together, they go evenly.
func (s *state) turn(q *quota, processes int64, now time.Time) time.Duration {
	rest := q.ends.Sub(now)
	if q.Remaining <= processes {
		return rest // the others may use it
	}
	each := q.Reset / time.Duration(q.Remaining) * time.Duration(processes)
	if wait := s.last.Add(each).Sub(now); wait < rest && each < rest {
		return max(wait, 0)
	}
	return rest
}

// learn keeps what a response said about a limit. Of responses to requests that were in flight
// together, the least remaining counts: they may arrive in another order than the server wrote them.
func (s *state) learn(said Quota, by uint64, now time.Time, longest time.Duration) {
	if said.Remaining < 0 || said.Reset <= 0 {
		return // it ended before it arrived, or has no end
	}
	said.Reset = min(said.Reset, longest)
	if len(said.Name) > longestName {
		said.Name = said.Name[:longestName]
	}
	next := quota{said, now.Add(said.Reset), by}
	for i := range s.quotas {
		if q := &s.quotas[i]; q.Name == said.Name {
			if next.Limit == 0 {
				next.Limit = q.Limit
			}
			if now.Before(q.ends) && by < q.by {
				q.Remaining = min(q.Remaining, said.Remaining)
				return
			}
			if later := next.ends.Sub(q.ends); now.Before(q.ends) && !said.Gradual && later > 0 && later < time.Second {
				next.ends = q.ends // the same window: servers round up to whole seconds
			}
			next.Name = q.Name
			*q = next
			return
		}
	}
	s.quotas = slices.DeleteFunc(s.quotas, func(q quota) bool { return now.Sub(q.ends) > rampTime })
	if len(s.quotas) < mostQuotas {
		next.Name = strings.Clone(next.Name) // it may be a part of a long header
		s.quotas = append(s.quotas, next)
	}
}
