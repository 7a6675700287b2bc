package weir

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// Never is the RetryAfter of a refusal that no wait helps against.
const Never time.Duration = -1

// A Decision is the answer to one question. It is a plain value: making and copying one allocates nothing.
type Decision struct {
	Allowed bool
	Source  Source // where the decision was made

	Limit     int64 // the limit's capacity: the most that one call may take
	Remaining int64 // the largest cost that a Take would be given now, after this decision; never negative

	// RetryAfter is 0 where the answer is yes. Otherwise it is the least time after which the same call is admitted if nobody else
	// calls meanwhile: one clock unit sooner, it is refused. It is Never where no time can be named.
	RetryAfter time.Duration

	ResetAfter time.Duration // how long until the state equals an untouched one

	// Level is what an NginxBucket holds after this decision, in thousandths, the charge included; its Excess and Delay read it. It is 0
	// for all other limits, and for those that All joins.
	Level int64

	By string // the name of the limit that decided, as given by Named
}

// A Source says where a decision was made.
type Source uint8

// The sources of decisions.
const (
	SourceLocal Source = iota // in this process, exactly
	SourceStore               // in a shared store, exactly
	SourceLease               // in this process, from tokens that a store had granted
	SourceShare               // in this process, by this node's share, as the store was out of reach
	SourceAllow               // nowhere: the store was out of reach, and the rule says to allow then
	SourceDeny                // nowhere: the store was out of reach, and the rule says to deny then
)

// String returns the source's name.
func (s Source) String() string {
	names := [...]string{"local", "store", "lease", "share", "allow", "deny"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("Source(%d)", uint8(s))
}

var (
	// ErrLimited is found by errors.Is in every error that means "refused".
	ErrLimited = errors.New("weir: limited")

	// ErrCost is found by errors.Is in the error for a cost below zero.
	ErrCost = errors.New("weir: negative cost")
)

// A LimitedError is the error of a Wait that was refused. errors.Is finds ErrLimited in it, and context.DeadlineExceeded too where the
// context's deadline was too near to wait for.
type LimitedError struct {
	Decision Decision // as a refused Take would have returned it
	Deadline bool     // the wait would have ended after the context's deadline
}

// Error says what was refused, by which limit, and when to come back.
func (e *LimitedError) Error() string {
	by := ""
	if e.Decision.By != "" {
		by = fmt.Sprintf(" by %q", e.Decision.By)
	}
	switch {
	case e.Decision.RetryAfter == Never:
		return fmt.Sprintf("weir: limited%s: no wait helps (the capacity is %d)", by, e.Decision.Limit)
	case e.Deadline:
		return fmt.Sprintf("weir: limited%s: the turn comes in %v, after the context's deadline", by, e.Decision.RetryAfter)
	}
	return fmt.Sprintf("weir: limited%s: retry in %v", by, e.Decision.RetryAfter)
}

// Is makes errors.Is find ErrLimited, and context.DeadlineExceeded where that was the reason.
func (e *LimitedError) Is(target error) bool {
	return target == ErrLimited || e.Deadline && target == context.DeadlineExceeded
}

// decision puts a verdict into durations.
func decision(r rules.Rule, v rules.Verdict, by string) Decision {
	return Decision{
		Allowed:    v.Retry == 0,
		Limit:      r.Capacity(),
		Remaining:  v.Remaining,
		RetryAfter: span(v.Retry, r.Unit()),
		ResetAfter: span(v.Reset, r.Unit()),
		Level:      v.Level,
		By:         by,
	}
}

// span turns clock units into a duration; never stays Never, and what does not fit is the longest duration.
func span(units int64, unit time.Duration) time.Duration {
	switch {
	case units == rules.Never:
		return Never
	case units > math.MaxInt64/int64(unit):
		return math.MaxInt64
	}
	return time.Duration(units) * unit
}
