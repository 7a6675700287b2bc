package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weirflow/weir/internal/list"
	"github.com/weirflow/weir/internal/rules"
)

// ErrCosts means that a Group was given another number of costs than it has limiters. errors.Is
// finds it.
var ErrCosts = errors.New("weir: a group takes one cost for each of its limiters, in their order")

// A Group is several limiters of different resources that are charged together or not at all:
// requests and their bytes, or a tenant and the whole service. Each limiter has its own cost. If
// one cost counts for several limits of one resource, All is simpler.
//
// All methods are safe for concurrent use, also with direct calls of the limiters, and with other
// groups that share some of them. Only waiting allocates. A Group has no state besides its queue,
// starts no goroutine and needs no Close.
type Group struct {
	limiters []*Limiter // nil entries are skipped
	locks    []*Limiter // each limiter once, in the order in which they are locked
	twice    bool       // some limiter is listed more than once

	mu       sync.Mutex // taken before the limiters' locks
	readings []int64    // the clock of each limiter in locks
	queue    members
}

// NewGroup returns a group of limiters. Costs are given in the same order. A nil limiter is
// skipped. A limiter that is listed twice is charged in order: its second cost is evaluated after
// its first.
func NewGroup(limiters ...*Limiter) *Group {
	g := &Group{limiters: slices.Clone(limiters), queue: members{wake: make(chan struct{}, 1), ahead: make([]uint64, len(limiters))}}
	g.locks = slices.DeleteFunc(slices.Clone(limiters), func(l *Limiter) bool { return l == nil })
	given := len(g.locks)
	slices.SortFunc(g.locks, func(a, b *Limiter) int { return cmp.Compare(a.serial, b.serial) })
	g.locks = slices.Compact(g.locks)
	g.twice = len(g.locks) < given
	g.readings = make([]int64, len(g.locks))
	return g
}

// Take charges costs[i] to the i-th limiter: all of them at one moment, or none. A cost of 0 skips
// its limiter. If the number of costs is not that of the limiters, Take refuses with Never.
//
// It returns the decision of one limiter. If any limiter refuses, that is the one with the longest
// RetryAfter: Never counts as the longest, and the first wins a tie. That RetryAfter is the least
// time after which the same Take is admitted if nobody else calls. If all admit, it is the one with
// the least Remaining.
func (g *Group) Take(costs ...int64) Decision {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.decide(costs, true, g.queue.ahead)
}

// Peek returns the decision that Take would return, and charges nothing.
func (g *Group) Peek(costs ...int64) Decision {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.decide(costs, false, g.queue.ahead)
}

// decide evaluates all limiters behind the waiters, whose costs are ahead; nil for no waiters.
func (g *Group) decide(costs []int64, charge bool, ahead []uint64) (d Decision) {
	if len(costs) != len(g.limiters) {
		return Decision{RetryAfter: Never}
	}
	g.lock()
	defer g.unlock()
	for i, l := range g.limiters {
		if c := costs[i]; charge && l != nil && c > 0 && c <= l.version.rule.LargestCost() && len(l.state) == 0 {
			// a refusal stores the state of a first call, too
			l.state = l.version.rule.FirstCall(l.state, g.reading(l))
		}
	}
	if g.twice {
		return g.inOrder(costs, charge, ahead)
	}
	if d = g.all(costs, ahead, false); !d.Allowed || !charge {
		return d
	}
	return g.all(costs, ahead, true)
}

// all evaluates each limiter, and returns the group's decision.
func (g *Group) all(costs []int64, ahead []uint64, charge bool) Decision {
	d, evaluated := Decision{Allowed: true}, false
	for i, l := range g.limiters {
		if l != nil {
			merge(&d, g.evaluate(i, costs[i], ahead, charge), evaluated)
			evaluated = true
		}
	}
	return d
}

// lock takes the locks of all limiters, and reads the time once for all of them.
func (g *Group) lock() {
	for _, l := range g.locks {
		l.mu.Lock()
	}
	t := time.Now()
	for i, l := range g.locks {
		g.readings[i] = l.enterAt(t)
	}
}

func (g *Group) unlock() {
	for i, l := range g.locks {
		l.leave(g.readings[i])
		l.mu.Unlock()
	}
}

// reading returns the time that lock read for a limiter.
func (g *Group) reading(l *Limiter) int64 { return g.readings[slices.Index(g.locks, l)] }

// inOrder is decide for a group that lists a limiter more than once. It charges all costs on trial,
// restores all states, and charges for good only if every limiter admitted.
func (g *Group) inOrder(costs []int64, charge bool, ahead []uint64) Decision {
	was := make([][]int64, len(g.locks))
	memories := make([]*rules.Memory, len(g.locks))
	for i, l := range g.locks {
		was[i], memories[i] = slices.Clone(l.state), l.memory
		l.memory = nil // only real charges are recorded
	}
	each := make([]Decision, len(g.limiters))
	admitted := true
	for i, l := range g.limiters {
		if l != nil {
			each[i] = g.evaluate(i, costs[i], ahead, true)
			admitted = admitted && each[i].Allowed
		}
	}
	for i, l := range g.locks {
		l.state, l.memory = append(l.state[:0], was[i]...), memories[i]
	}
	if admitted && charge {
		return g.all(costs, ahead, true)
	}
	d, evaluated := Decision{Allowed: true}, false
	for i, l := range g.limiters {
		if l == nil {
			continue
		}
		if !each[i].Allowed {
			retry := g.retryInOrder(l, costs)
			if l.queue.waiters.Len() > 0 || ahead != nil && ahead[i] > 0 { // waiters go first
				retry = rules.Longest(retry, int64(each[i].RetryAfter))
			}
			each[i].RetryAfter = time.Duration(retry)
		}
		merge(&d, each[i], evaluated)
		evaluated = true
	}
	return d
}

// retryInOrder returns how long all costs of a limiter have to wait, without the group's queue. The wait
// of the cost that was refused is only a part of that: the costs before it are charged later, too.
func (g *Group) retryInOrder(l *Limiter, costs []int64) int64 {
	var own []int64
	for i, c := range costs {
		if g.limiters[i] == l {
			own = append(own, c)
		}
	}
	return rules.RetryInOrder(l.version.rule, l.state, g.reading(l), own)
}

// evaluate returns the decision of one limiter.
func (g *Group) evaluate(i int, cost int64, ahead []uint64, charge bool) Decision {
	l := g.limiters[i]
	now := g.reading(l)
	o := l.queue.aheadOf(now)
	if ahead != nil {
		o.Cost += min(ahead[i], math.MaxUint64-o.Cost)
	}
	var v rules.Verdict
	if charge {
		v = l.take(now, o, cost)
	} else {
		v = rules.Peek(l.version.rule, l.state, now, o, cost)
	}
	return l.version.decision(v)
}

// merge merges the decision of one limiter into the group's. evaluated is false for the first.
func merge(d *Decision, one Decision, evaluated bool) {
	switch {
	case !evaluated,
		d.Allowed && (!one.Allowed || one.Remaining < d.Remaining),
		!d.Allowed && !one.Allowed && rules.Longest(int64(one.RetryAfter), int64(d.RetryAfter)) != int64(d.RetryAfter):
		*d = one
	}
}

// Wait blocks the caller until all costs may go together, and charges them then. The group's
// waiters go in the order in which they came, and while any of them waits, the group's Take is
// refused.
//
// The group reserves nothing for its waiters: direct calls of a limiter are not held back by them.
// If such calls never leave enough for all costs, Wait waits until the context ends.
//
// Wait returns at once and charges nothing if no wait helps, or if the turn would come after the
// context's deadline. The error is a *LimitedError: errors.Is finds ErrLimited in it, and for the
// deadline context.DeadlineExceeded. If the context ends first, Wait returns its error, and the
// callers behind it move up. A cost below 0 is ErrCost, and a wrong number of costs is ErrCosts.
func (g *Group) Wait(ctx context.Context, costs ...int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(costs) != len(g.limiters) {
		return fmt.Errorf("%w: %d, for %d limiters", ErrCosts, len(costs), len(g.limiters))
	}
	for _, c := range costs {
		if c < 0 {
			return ErrCost
		}
	}
	m, err := g.joinQueue(ctx, costs)
	if m == nil {
		return err
	}
	defer g.leave(m)
	select {
	case <-m.first:
	case <-ctx.Done():
		return ctx.Err()
	}
	return g.waitAsFirst(ctx, m)
}

// joinQueue charges at once and returns nil, nil; or refuses; or takes the last place in the queue.
func (g *Group) joinQueue(ctx context.Context, costs []int64) (*member, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.decide(costs, true, g.queue.ahead)
	switch deadline, ok := ctx.Deadline(); {
	case d.Allowed:
		return nil, nil
	case d.RetryAfter == Never || !g.queue.hasRoom(costs):
		d.RetryAfter = Never
		return nil, &LimitedError{Decision: d}
	case ok:
		if within := max(time.Until(deadline), 0); d.RetryAfter > within {
			d.RetryAfter -= within
			return nil, &LimitedError{Decision: d, Deadline: true}
		}
	}
	m := &member{costs: slices.Clone(costs), first: make(chan struct{}, 1)}
	if g.queue.join(m); g.queue.waiting.Len() == 1 {
		for _, l := range g.locks {
			l.addListener(g.queue.wake)
		}
	}
	return m, nil
}

// waitAsFirst waits until the first waiter may go. It sleeps for RetryAfter, and wakes early if one
// of the limiters gives something back.
func (g *Group) waitAsFirst(ctx context.Context, m *member) error {
	var timer Timer
	for {
		g.mu.Lock()
		d := g.decide(m.costs, true, nil)
		g.mu.Unlock()
		switch {
		case d.Allowed:
			return nil
		case d.RetryAfter == Never:
			return &LimitedError{Decision: d}
		case timer == nil:
			timer = g.locks[0].after(d.RetryAfter, g.queue.signalFirst)
			defer timer.Stop()
		default:
			timer.Reset(d.RetryAfter)
		}
		select {
		case <-g.queue.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leave removes a member from the queue, served or not.
func (g *Group) leave(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.queue.remove(m); g.queue.waiting.Len() == 0 {
		for _, l := range g.locks {
			l.removeListener(g.queue.wake)
		}
	}
}

// Waiting returns how many callers wait in the group's queue.
func (g *Group) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queue.waiting.Len()
}

// members is the queue of a group, in the order of arrival. The group's lock guards its fields.
type members struct {
	waiting list.List[member]
	ahead   []uint64      // the sum of the waiting costs, for each limiter
	wake    chan struct{} // wakes the first member, to evaluate again
}

// A member is one waiter of a group.
type member struct {
	node  list.Node[member]
	costs []int64
	first chan struct{} // holds one token once the member is the first
}

func (q *members) signalFirst() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *members) join(m *member) {
	if q.waiting.PushBack(&m.node, m); q.waiting.Len() == 1 {
		m.first <- struct{}{}
	}
	for i, c := range m.costs {
		q.ahead[i] += uint64(c)
	}
}

// hasRoom reports whether costs can be added to the waiting costs without overflow.
func (q *members) hasRoom(costs []int64) bool {
	for i, c := range costs {
		if q.ahead[i] > math.MaxUint64-uint64(c) {
			return false
		}
	}
	return true
}

func (q *members) remove(m *member) {
	second := m.node.Next()
	if m == q.waiting.First() && second != nil {
		second.first <- struct{}{}
	}
	q.waiting.Remove(&m.node)
	for i, c := range m.costs {
		q.ahead[i] -= uint64(c)
	}
}

// addListener registers a channel that signalListeners signals.
func (l *Limiter) addListener(c chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bells = append(l.bells, c)
}

func (l *Limiter) removeListener(c chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.bells, c); i >= 0 {
		l.bells = slices.Delete(l.bells, i, i+1)
	}
}

// signalListeners signals the listeners, under the lock: the limiter may admit more, or sooner,
// than it said.
func (l *Limiter) signalListeners() {
	for _, c := range l.bells {
		select {
		case c <- struct{}{}:
		default: // the listener has an unread signal already
		}
	}
}
