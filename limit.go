package weir

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// A Limit is an algorithm with its parameters: plain, comparable data, without state. Only the
// types of this package implement it: TokenBucket, LeakyBucket, IntervalBucket, FixedWindow,
// SlidingWindow, SlidingCounter, SlidingLog, SmoothBursty, WarmUp, NginxBucket, Concurrency, and
// All of several.
type Limit interface {
	// Validate returns an error if a parameter is invalid. The error names the field and says what
	// to write instead.
	Validate() error

	// compile prepares the limit for a clock unit. It fails if Validate does, or if the rate is too
	// fast for the unit.
	compile(unit time.Duration) (rules.Rule, error)

	// normal returns the same limit with its parameters in their simplest form, for Equal.
	normal() Limit
}

// Equal reports whether two limits decide alike: the same algorithm with the same parameters. Rates
// are compared as fractions: 60/m equals 1/s.
func Equal(a, b Limit) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a == b || a.normal() == b.normal() // the first allocates nothing
}

// Step is the pure decision function behind every limiter: it takes a limit, a state, a time and a
// cost, and returns the new state and the decision. It has no clock, no lock and no I/O. Everything
// else that decides calls the same code, so Step returns what a running limiter would.
//
// state is the one that the last Step returned; nil is an unused state. next may be the same slice,
// changed. now counts clock units of length tick, from any origin. It may go back: an earlier
// reading than before charges nothing extra and adds no tokens. A state is only valid for the limit
// and the tick that made it.
//
// An invalid limit or state refuses with Never and changes nothing.
func Step(l Limit, state []int64, now, cost int64, tick time.Duration) (next []int64, d Decision) {
	p, err := Prepare(l, tick)
	if err != nil {
		return state, Decision{RetryAfter: Never}
	}
	return p.Step(state, now, cost)
}

// compile prepares a limit for clock units of length unit.
func compile(l Limit, unit time.Duration) (rules.Rule, error) {
	switch {
	case l == nil:
		return nil, fmt.Errorf("weir: no limit given: pass one of the limits of this package, like TokenBucket")
	case unit < 1:
		return nil, fmt.Errorf("weir: a clock unit of %v is too short: it must be at least 1ns", unit)
	}
	return l.compile(unit)
}

// A FieldError says which parameter of a limit is invalid. Validate, New and SetLimit return it.
type FieldError struct {
	Limit string // the type of the limit, like TokenBucket
	Field string // the name of the invalid field
	Err   error  // what is wrong, and what to write instead
}

// Error names the limit and the field.
func (e *FieldError) Error() string { return fmt.Sprintf("weir: %s.%s: %v", e.Limit, e.Field, e.Err) }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

func field(limit, name string, err error) error { return &FieldError{limit, name, err} }

// compiled converts the errors of a rule's compilation to FieldErrors of the limit.
func compiled(limit string) func(rules.Rule, error) (rules.Rule, error) {
	return func(r rules.Rule, err error) (rules.Rule, error) {
		var wrong *rules.FieldError
		if errors.As(err, &wrong) {
			return nil, field(limit, wrong.Field, wrong.Err)
		}
		return r, err
	}
}
