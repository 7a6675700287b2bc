// Package cell is the command CL.THROTTLE of redis-cell as pure functions: what its parameters mean,
// and what it replies, to the digit. It keeps no state.
//
// It is the generic cell rate algorithm (GCRA): a key has a backlog, which drains as time passes. A
// call adds its work, and is limited if the backlog would be longer than max_burst+1 calls take.
package cell

import (
	"errors"
	"math"
	"math/bits"
	"time"
)

// ErrZeroRate is redis-cell's error for a rate of zero.
const ErrZeroRate = Error("Zero rates are not supported")

// An Error is an error in redis-cell's words.
type Error string

// Error returns the words.
func (e Error) Error() string { return string(e) }

// The errors for parameters that redis-cell computes nonsense for.
var (
	errNegative = errors.New("count per period and period must be positive")
	errQuantity = errors.New("quantity must not be negative")
	errTooLong  = errors.New("the period, or max_burst+1 calls at this rate, take more than 36 years")
)

// longest is the longest time that a limit may need to be full again: keyed.MaxBacklog.
const longest = 1 << 60

// A Limit is the parameters of a call.
type Limit struct {
	Calls   int64         // max_burst+1: what a key may take at once
	Each    time.Duration // how much time one call takes at the rate, rounded down to nanoseconds
	Longest time.Duration // the longest backlog
}

// Compile returns the limit of a call. The error is one for the client.
func Compile(maxBurst, count, period int64) (Limit, error) {
	switch {
	case count == 0 || period == 0:
		return Limit{}, ErrZeroRate
	case count < 0 || period < 0:
		return Limit{}, errNegative
	case period > longest/int64(time.Second) || maxBurst == math.MaxInt64:
		return Limit{}, errTooLong
	}
	// in floating point, as redis-cell divides
	each := int64(float64(period*int64(time.Second)) / float64(count))
	if each == 0 {
		return Limit{}, ErrZeroRate
	}
	calls := maxBurst + 1
	if calls < 0 { // nothing is ever admitted, and nothing remains
		return Limit{Calls: calls, Each: time.Duration(each), Longest: -time.Duration(each)}, nil
	}
	hi, lo := bits.Mul64(uint64(calls), uint64(each))
	if hi != 0 || lo > longest {
		return Limit{}, errTooLong
	}
	return Limit{Calls: calls, Each: time.Duration(each), Longest: time.Duration(lo)}, nil
}

// Work returns how much time a quantity of calls takes, at most more than the limit ever admits.
func (l Limit) Work(quantity int64) (time.Duration, error) {
	if quantity < 0 {
		return 0, errQuantity
	}
	if hi, lo := bits.Mul64(uint64(quantity), uint64(l.Each)); hi == 0 && lo <= longest {
		return time.Duration(lo), nil
	}
	return longest + 1, nil
}

// A Reply is what CL.THROTTLE replies.
type Reply struct {
	Limited    bool
	Limit      int64
	Remaining  int64
	RetryAfter int64 // in seconds; -1 if the call is admitted, or never will be
	ResetAfter int64 // in seconds
}

// Reply returns the reply about a call that was admitted or not, and left this backlog.
func (l Limit) Reply(admitted bool, backlog, work time.Duration) Reply {
	r := Reply{Limited: !admitted, Limit: l.Calls, RetryAfter: -1, ResetAfter: seconds(backlog)}
	if !admitted && work <= l.Longest {
		r.RetryAfter = seconds(backlog + work - l.Longest)
	}
	if room := l.Longest - backlog; room > 0 {
		if l.Each < time.Microsecond { // where redis-cell divides by zero
			r.Remaining = int64(room / l.Each)
		} else {
			r.Remaining = int64((room / time.Microsecond) / (l.Each / time.Microsecond))
		}
	}
	return r
}

// Refused returns the reply about a new key without room for it; wait is how long until there is room,
// negative for never.
func (l Limit) Refused(wait time.Duration) Reply {
	r := Reply{Limited: true, Limit: l.Calls, RetryAfter: -1}
	if wait >= 0 {
		r.RetryAfter = max(1, seconds(wait))
	}
	return r
}

// seconds rounds up to seconds as redis-cell does: a part of less than a millisecond is dropped.
func seconds(d time.Duration) int64 {
	whole := int64(d / time.Second)
	if d%time.Second >= time.Millisecond {
		whole++
	}
	return whole
}

// Decided returns the reply for a decision that was made elsewhere, by a token bucket of these
// parameters. A negative retry is never.
func (l Limit) Decided(admitted bool, remaining int64, retry, reset time.Duration) Reply {
	r := Reply{Limited: !admitted, Limit: l.Calls, Remaining: remaining, RetryAfter: -1, ResetAfter: seconds(reset)}
	if !admitted && retry >= 0 {
		r.RetryAfter = seconds(retry)
	}
	return r
}
