package weir

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// Never is the RetryAfter of a refusal that no wait can change.
const Never time.Duration = -1

// A Decision is the result of evaluating a limit. It is a plain value: making and copying one
// allocates nothing.
type Decision struct {
	Allowed bool
	Source  Source // where the decision was made

	Limit int64 // the capacity: the most that one call may take
	// the largest cost that a Take would get now, after this decision; never negative
	Remaining int64

	// RetryAfter is 0 if the call was allowed. Otherwise it is the least time after which the same
	// call is admitted, if nobody else calls meanwhile: one clock unit sooner, it is refused. It is
	// Never if no time can be named.
	RetryAfter time.Duration

	ResetAfter time.Duration // how long until the limit is idle: its state equals an unused one

	// Level is the level of an NginxBucket after this decision, in thousandths, including the
	// charge; its Excess and Delay read it. It is 0 for all other limits, and for limits that All
	// joins.
	Level int64

	By string // the name of the limit that decided, as given by Named
}

// A Source says where a decision was made.
type Source uint8

// The sources of decisions.
const (
	SourceLocal Source = iota // in this process, exactly
	SourceStore               // in a shared store, exactly
	SourceLease               // in this process, from a lease: tokens taken ahead from a store
	SourceShare               // in this process, by this node's share, as the store was unavailable
	// without counting: the store was unavailable, and its fallback is to allow
	SourceAllow
	// without counting: the store was unavailable, and its fallback is to refuse
	SourceDeny
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
	// ErrLimited means "refused": errors.Is finds it in every error of a refusal.
	ErrLimited = errors.New("weir: limited")

	// ErrCost means that a cost is below 0: errors.Is finds it in every such error.
	ErrCost = errors.New("weir: negative cost")
)

// A LimitedError is the error of a Wait that was refused. errors.Is finds ErrLimited in it. It also
// finds context.DeadlineExceeded, if the turn would have come after the context's deadline.
type LimitedError struct {
	Decision Decision // as a refused Take would have returned it
	Deadline bool     // the wait would have ended after the context's deadline
}

// Error says which limit refused, and when to retry.
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

// Is makes errors.Is find ErrLimited, and context.DeadlineExceeded if that was the reason.
func (e *LimitedError) Is(target error) bool {
	return target == ErrLimited || e.Deadline && target == context.DeadlineExceeded
}

// decision converts a verdict in clock units to a Decision in durations.
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

// span converts clock units to a duration. Never stays Never, and an overflow is the longest
// duration.
func span(units int64, unit time.Duration) time.Duration {
	switch {
	case units == rules.Never:
		return Never
	case units > math.MaxInt64/int64(unit):
		return math.MaxInt64
	}
	return time.Duration(units) * unit
}
