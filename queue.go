package weir

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/weirflow/weir/internal/list"
	"github.com/weirflow/weir/internal/rules"
)

// waitQueue is the queue of a limiter, in the order of arrival. The limiter's lock guards its
// fields.
//
// A waiter is charged when its turn comes, and not before. So a waiter that leaves has nothing to
// give back, and all waiters behind it move up. Only a Reserve behind them changes that, as it must
// know its time at once: every waiter is then charged ahead and promised a time, like a
// reservation. Promised waiters are always at the front of the queue.
type waitQueue struct {
	waiters  list.List[waiter]
	promised *waiter            // the last promised waiter
	cost     uint64             // the sum of the costs that are not promised
	spares   list.Stack[waiter] // for reuse by Wait
}

// maxSpares bounds the spare waiters, which a queue that was once long keeps.
const maxSpares = 1024

// timerOff is the value of Limiter.timing while the timer is not set.
const timerOff = math.MinInt64

// unknownTurn is the due of a waiter whose turn lies beyond the horizon. A change of the limit, or
// time, may bring it nearer.
const unknownTurn = rules.Unnamed

// A waiter is one place in the queue.
type waiter struct {
	node    list.Node[waiter]
	ready   chan struct{} // holds one token, or is closed for a Place, once the state is not queued
	cost    int64
	due     int64 // when the turn comes; only valid for promised waiters and the first waiter
	promise *promise
	state   waiterState
	waited  bool // the turn was in the future when due was set
	place   bool
	keep    bool // the charge can be settled after the turn, and has not been
}

// waiterState is the state of a waiter.
type waiterState uint8

const (
	queued waiterState = iota
	served             // charged: may go
	left               // gave its place up
	cast               // refused: its cost no longer fits the limit
)

// A promise is the charge of a waiter that can be given back: the waiter was charged ahead, or is
// kept.
type promise struct {
	version *version
	after   rules.Receipt
	// before is the state just before the charge. Only rules that recompute promised times when the
	// limit changes need it; other rules keep the promised times.
	before []int64
}

// aheadOf returns the queue that a new caller finds: nobody goes before the last promised waiter,
// nor before the first waiter.
func (q *waitQueue) aheadOf(now int64) rules.Queue {
	o := rules.Queue{Cost: q.cost}
	last := q.promised
	if last == nil {
		last = q.waiters.First()
	}
	switch {
	case last == nil:
	case last.due == unknownTurn:
		o.Wait = unknownTurn
	default:
		o.Wait = rules.Until(last.due, now)
	}
	return o
}

// join appends a waiter.
func (q *waitQueue) join(w *waiter) {
	w.state = queued
	q.waiters.PushBack(&w.node, w)
	q.cost += uint64(w.cost)
}

// remove removes a waiter, sets its state and wakes its goroutine.
func (q *waitQueue) remove(w *waiter, state waiterState) {
	switch {
	case w.promise == nil:
		q.cost -= uint64(w.cost)
	case w == q.promised:
		q.promised = w.node.Prev()
	}
	q.waiters.Remove(&w.node)
	w.state = state
	if w.place {
		close(w.ready)
	} else {
		w.ready <- struct{}{}
	}
}

// waiter returns a waiter for Wait, a spare one if there is one.
func (q *waitQueue) waiter(cost int64) *waiter {
	w := q.spares.Pop()
	if w == nil {
		return &waiter{ready: make(chan struct{}, 1), cost: cost}
	}
	*w = waiter{ready: w.ready, cost: cost}
	return w
}

// release keeps a waiter for reuse. Nobody may refer to it any more, and its token must have been
// taken.
func (q *waitQueue) release(w *waiter) {
	if q.spares.Len() < maxSpares {
		w.promise = nil
		q.spares.Push(&w.node, w)
	}
}

// Wait blocks the caller until cost units may go, and charges them then. Waiters are served in the
// order in which they came. While anyone waits, Take and Allow are refused.
//
// Wait returns at once and charges nothing if no wait helps, if a LeakyBucket's queue is full, or
// if the turn would come after the context's deadline. The error is a *LimitedError: errors.Is
// finds ErrLimited in it, and for the deadline context.DeadlineExceeded. If the context ends first,
// Wait returns its error; nothing is charged, and the callers behind it move up. A cost below 0 is
// ErrCost. A cost of 0 never waits.
//
// The whole queue sleeps on one timer. A turn comes at most one clock unit after that of the exact
// model; how late a goroutine then wakes is up to the Go runtime (see bench/).
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
	w, err := l.joinQueue(cost, within)
	if w == nil {
		return err
	}
	return l.finish(w, awaitTurn(ctx, w.ready, func() bool { return l.giveUp(w) }))
}

// awaitTurn waits until a waiter is served or refused. If the context ends before that, the waiter
// gives up, and the error is the context's, unless its turn came at the same time.
func awaitTurn(ctx context.Context, ready <-chan struct{}, giveUp func() bool) (err error) {
	select {
	case <-ready:
	case <-ctx.Done():
		if giveUp() {
			err = ctx.Err()
		}
		<-ready
	}
	return err
}

// joinQueue charges at once and returns nil, nil; or puts a waiter in the queue; or refuses, with
// the error that Wait returns. within is the longest wait in clock units; below 0, any wait is
// accepted.
func (l *Limiter) joinQueue(cost, within int64) (*waiter, error) {
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
	w := l.queue.waiter(cost)
	w.due = later(now, p.Wait)
	l.queue.join(w)
	return w, nil
}

// planAhead is the common part of Reserve, Wait and Join: when the cost could go, and whether that
// is soon enough. The decision describes the state before the charge.
func (l *Limiter) planAhead(now, cost, within int64) (rules.Plan, Decision) {
	ver, o := l.version, l.queue.aheadOf(now)
	r := ver.rule
	if cost <= 0 || cost > r.LargestCost() {
		d := ver.decision(rules.Peek(r, l.state, now, o, cost))
		if d.Allowed {
			return rules.Plan{}, d
		}
		return rules.Plan{Wait: rules.Never, Room: rules.Never}, d
	}
	if len(l.state) == 0 {
		l.state = r.FirstCall(l.state, now)
	}
	p := rules.PlanBehind(r, l.state, now, o, cost)
	if o.Cost > math.MaxUint64-uint64(cost) {
		p.Wait = rules.Never
	}
	retry := int64(0)
	if !p.Accepts(within) {
		retry = p.RetryWithin(within)
	}
	return p, ver.decision(rules.Describe(r, l.state, now, o, cost, retry))
}

// afterCharge replaces a decision that allows by one about the state after the charge, like Take's.
func (l *Limiter) afterCharge(d *Decision, now, cost int64) {
	*d = l.version.decision(rules.Describe(l.version.rule, l.state, now, l.queue.aheadOf(now), cost, 0))
}

// giveUp removes a waiter from the queue. It reports false if the waiter had already been served or
// refused.
func (l *Limiter) giveUp(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	if w.state != queued {
		return false
	}
	l.leaveQueue(now, w)
	return true
}

// leaveQueue removes a waiter that gives up, and gives back what it was charged ahead.
func (l *Limiter) leaveQueue(now int64, w *waiter) {
	if p := w.promise; p != nil {
		l.refund(now, p.version, p.after, w.cost)
	}
	l.queue.remove(w, left)
	l.signalListeners()
}

// finish ends a Wait and recycles the waiter.
func (l *Limiter) finish(w *waiter, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.state == cast {
		err = l.errorOfWaiter(w)
	}
	l.queue.release(w)
	return err
}

// errorOfWaiter returns the error of a waiter whose cost no longer fits the limit.
func (l *Limiter) errorOfWaiter(w *waiter) error {
	part := rules.DecidingPart(l.version.rule, l.state, l.now(), rules.Queue{}, w.cost, false)
	d := Decision{Limit: l.version.rule.Capacity(), RetryAfter: Never, By: l.version.by(part)}
	return &LimitedError{Decision: d}
}

// Waiting returns how many callers wait in the limiter's queue.
func (l *Limiter) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.waiters.Len()
}

// serve serves every waiter whose turn has come by now.
func (l *Limiter) serve(now int64) {
	r := l.version.rule
	for w := l.queue.waiters.First(); w != nil && w.due <= now && w.due != unknownTurn; w = l.queue.waiters.First() {
		at := r.TurnTime(w.due, now)
		switch {
		case w.promise != nil:
			if !w.keep {
				l.drop(w.promise.version, w.promise.after)
			}
		case w.keep:
			l.serveKept(w, at, now)
			l.computeTurn(at)
			continue
		case w.waited:
			l.state = rules.ChargeTurn(r, l.memory, l.state, w.due, now, w.cost)
		default:
			l.charge(at, w.cost)
		}
		l.queue.remove(w, served)
		l.computeTurn(at)
	}
}

// serveKept serves a waiter whose turn has come, and whose charge can be given back.
func (l *Limiter) serveKept(w *waiter, at, now int64) {
	p := &promise{version: l.version}
	if w.waited {
		p.after = l.reserveTurn(w.due, now, w.cost)
	} else {
		p.after = l.reserve(at, at, w.cost)
	}
	l.queue.remove(w, served)
	w.promise = p // only now: remove must not take it for a waiter that was charged ahead
}

// computeTurn computes when the turn of the first waiter comes, as of now.
func (l *Limiter) computeTurn(now int64) {
	w := l.queue.waiters.First()
	if w == nil || w.promise != nil {
		return
	}
	p := l.version.rule.Plan(l.state, now, 0, w.cost)
	w.due, w.waited = later(now, p.Wait), p.Wait != 0
}

// setTimer sets the timer for the turn of the first waiter.
func (l *Limiter) setTimer(now int64) {
	w := l.queue.waiters.First()
	if w == nil || w.due == unknownTurn {
		if l.timing != timerOff {
			l.timer.Stop()
			l.timing = timerOff
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

func (l *Limiter) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timing = timerOff
	l.leave(l.enter())
}

// promiseAll charges every waiter ahead, each at its own time.
func (l *Limiter) promiseAll(now int64) {
	if l.queue.cost == 0 {
		return
	}
	for w := l.queue.waiters.First(); w != nil; w = w.node.Next() {
		if w.promise != nil {
			continue
		}
		w.promise = &promise{version: l.version}
		if l.version.rule.MovesPromises() {
			w.promise.before = slices.Clone(l.state)
		}
		w.due = l.promisedTurn(w, l.state, now)
		w.promise.after = l.reserve(now, w.due, w.cost)
	}
	l.queue.cost, l.queue.promised = 0, l.queue.waiters.Last()
}

// planPromised returns the plan of a cost behind the whole queue, once each waiter has been
// promised a time. It is exact because a promise is kept: for waiters without a promise, the usual
// estimate goes by volume and may be too early.
func (l *Limiter) planPromised(now, cost int64) rules.Plan {
	r, state, o := l.version.rule, slices.Clone(l.state), rules.Queue{}
	for w := l.queue.waiters.First(); w != nil; w = w.node.Next() {
		due := w.due
		if w.promise == nil {
			due = later(now, rules.PlanBehind(r, state, now, o, w.cost).Wait)
			state, _ = r.Book(state, now, due, w.cost)
		}
		o.Wait = rules.Until(due, now)
	}
	return rules.PlanBehind(r, state, now, o, cost)
}

// promisedTurn returns when the turn of a waiter comes that is charged on top of state before.
func (l *Limiter) promisedTurn(w *waiter, before []int64, now int64) int64 {
	var o rules.Queue
	if ahead := w.node.Prev(); ahead != nil {
		o.Wait = rules.Until(ahead.due, now)
	}
	return later(now, rules.PlanBehind(l.version.rule, before, now, o, w.cost).Wait)
}

// later returns the time that is wait after now.
func later(now, wait int64) int64 {
	if wait == rules.Never || uint64(wait) > rules.ClockLeft(now) {
		return unknownTurn
	}
	return now + wait
}

// updateQueue updates the queue after a change of the limit: a waiter whose cost no longer fits is
// refused, and promised waiters get a new time. then is now as the new rule reads time.
func (l *Limiter) updateQueue(now, then int64, old rules.Rule) {
	r := l.version.rule
	for w := l.queue.waiters.First(); w != nil; {
		next := w.node.Next()
		p := w.promise
		if p != nil && w.due != unknownTurn && then != now {
			w.due = later(then, rules.Until(w.due, now))
		}
		switch {
		case w.cost > r.LargestCost():
			if p != nil {
				l.refund(then, p.version, p.after, w.cost)
			}
			l.queue.remove(w, cast)
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
