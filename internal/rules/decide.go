package rules

import "github.com/weirflow/weir/internal/outstanding"

// A Verdict is what a decision says, in clock units.
type Verdict struct {
	Remaining int64 // the largest cost that a Take would be given now
	Reset     int64 // until the state equals an untouched one
	Retry     int64 // 0 where the cost is admitted; Never where no wait helps
	Level     int64 // see Rule.Level
	Part      int   // which part of an All decided, counted from 1; 0 for all other rules
}

// A Queue is what stands between a caller and the state: the callers already waiting. The zero value is an empty queue.
type Queue struct {
	Cost uint64 // what they will be charged when their turns come
	Wait int64  // clock units until the last turn that was promised, or that of the first waiter; or Unnamed
}

// PlanBehind is Plan for a caller at the end of a queue.
func PlanBehind(r Rule, state []int64, now int64, q Queue, cost int64) Plan {
	p := r.Plan(state, now, q.Cost, cost)
	if p.Wait == Never || q.Wait > 0 && q.Wait > int64(MaxSpan/r.Unit()) {
		return Plan{Never, Never}
	}
	p.Wait = max(p.Wait, q.Wait)
	return p
}

// Contacted is the state as its first contact would leave it, without writing it down.
func Contacted(r Rule, state []int64, now int64) []int64 {
	if len(state) == 0 {
		return r.FirstContact(nil, now)
	}
	return state
}

// Peek is what Take would decide. It writes nothing.
func Peek(r Rule, state []int64, now int64, q Queue, cost int64) Verdict {
	if x, ok := r.(DirectRule); ok && len(state) > 0 && cost > 0 && cost <= r.LargestCost() && q == (Queue{}) {
		if _, v, ok := x.DecideDirect(state, now, cost, false); ok {
			return Verdict{Remaining: v.Remaining, Reset: v.Reset, Retry: v.Retry}
		}
	}
	state = Contacted(r, state, now)
	retry := retryAfter(r, state, now, q, cost)
	v := Describe(r, state, now, q, cost, retry)
	if retry == 0 && cost > 0 { // nginx says of a request that it admits what the bucket holds with it
		v.Level = r.Level(state, now, cost)
	}
	return v
}

// Take is the decision of every limit: it charges where the plan admits, and writes nothing where it does not. The one exception is
// the first contact of a state that does not start full: without it, each retry would start again from the initial state. m is nil while
// nothing is outstanding.
func Take(r Rule, m *Memory, state []int64, now int64, q Queue, cost int64) ([]int64, Verdict) {
	if cost <= 0 || cost > r.LargestCost() {
		return state, Peek(r, state, now, q, cost)
	}
	if len(state) == 0 {
		state = r.FirstContact(state, now)
	} else if x, ok := r.(DirectRule); ok && m == nil && q == (Queue{}) {
		if next, v, ok := x.DecideDirect(state, now, cost, true); ok {
			return next, Verdict{Remaining: v.Remaining, Reset: v.Reset, Retry: v.Retry}
		}
	}
	retry := retryAfter(r, state, now, q, cost)
	if retry == 0 {
		state = Charge(r, m, state, now, cost)
	}
	return state, Describe(r, state, now, q, cost, retry)
}

// Charge takes a cost at now.
func Charge(r Rule, m *Memory, state []int64, now, cost int64) []int64 {
	return charge(r, m, state, Note{At: now, Due: now, Cost: cost})
}

// ChargeDebt takes a cost at now for work that was done already.
func ChargeDebt(r Rule, m *Memory, state []int64, now, cost int64) []int64 {
	return charge(r, m, state, Note{At: now, Due: now, Cost: cost, Debt: true})
}

func charge(r Rule, m *Memory, state []int64, n Note) []int64 {
	if m != nil {
		r.Note(m, state, n)
	}
	return r.Charge(state, n.At, n.Cost)
}

// ChargeTurn charges the first waiter in a queue, whose turn came at due and was noticed at now. A turn is a whole clock unit, and there may
// have been room within the unit before it: the charge is as of that unit, so that a queue keeps its pace and roundings do not add up. Of an
// All, those parts that the turn was not waited for are charged at the turn.
func ChargeTurn(r Rule, m *Memory, state []int64, due, now, cost int64) []int64 {
	a, ok := r.(*allRule)
	if !ok {
		return Charge(r, m, state, r.TurnTime(due-1, now), cost)
	}
	for i, r := range a.rules {
		part, at := a.part(state, i), r.TurnTime(due, now)
		if r.Plan(part, due-1, 0, cost).Wait != 0 {
			at = r.TurnTime(due-1, now)
		}
		state = a.put(state, i, Charge(r, m.part(i, len(a.rules)), part, at, cost))
	}
	return state
}

// Book charges ahead what goes at due, as a reservation with an ID, and returns what the charge is remembered by.
func Book(r Rule, m *Memory, id outstanding.ID, s []int64, now, due, cost int64) ([]int64, Receipt) {
	if m != nil {
		r.Note(m, s, Note{ID: id, At: now, Due: due, Cost: cost})
	}
	a, ok := r.(*allRule)
	if !ok {
		s, t := r.Book(s, now, due, cost)
		t[ticketID] = int64(id)
		return s, Receipt{ticket: t}
	}
	c := Receipt{parts: new(partTickets)}
	for i, r := range a.rules {
		part, t := r.Book(a.part(s, i), now, due, cost)
		t[ticketID] = int64(id)
		s, c.parts.tickets[i] = a.put(s, i, part), t
	}
	return s, c
}

// retryAfter decides about a cost: 0 admits it. The state is one that was contacted.
func retryAfter(r Rule, state []int64, now int64, q Queue, cost int64) int64 {
	switch {
	case cost < 0 || cost > r.LargestCost():
		return Never
	case cost == 0:
		return 0
	}
	return PlanBehind(r, state, now, q, cost).Retry()
}

// Describe is the verdict about a cost whose retry is known, 0 meaning that it was admitted. The state is one that was contacted.
func Describe(r Rule, state []int64, now int64, q Queue, cost, retry int64) Verdict {
	remaining, reset := r.Look(state, now, q.Cost)
	switch {
	case q.Wait == Unnamed:
		remaining = 0
	case q.Wait > 0:
		remaining, reset = 0, max(reset, q.Wait)
	}
	v := Verdict{Remaining: remaining, Reset: reset, Retry: retry, Level: r.Level(state, now, 0)}
	if a, ok := r.(*allRule); ok {
		v.Part = 1 + a.deciding(state, now, q.Cost, cost, retry == 0)
	}
	return v
}

// DecidingPart is which part of an All decides about a cost, counted from 1, and 0 for all other rules.
func DecidingPart(r Rule, state []int64, now int64, q Queue, cost int64, admitted bool) int {
	if a, ok := r.(*allRule); ok {
		return 1 + a.deciding(state, now, q.Cost, cost, admitted)
	}
	return 0
}
