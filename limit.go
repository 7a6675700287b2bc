package weir

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// A Limit is an algorithm with its numbers: plain, comparable data, without state. The structs of this package implement it, and
// nothing else does: TokenBucket, LeakyBucket, IntervalBucket, FixedWindow, SlidingWindow, SlidingCounter, SlidingLog, SmoothBursty,
// WarmUp, NginxBucket, Concurrency, and All of several.
type Limit interface {
	// Validate reports what is wrong with the numbers, as an error that names the field and says what to write.
	Validate() error

	// compile readies the limit for a clock unit. It fails where Validate does, and where the rate is too fast for the unit.
	compile(unit time.Duration) (rules.Rule, error)

	// normal returns the same limit with its numbers in their simplest form, for Equal.
	normal() Limit
}

// Equal reports whether two limits decide alike: the same algorithm with the same numbers, rates compared as fractions (60/m equals
// 1/s).
func Equal(a, b Limit) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.normal() == b.normal()
}

// Step is the pure function behind every limiter: limit + state + now + cost -> new state + decision. It has no clock, no lock and no
// I/O, and everything else that decides calls the same code, so what it answers is what runs.
//
// state is what the last Step returned, nil for an untouched one; next may be the same slice, changed. now counts clock units of
// length tick, from any origin and in any order: an earlier reading than before charges nothing extra and mints nothing. A state
// belongs to the limit and the tick it was made under.
//
// A limit or a state that is not valid refuses with Never and changes nothing.
func Step(l Limit, state []int64, now, cost int64, tick time.Duration) (next []int64, d Decision) {
	p, err := Prepare(l, tick)
	if err != nil {
		return state, Decision{RetryAfter: Never}
	}
	return p.Step(state, now, cost)
}

// compile readies a limit for clock units of length unit.
func compile(l Limit, unit time.Duration) (rules.Rule, error) {
	switch {
	case l == nil:
		return nil, fmt.Errorf("weir: no limit given: pass one of the limits of this package, like TokenBucket")
	case unit < 1:
		return nil, fmt.Errorf("weir: a clock unit of %v is no time: it must be at least 1ns", unit)
	}
	return l.compile(unit)
}

// A FieldError is what Validate, and with it New and SetLimit, says of a number that is wrong.
type FieldError struct {
	Limit string // the type of the limit
	Field string // the name of its field
	Err   error  // what is wrong, and what to write
}

// Error names the limit and the field.
func (e *FieldError) Error() string { return fmt.Sprintf("weir: %s.%s: %v", e.Limit, e.Field, e.Err) }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// field makes a FieldError.
func field(limit, name string, err error) error { return &FieldError{limit, name, err} }

// compiled makes the errors of a rule's compilation ones about a field of the limit.
func compiled(limit string) func(rules.Rule, error) (rules.Rule, error) {
	return func(r rules.Rule, err error) (rules.Rule, error) {
		var wrong *rules.FieldError
		if errors.As(err, &wrong) {
			return nil, field(limit, wrong.Field, wrong.Err)
		}
		return r, err
	}
}
