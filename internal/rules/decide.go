package rules

import "github.com/weirflow/weir/internal/outstanding"

// A Verdict is the result of a decision, in clock units.
type Verdict struct {
	Remaining int64 // the largest cost that a Take would get now
	Reset     int64 // until the state equals an untouched one
	Retry     int64 // 0 if the cost is admitted; Never if no wait helps
	Level     int64 // see Rule.Level
	Part      int   // which part of an All decided, counted from 1; 0 for all other rules
}

// A Queue is the callers that wait before a new caller. The zero value is an empty queue.
type Queue struct {
	Cost uint64 // the sum of the costs that will be charged when their turns come
	Wait int64  // clock units until the last promised turn, or that of the first waiter; or Unnamed
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

// Contacted is the state as its first call would leave it, without storing it.
func Contacted(r Rule, state []int64, now int64) []int64 {
	if len(state) == 0 {
		return r.FirstCall(nil, now)
	}
	return state
}

// Peek returns the verdict that Take would return. It stores nothing.
func Peek(r Rule, state []int64, now int64, q Queue, cost int64) Verdict {
	if x, ok := r.(DirectRule); ok && len(state) > 0 && cost > 0 && cost <= r.LargestCost() && q == (Queue{}) {
		if _, v, ok := x.DecideDirect(state, now, cost, false); ok {
			return Verdict{Remaining: v.Remaining, Reset: v.Reset, Retry: v.Retry}
		}
	}
	state = Contacted(r, state, now)
	retry := retryAfter(r, state, now, q, cost)
	v := Describe(r, state, now, q, cost, retry)
	if retry == 0 && cost > 0 { // of an admitted request, nginx reports the level with the request
		v.Level = r.Level(state, now, cost)
	}
	return v
}

// Take is the decision of every limit. It charges if the plan admits, and stores nothing otherwise.
// The one exception is the first call of a state that does not start full: without it, each
// retry would start again from the initial state. m is nil while nothing is outstanding.
func Take(r Rule, m *Memory, state []int64, now int64, q Queue, cost int64) ([]int64, Verdict) {
	if cost <= 0 || cost > r.LargestCost() {
		return state, Peek(r, state, now, q, cost)
	}
	if len(state) == 0 {
		state = r.FirstCall(state, now)
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

// ChargeDebt charges a cost at now for work that was already done.
func ChargeDebt(r Rule, m *Memory, state []int64, now, cost int64) []int64 {
	return charge(r, m, state, Note{At: now, Due: now, Cost: cost, Debt: true})
}

func charge(r Rule, m *Memory, state []int64, n Note) []int64 {
	if m != nil {
		r.Note(m, state, n)
	}
	return r.Charge(state, n.At, n.Cost)
}

// ChargeTurn charges the first waiter of a queue, whose turn came at due and was noticed at now. A
// turn is a whole clock unit, but there may have been room within the unit before it. The charge
// counts as of that unit, so that a queue keeps its pace and rounding errors do not add up. The
// parts of an All that did not delay the turn are charged at the turn.
func ChargeTurn(r Rule, m *Memory, state []int64, due, now, cost int64) []int64 {
	a, ok := r.(*allRule)
	if !ok {
		return Charge(r, m, state, r.TurnTime(due-1, now), cost)
	}
	for i, r := range a.rules {
		part := a.part(state, i)
		state = a.put(state, i, Charge(r, m.part(i, len(a.rules)), part, turnOfPart(r, part, due, now, cost), cost))
	}
	return state
}

// BookTurn is ChargeTurn for a charge that may be given back: as a reservation with an ID.
func BookTurn(r Rule, m *Memory, id outstanding.ID, state []int64, due, now, cost int64) ([]int64, Receipt) {
	a, ok := r.(*allRule)
	if !ok {
		at := r.TurnTime(due-1, now)
		return Book(r, m, id, state, at, at, cost)
	}
	c := Receipt{parts: new(partTickets)}
	for i, r := range a.rules {
		part := a.part(state, i)
		at := turnOfPart(r, part, due, now, cost)
		part, of := Book(r, m.part(i, len(a.rules)), id, part, at, at, cost)
		state, c.parts.tickets[i] = a.put(state, i, part), of.ticket
	}
	return state, c
}

// turnOfPart returns the time as of which a part of an All is charged.
func turnOfPart(r Rule, state []int64, due, now, cost int64) int64 {
	if r.Plan(state, due-1, 0, cost).Wait != 0 {
		due-- // this part delayed the turn
	}
	return r.TurnTime(due, now)
}

// Book charges ahead what goes at due, as a reservation with an ID, and returns the charge's
// receipt.
func Book(r Rule, m *Memory, id outstanding.ID, s []int64, now, due, cost int64) ([]int64, Receipt) {
	if m != nil {
		r.Note(m, s, Note{ID: id, At: now, Due: due, Cost: cost})
	}
	var c Receipt
	a, ok := r.(*allRule)
	if !ok {
		s = book(r, m, id, s, now, due, cost, &c.ticket)
		return s, c
	}
	c.parts = new(partTickets)
	for i, r := range a.rules {
		part := book(r, m.part(i, len(a.rules)), id, a.part(s, i), now, due, cost, &c.parts.tickets[i])
		s = a.put(s, i, part)
	}
	return s, c
}

// markTicket adds to a ticket what a Memory knows just after the charge.
func markTicket(r Rule, m *Memory, s []int64, t *Ticket) {
	switch r := r.(type) {
	case *gcraRule:
		r.mark(m, s, t)
	case *intervalBucketRule:
		t[ticketReturned] = int64(m.ledger.Returned())
	}
}

// book books a charge that m has been told of, and writes its ticket.
func book(r Rule, m *Memory, id outstanding.ID, s []int64, now, due, cost int64, t *Ticket) []int64 {
	s, *t = r.Book(s, now, due, cost)
	t[ticketID] = int64(id)
	if m != nil {
		markTicket(r, m, s, t)
	}
	return s
}

// retryAfter decides about a cost; 0 admits it. The state must have been contacted.
func retryAfter(r Rule, state []int64, now int64, q Queue, cost int64) int64 {
	switch {
	case cost < 0 || cost > r.LargestCost():
		return Never
	case cost == 0:
		return 0
	}
	return PlanBehind(r, state, now, q, cost).Retry()
}

// Describe returns the verdict about a cost with a known retry; 0 means that it was admitted. The
// state must have been contacted.
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

// DecidingPart returns which part of an All decides about a cost, counted from 1; 0 for other
// rules.
func DecidingPart(r Rule, state []int64, now int64, q Queue, cost int64, admitted bool) int {
	if a, ok := r.(*allRule); ok {
		return 1 + a.deciding(state, now, q.Cost, cost, admitted)
	}
	return 0
}
