package rules

import (
	"time"

	"github.com/weirflow/weir/internal/u128"
)

// Zoned is the Params of algorithms whose limits can share a state: the state says how much was
// used, and not how much may be used. So limits with different capacities evaluate one state, each
// with its own capacity.
type Zoned interface {
	Params
	// InCommon is what all limits of a zone share: the parameters except those that may differ.
	// problem says why a limit with these parameters cannot share its state; empty if it can.
	InCommon() (common Params, problem string)
	// ZoneState is the parameters of the shared state, for the limit with the largest capacity: it
	// admits as much, and delays nothing.
	ZoneState() Params
	// ZoneDelay is how long to delay a request that was admitted and charged when it came. reset is
	// the ResetAfter just after that.
	ZoneDelay(reset time.Duration, cost int64) time.Duration
}

// InCommon implements Zoned.
func (l TokenBucket) InCommon() (common Params, problem string) {
	if l.Initial != 0 && l.Initial != l.Burst {
		problem = "a state that is shared starts full: take initial out"
	}
	return TokenBucket{Rate: l.Rate}, problem
}

// ZoneState implements Zoned.
func (l TokenBucket) ZoneState() Params { return l }

// ZoneDelay implements Zoned.
func (l TokenBucket) ZoneDelay(time.Duration, int64) time.Duration { return 0 }

// InCommon implements Zoned.
func (l LeakyBucket) InCommon() (common Params, problem string) { return LeakyBucket{Rate: l.Rate}, "" }

// ZoneState implements Zoned.
func (l LeakyBucket) ZoneState() Params {
	l.DelayAfter = l.Queue
	return l
}

// ZoneDelay implements Zoned: what was in the queue before the request drains first, but for
// DelayAfter of it.
func (l LeakyBucket) ZoneDelay(reset time.Duration, cost int64) time.Duration {
	if cost < 1 {
		return 0
	}
	free := u128.Mul(uint64(l.DelayAfter)+uint64(cost), uint64(l.Rate.Per))
	passes, _, fits := free.Div(uint64(l.Rate.N))
	if !fits || passes >= uint64(reset) {
		return 0
	}
	return reset - time.Duration(passes)
}

// InCommon implements Zoned.
func (l NginxBucket) InCommon() (common Params, problem string) { return NginxBucket{Rate: l.Rate}, "" }

// ZoneState implements Zoned.
func (l NginxBucket) ZoneState() Params {
	l.DelayAfter = l.Queue
	return l
}

// ZoneDelay implements Zoned. What nginx delays, Delay says, in a zone or not.
func (l NginxBucket) ZoneDelay(time.Duration, int64) time.Duration { return 0 }

// InCommon implements Zoned.
func (l Concurrency) InCommon() (common Params, problem string) {
	if l.Queue > 0 {
		problem = "limits that share a zone have no queue for places: take queue out"
	}
	return Concurrency{MaxHold: l.MaxHold}, problem
}

// ZoneState implements Zoned.
func (l Concurrency) ZoneState() Params { return l }

// ZoneDelay implements Zoned.
func (l Concurrency) ZoneDelay(time.Duration, int64) time.Duration { return 0 }
