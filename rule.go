package weir

import (
	"math"
	"time"
)

// A rule is a Limit readied for one clock unit: the arithmetic of its algorithm, as pure functions over a state of a few integers.
// Every holder of state (Step, Limiter, and through them the keyed table, replay and the tests) works through this seam, and a new
// algorithm is a new rule.
//
// Times are in clock units. A state is a slice of words that only the rule reads; an empty one is untouched. Functions that return
// a state may have changed the one they were given.
type rule interface {
	// capacity is what the limit holds: Decision.Limit.
	capacity() int64
	// largest is the most that one charge may take: the capacity, but for rules that know debt.
	largest() int64
	// books reports whether work can be charged ahead of its time.
	books() bool
	// wall reports whether readings are of wall time, from the Unix epoch, and not of any clock that only goes forward.
	wall() bool
	// unit is the length of a clock unit.
	unit() time.Duration
	// valid reports whether a state can be one of this rule's.
	valid(state []int64) bool

	// contact is what becomes of an untouched state at its first charge, admitted or not: still nothing, for a limit that starts full.
	contact(state []int64, now int64) []int64
	// plan says when a cost could go, and when there is a place for it to wait, behind costs of ahead that are still to be charged.
	// cost is within 1 and largest.
	plan(state []int64, now int64, ahead uint64, cost int64) plan
	// charge takes a cost at now, whether or not plan would admit it.
	charge(state []int64, now, cost int64) []int64
	// book charges ahead what is to go at due, as plan said, and returns what the charge is remembered by.
	book(state []int64, now, due, cost int64) ([]int64, ticket)
	// serve charges the first in line, whose turn came at due, after waiting, and was noticed at now.
	serve(state []int64, due, now, cost int64) []int64
	// asOf is the time as of which a turn is charged that came at due and was noticed at now.
	asOf(due, now int64) int64
	// refund gives back amount of a charge that the ticket stands for: as much as never admits too much.
	refund(state []int64, now int64, t ticket, amount int64) []int64
	// look returns the largest cost that a Take would be given, and the clock units until the state equals an untouched one.
	look(state []int64, now int64, ahead uint64) (remaining, reset int64)
	// convert carries what has been used over to another rule, at the moment the limit is changed. What cannot be represented is
	// rounded up, so that no change mints anything. A rule of another kind is loaded with what this one has spent. then is the same
	// moment as now, as the other rule reads time: it differs where one of them reads wall time.
	convert(state []int64, now int64, to rule, then int64) []int64
	// reticket does the same for a ticket, and rounds down, for the same reason. It reports false where nothing can be given back
	// across the change: for a rule of another kind.
	reticket(t ticket, now int64, to rule) (ticket, bool)
	// spent is what has been used, debt included, rounded up.
	spent(state []int64, now int64) int64
	// load is an untouched state that was charged what another rule's had spent: into debt where the rule knows debt, else up to full.
	load(now, spent int64) []int64
}

// A direct rule answers in one go what plan, charge and look say one after another: for rules whose state takes long to read.
type direct interface {
	rule
	// decide is take, or peek where nothing is to be charged, where nobody stands before the caller. cost is within 1 and largest. ok is
	// false, and nothing has happened, where the plain way is to be gone. Such a rule reads no wall time and is full at first contact.
	decide(state []int64, now, cost int64, charge bool) (next []int64, v verdict, ok bool)
}

// A verdict is what a decision says, in clock units.
type verdict struct {
	remaining, reset int64
	wait             int64 // 0 where the cost is admitted
}

// decision puts it into words.
func (v verdict) decision(r rule) Decision {
	return Decision{
		Allowed:    v.wait == 0,
		Limit:      r.capacity(),
		Remaining:  v.remaining,
		RetryAfter: span(v.wait, r.unit()),
		ResetAfter: span(v.reset, r.unit()),
	}
}

// never stands for a time that cannot be named.
const never int64 = -1

// A plan says how many clock units to wait: until the work may go, and until it may get in line. Either may be never.
type plan struct{ wait, room int64 }

// admits reports whether the work may go now.
func (p plan) admits() bool { return p == plan{} }

// retry is the wait until the same Take would be admitted.
func (p plan) retry() int64 {
	if p.wait == never || p.room == never {
		return never
	}
	return max(p.wait, p.room)
}

// accepts reports whether the work may be charged now and go when its time comes, at most limit units from now; limit < 0 is however
// long.
func (p plan) accepts(limit int64) bool {
	return p.wait != never && p.room == 0 && (limit < 0 || p.wait <= limit)
}

// retryWithin is the wait until accepts would be true.
func (p plan) retryWithin(limit int64) int64 {
	switch {
	case p.wait == never || p.room == never:
		return never
	case limit < 0:
		return p.room
	}
	return max(p.room, p.wait-limit)
}

// A ticket is what a charge made ahead is remembered by.
type ticket [9]int64

// smallState is how many words a state has for which a limiter needs no memory beside its own.
const smallState = 4

// transfer carries a state over to a rule of another kind: what has been used is charged once to an untouched state.
func transfer(from rule, state []int64, now int64, to rule, then int64) []int64 {
	if len(state) == 0 {
		return state[:0]
	}
	spent := from.spent(state, now)
	if spent == 0 {
		return to.contact(state[:0], then) // full, but not as fresh as one never seen
	}
	return append(state[:0], to.load(then, spent)...)
}

// others is what stands between a caller and the state: those who wait in line. The zero value is nobody.
type others struct {
	cost uint64 // what they will be charged when they are served
	wait int64  // clock units until the last turn that has been promised, or that of the first in line; or unnamed
}

// planBehind is plan for someone who comes after others.
func planBehind(r rule, state []int64, now int64, o others, cost int64) plan {
	p := r.plan(state, now, o.cost, cost)
	if p.wait == never || o.wait > int64(maxSpan/r.unit()) {
		return plan{never, never}
	}
	p.wait = max(p.wait, o.wait)
	return p
}

// contacted is the state as its first contact would leave it, without writing it down.
func contacted(r rule, state []int64, now int64) []int64 {
	if len(state) == 0 {
		return r.contact(nil, now)
	}
	return state
}

// peek is what take would answer. It writes nothing.
func peek(r rule, state []int64, now int64, o others, cost int64) Decision {
	if x, ok := r.(direct); ok && len(state) > 0 && cost > 0 && cost <= r.largest() && o == (others{}) {
		if _, v, ok := x.decide(state, now, cost, false); ok {
			return v.decision(r)
		}
	}
	state = contacted(r, state, now)
	d := decide(r, state, now, o, cost)
	d.see(r, state, now, o)
	d.sign(r, state, now, o, cost)
	return d
}

// decide is a decision without what it says about the state. The state is a contacted one.
func decide(r rule, state []int64, now int64, o others, cost int64) Decision {
	d := Decision{Limit: r.capacity(), Allowed: true}
	switch {
	case cost < 0 || cost > r.largest():
		d.Allowed, d.RetryAfter = false, Never
	case cost > 0:
		if p := planBehind(r, state, now, o, cost); !p.admits() {
			d.Allowed, d.RetryAfter = false, span(p.retry(), r.unit())
		}
	}
	return d
}

// take is the decision of every limit: it charges where the plan admits, and writes nothing where it does not. The one exception is
// the first contact of a state that does not start full: were it not kept, each try would start again from Initial.
func take(r rule, state []int64, now int64, o others, cost int64) ([]int64, Decision) {
	if cost <= 0 || cost > r.largest() {
		return state, peek(r, state, now, o, cost)
	}
	if len(state) == 0 {
		state = r.contact(state, now)
	} else if x, ok := r.(direct); ok && o == (others{}) {
		if next, v, ok := x.decide(state, now, cost, true); ok {
			return next, v.decision(r)
		}
	}
	d := decide(r, state, now, o, cost)
	if d.Allowed {
		state = r.charge(state, now, cost)
	}
	d.see(r, state, now, o)
	d.sign(r, state, now, o, cost)
	return state, d
}

// see fills in what a decision says about the state.
func (d *Decision) see(r rule, state []int64, now int64, o others) {
	remaining, reset := r.look(state, now, o.cost)
	switch {
	case o.wait == unnamed:
		remaining = 0
	case o.wait > 0:
		remaining, reset = 0, max(reset, o.wait)
	}
	d.Remaining, d.ResetAfter = remaining, span(reset, r.unit())
	if b, ok := r.(*thousandths); ok {
		d.Level = b.level(state, now)
	}
}

// span turns clock units into a duration; never stays Never, and what does not fit is the longest duration.
func span(units int64, unit time.Duration) time.Duration {
	switch {
	case units == never:
		return Never
	case units > math.MaxInt64/int64(unit):
		return math.MaxInt64
	}
	return time.Duration(units) * unit
}
