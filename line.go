package weir

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// line is those who wait for a limiter, in the order in which they came. Its fields are guarded by the limiter's lock.
//
// Whoever waits is charged when the turn comes, not before, so that one who leaves has nothing to give back and all behind move up.
// Only a Reserve behind them changes that: it needs to know its time at once, so everyone in line is then charged ahead and promised
// a time of their own, like a reservation. Those promised are always a first part of the line.
type line struct {
	first, last *waiter
	promised    *waiter // the last of those promised
	n           int
	cost        uint64  // of those not promised
	spare       *waiter // for Wait to use again, linked by next
	spares      int
}

// maxSpares bounds what a line that was long once keeps for the next time.
const maxSpares = 1024

// idle is what Limiter.timing holds while the timer is not set.
const idle = math.MinInt64

// unnamed is the due of a waiter whose turn lies beyond the horizon, until a change of the limit or time itself brings it nearer.
const unnamed = rules.Unnamed

// A waiter is one place in line.
type waiter struct {
	next, prev *waiter
	ready      chan struct{} // holds one token, or is closed for a Place, once the state is not waiting
	cost       int64
	due        int64 // when the turn comes: for those promised, and for the first in line
	promise    *promise
	state      waiting
	waited     bool // the turn lay ahead when due was set
	place      bool
}

// waiting is how a waiter stands.
type waiting uint8

const (
	inLine waiting = iota
	served         // charged, may go
	left           // gave the place up
	cast           // let go: its cost no longer fits the limit
)

// A promise is the charge of a waiter who was charged ahead.
type promise struct {
	era   *era
	after rules.Receipt
	// before is the state just before the charge, of a rule that works promised times out anew when the limit changes. Other rules keep
	// the times that they have promised.
	before []int64
}

// others is what stands before someone who comes now: nobody goes before the last who was promised a time, nor before the first in line.
func (q *line) others(now int64) rules.Queue {
	o := rules.Queue{Cost: q.cost}
	last := q.promised
	if last == nil {
		last = q.first
	}
	switch {
	case last == nil:
	case last.due == unnamed:
		o.Wait = unnamed
	default:
		o.Wait = rules.Until(last.due, now)
	}
	return o
}

// join puts a waiter at the end.
func (q *line) join(w *waiter) {
	w.next, w.prev, w.state = nil, q.last, inLine
	if q.last != nil {
		q.last.next = w
	} else {
		q.first = w
	}
	q.last = w
	q.n++
	q.cost += uint64(w.cost)
}

// remove takes a waiter out and lets it go.
func (q *line) remove(w *waiter, state waiting) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.last = w.prev
	}
	q.n--
	switch {
	case w.promise == nil:
		q.cost -= uint64(w.cost)
	case w == q.promised:
		q.promised = w.prev
	}
	w.next, w.prev, w.state = nil, nil, state
	if w.place {
		close(w.ready)
	} else {
		w.ready <- struct{}{}
	}
}

// waiter returns a waiter for Wait, used before if there is one.
func (q *line) waiter(cost int64) *waiter {
	w := q.spare
	if w == nil {
		return &waiter{ready: make(chan struct{}, 1), cost: cost}
	}
	q.spare, q.spares = w.next, q.spares-1
	*w = waiter{ready: w.ready, cost: cost}
	return w
}

// release keeps a waiter that nobody refers to any more, its token taken.
func (q *line) release(w *waiter) {
	if q.spares < maxSpares {
		w.next, w.promise, q.spare = q.spare, nil, w
		q.spares++
	}
}

// Wait holds the caller until cost units may go, and charges them then. Callers are served in the order in which they came, and while
// anyone waits, Take and Allow are refused.
//
// It returns at once, and charges nothing, where no wait helps, where a LeakyBucket's queue is full, and where the turn would come
// after the context's deadline: a *LimitedError, in which errors.Is finds ErrLimited, and for the deadline context.DeadlineExceeded.
// When the context ends first, Wait returns its error; nothing was charged, and those behind move up. A cost below 0 is ErrCost, a
// cost of 0 never waits.
//
// Waiting sleeps on one timer for the whole line. A turn comes at most a clock unit after the exact model's; how late a goroutine then
// wakes is up to the runtime (see bench/).
func (l *Limiter) Wait(ctx context.Context, cost int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if cost < 0 {
		return ErrCost
	}
	if cost == 0 || l.Take(cost).Allowed {
		return nil
	}
	within := int64(-1)
	if deadline, ok := ctx.Deadline(); ok {
		within = max(int64(time.Until(deadline)), 0)
	}
	w, err := l.getInLine(cost, within)
	if w == nil {
		return err
	}
	select {
	case <-w.ready:
	case <-ctx.Done():
		if l.giveUp(w) {
			err = ctx.Err()
		}
		<-w.ready
	}
	return l.finish(w, err)
}

// getInLine charges at once and returns nil, nil; or puts a waiter in line; or refuses, with the error that Wait returns. within is
// the longest wait in clock units, or below 0.
func (l *Limiter) getInLine(cost, within int64) (*waiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	p, d := l.planAhead(now, cost, within)
	switch {
	case !d.Allowed:
		return nil, &LimitedError{d, p.Wait != rules.Never && p.Room == 0}
	case p.Wait == 0:
		l.charge(now, cost)
		return nil, nil
	}
	w := l.line.waiter(cost)
	w.due = later(now, p.Wait)
	l.line.join(w)
	return w, nil
}

// planAhead is what reserving, waiting and joining have in common: when the cost could go, and whether that is soon enough. The
// decision's view of the state is from before the charge.
func (l *Limiter) planAhead(now, cost, within int64) (rules.Plan, Decision) {
	e, o := l.era, l.line.others(now)
	r := e.rule
	if cost <= 0 || cost > r.LargestCost() {
		d := e.decision(rules.Peek(r, l.state, now, o, cost))
		if d.Allowed {
			return rules.Plan{}, d
		}
		return rules.Plan{Wait: rules.Never, Room: rules.Never}, d
	}
	if len(l.state) == 0 {
		l.state = r.FirstContact(l.state, now)
	}
	p := rules.PlanBehind(r, l.state, now, o, cost)
	if o.Cost > math.MaxUint64-uint64(cost) {
		p.Wait = rules.Never
	}
	retry := int64(0)
	if !p.Accepts(within) {
		retry = p.RetryWithin(within)
	}
	return p, e.decision(rules.Describe(r, l.state, now, o, cost, retry))
}

// seen makes a decision that is yes one about the state after the charge, as Take's is.
func (l *Limiter) seen(d *Decision, now, cost int64) {
	*d = l.era.decision(rules.Describe(l.era.rule, l.state, now, l.line.others(now), cost, 0))
}

// giveUp takes a waiter out of line. It reports false where the waiter was served, or let go, just before.
func (l *Limiter) giveUp(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	if w.state != inLine {
		return false
	}
	if p := w.promise; p != nil {
		l.refund(now, p.era, p.after, w.cost)
	}
	l.line.remove(w, left)
	l.ring()
	return true
}

// finish ends a Wait: the waiter goes back to the spares.
func (l *Limiter) finish(w *waiter, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.state == cast {
		err = l.castOut(w)
	}
	l.line.release(w)
	return err
}

// castOut is the error of a waiter who was let go.
func (l *Limiter) castOut(w *waiter) error {
	part := rules.DecidingPart(l.era.rule, l.state, l.now(), rules.Queue{}, w.cost, false)
	d := Decision{Limit: l.era.rule.Capacity(), RetryAfter: Never, By: l.era.by(part)}
	return &LimitedError{Decision: d}
}

// Waiting returns how many callers wait in line.
func (l *Limiter) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.line.n
}

// serve lets go everyone whose turn has come by now.
func (l *Limiter) serve(now int64) {
	r := l.era.rule
	for w := l.line.first; w != nil && w.due <= now && w.due != unnamed; w = l.line.first {
		at := r.TurnTime(w.due, now)
		switch {
		case w.promise != nil:
			l.drop(w.promise.era, w.promise.after)
		case w.waited:
			l.state = rules.ChargeTurn(r, l.memory, l.state, w.due, now, w.cost)
		default:
			l.charge(at, w.cost)
		}
		l.line.remove(w, served)
		l.appoint(at)
	}
}

// appoint works out when the turn of the first in line comes, as of now.
func (l *Limiter) appoint(now int64) {
	w := l.line.first
	if w == nil || w.promise != nil {
		return
	}
	p := l.era.rule.Plan(l.state, now, 0, w.cost)
	w.due, w.waited = later(now, p.Wait), p.Wait != 0
}

// setTimer sees to it that serve is called when the first turn comes.
func (l *Limiter) setTimer(now int64) {
	w := l.line.first
	if w == nil || w.due == unnamed {
		if l.timing != idle {
			l.timer.Stop()
			l.timing = idle
		}
		return
	}
	if l.timing == w.due {
		return
	}
	l.timing = w.due
	d := time.Duration(max(w.due-now, 0))
	if l.timer == nil {
		l.timer = l.after(d, l.wake)
	} else {
		l.timer.Reset(d)
	}
}

// wake is what the timer calls.
func (l *Limiter) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timing = idle
	l.leave(l.enter())
}

// promiseAll charges everyone in line ahead, each at a time of its own.
func (l *Limiter) promiseAll(now int64) {
	if l.line.cost == 0 {
		return
	}
	for w := l.line.first; w != nil; w = w.next {
		if w.promise != nil {
			continue
		}
		w.promise = &promise{era: l.era}
		if l.era.rule.MovesPromises() {
			w.promise.before = slices.Clone(l.state)
		}
		w.due = l.promisedTurn(w, l.state, now)
		w.promise.after = l.book(now, w.due, w.cost)
	}
	l.line.cost, l.line.promised = 0, l.line.last
}

// planPromised is the plan of what comes after everyone in line, once each has been promised a time. Those who only wait are told a time
// that goes by volume, and may be too early; a promise is kept.
func (l *Limiter) planPromised(now, cost int64) rules.Plan {
	r, state, o := l.era.rule, slices.Clone(l.state), rules.Queue{}
	for w := l.line.first; w != nil; w = w.next {
		due := w.due
		if w.promise == nil {
			due = later(now, rules.PlanBehind(r, state, now, o, w.cost).Wait)
			state, _ = r.Book(state, now, due, w.cost)
		}
		o.Wait = rules.Until(due, now)
	}
	return rules.PlanBehind(r, state, now, o, cost)
}

// promisedTurn is when the turn of a waiter comes who was charged on top of a state.
func (l *Limiter) promisedTurn(w *waiter, before []int64, now int64) int64 {
	var o rules.Queue
	if w.prev != nil {
		o.Wait = rules.Until(w.prev.due, now)
	}
	return later(now, rules.PlanBehind(l.era.rule, before, now, o, w.cost).Wait)
}

// later is the time a wait after now.
func later(now, wait int64) int64 {
	if wait == rules.Never || uint64(wait) > rules.ClockLeft(now) {
		return unnamed
	}
	return now + wait
}

// reline goes through the line after a change of the limit: a cost that fits no more is let go, and those promised get a new time.
// then is now as the new rule reads time.
func (l *Limiter) reline(now, then int64, old rules.Rule) {
	r := l.era.rule
	for w := l.line.first; w != nil; {
		next := w.next
		p := w.promise
		if p != nil && w.due != unnamed && then != now {
			w.due = later(then, rules.Until(w.due, now))
		}
		switch {
		case w.cost > r.LargestCost():
			if p != nil {
				l.refund(then, p.era, p.after, w.cost)
			}
			l.line.remove(w, cast)
		case p != nil && p.before != nil:
			if !r.MovesPromises() {
				p.before = nil
				break
			}
			p.before = old.Convert(p.before, now, r, then)
			w.due = l.promisedTurn(w, p.before, now)
		}
		w = next
	}
}
