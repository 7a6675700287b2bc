package weir

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirflow/weir/internal/outstanding"
	"github.com/weirflow/weir/internal/rules"
)

// Prepared is a limit prepared for one clock unit. It is for callers that keep states themselves,
// like tables and stores with a compare-and-swap; all other callers should use a Limiter. It has no state. Its
// methods are pure and safe for concurrent use.
type Prepared struct {
	limit Limit
	plain Limit // in normal form
	r     rules.Rule
	parts []string // the By of each part of an All
	name  string

	budget outstanding.Budget
}

// Prepare validates a limit and prepares it for clock units of length tick. The error says which
// parameter is invalid.
func Prepare(l Limit, tick time.Duration) (Prepared, error) {
	r, err := compile(l, tick)
	if err != nil {
		return Prepared{}, err
	}
	return Prepared{limit: l, plain: l.normal(), r: r, parts: decisionNames(l, "")}, nil
}

// Limit returns the limit that was prepared.
func (p Prepared) Limit() Limit { return p.limit }

// Named returns a copy whose decisions carry the name in By. The parts of an All are named after
// it.
func (p Prepared) Named(name string) Prepared {
	p.name, p.parts = name, decisionNames(p.limit, name)
	return p
}

// Within returns a copy whose Limiters share a budget of memory for their outstanding reservations.
// If it has too little left, cancelling a reservation may give back less than it took, and
// Limiter.Inexact counts it. It is for the tables of this module.
func (p Prepared) Within(b outstanding.Budget) Prepared {
	p.budget = b
	return p
}

// Rule returns the compiled rule, with the limit in the form in which Equal limits are equal. It is for
// the stores of this module.
func (p Prepared) Rule() rules.Part { return rules.Part{Rule: p.r, Limit: p.plain} }

// Decision returns what a verdict of the rule means. It is for the stores of this module.
func (p Prepared) Decision(v rules.Verdict) Decision { return p.decision(v) }

// Step is the package's Step, without preparing the limit each time.
func (p Prepared) Step(state []int64, now, cost int64) (next []int64, d Decision) {
	if p.r == nil || !p.r.Valid(state) {
		return state, Decision{RetryAfter: Never, By: p.name}
	}
	next, v := rules.Take(p.r, nil, state, now, rules.Queue{}, cost)
	return next, p.decision(v)
}

// Peek returns the decision that Step would return. It changes nothing.
func (p Prepared) Peek(state []int64, now, cost int64) (d Decision) {
	if p.r == nil || !p.r.Valid(state) {
		return Decision{RetryAfter: Never, By: p.name}
	}
	return p.decision(rules.Peek(p.r, state, now, rules.Queue{}, cost))
}

// decision converts a verdict to a Decision.
func (p Prepared) decision(v rules.Verdict) Decision {
	if v.Part > 0 {
		return decision(p.r, v, p.parts[v.Part-1])
	}
	return decision(p.r, v, p.name)
}

// Valid reports whether a slice can be a state of the limit.
func (p Prepared) Valid(state []int64) bool { return p.r != nil && p.r.Valid(state) }

// Wall reports whether now must be wall time, counted from the Unix epoch, as calendar and epoch
// windows need it. All other limits take any clock that only goes forward.
func (p Prepared) Wall() bool { return p.r != nil && p.r.ReadsWallTime() }

// Largest is the largest cost that one charge may take: the capacity, and for limits that allow
// debt (SmoothBursty, WarmUp) what comes in within 100 years.
func (p Prepared) Largest() int64 {
	if p.r == nil {
		return 0
	}
	return p.r.LargestCost()
}

// Convert carries a state over to another limit, at the moment of the change, as SetLimit does:
// what has been used stays used. Both limits must be prepared for the same tick. A limit that is
// Equal changes nothing. then is the same moment as now, read from the other limit's clock: the two
// differ if only one of the limits reads wall time. The result may be the same slice, changed.
func (p Prepared) Convert(state []int64, now int64, to Prepared, then int64) []int64 {
	if p.r == nil || to.r == nil || !p.r.Valid(state) || p.plain == to.plain {
		return state
	}
	return rules.ChangeRule(rules.Part{Rule: p.r, Limit: p.plain}, state, now, rules.Part{Rule: to.r, Limit: to.plain}, then)
}

// New returns a Limiter that continues from a copy of state. It is for a key that needs more than a
// state, like a queue of waiters. The limit must have been prepared for nanoseconds.
func (p Prepared) New(state []int64, opts ...Option) (*Limiter, error) {
	switch {
	case p.r == nil || p.r.Unit() != time.Nanosecond:
		return nil, fmt.Errorf("weir: a Limiter counts in nanoseconds: prepare its limit for a tick of 1ns")
	case !p.r.Valid(state):
		return nil, fmt.Errorf("weir: %v is not a state of %T", state, p.limit)
	}
	lim := &Limiter{
		start:  time.Now(),
		serial: rand.Uint64(),
		after:  func(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) },
		limit:  p.limit,
		timing: timerOff,
		budget: p.budget,
	}
	for _, opt := range opts {
		opt(lim)
	}
	lim.version = newVersion(rules.Part{Rule: p.r, Limit: p.plain}, p.limit, lim.name)
	lim.wall = p.r.ReadsWallTime()
	lim.state = append(lim.words[:0], state...)
	now := lim.now()
	if len(state) == 0 && p.r.StoresPermits() {
		// idle time stores permits from now on, and not from the first charge on
		lim.state = p.r.FirstCall(lim.state, now)
	}
	lim.publish(now)
	return lim, nil
}
