package weir

import (
	"context"
	"math"
	"time"

	"github.com/weirflow/weir/internal/list"
	"github.com/weirflow/weir/internal/rules"
)

// entrants is the queue of a ConcurrencyLimiter, in the order of arrival. The limiter's lock guards
// its fields.
type entrants struct {
	waiters list.List[entrant]
	cost    uint64              // the sum of all costs
	largest int64               // an upper bound of the costs
	spares  list.Stack[entrant] // for reuse
}

// An entrant is one waiter.
type entrant struct {
	node  list.Node[entrant]
	ready chan struct{} // holds one token once the state is not queued
	cost  int64
	hold  Hold // set once the waiter was served
	state waiterState
}

// entrant returns an entrant, a spare one if there is one.
func (q *entrants) entrant(cost int64) *entrant {
	w := q.spares.Pop()
	if w == nil {
		return &entrant{ready: make(chan struct{}, 1), cost: cost}
	}
	*w = entrant{ready: w.ready, cost: cost}
	return w
}

// release keeps an entrant for reuse. Nobody may refer to it any more, and its token must have been
// taken.
func (q *entrants) release(w *entrant) {
	if w.hold = (Hold{}); q.spares.Len() < maxSpares {
		q.spares.Push(&w.node, w)
	}
}

// join appends an entrant.
func (q *entrants) join(w *entrant) {
	q.waiters.PushBack(&w.node, w)
	q.cost += uint64(w.cost)
	q.largest = max(q.largest, w.cost)
}

// remove removes an entrant, sets its state and wakes its goroutine.
func (q *entrants) remove(w *entrant, state waiterState) {
	q.waiters.Remove(&w.node)
	q.cost -= uint64(w.cost)
	if q.waiters.Len() == 0 {
		q.largest = 0
	}
	w.state = state
	w.ready <- struct{}{}
}

// retry returns a time after which a TryEnter of the cost succeeds if nobody else calls:
// sufficient, but not tight.
//
// If nobody waits, it is the time until enough holds have expired. Otherwise, divide the waiters,
// with this call as the last, into groups. Each group is as large as fits into what is free once
// every hold that expires has done so. All current holds have expired by latest, so the first group
// has entered by then. MaxHold later its holds have expired too, and as nobody overtakes, the
// second group has entered; and so on.
func (l *ConcurrencyLimiter) retry(now, free, cost int64) time.Duration {
	if l.queue.waiters.Len() == 0 {
		return l.expires(now, free, cost)
	}
	room := free + l.returns
	largest := max(l.queue.largest, cost)
	if cost < 0 || cost > l.numbers.Limit || largest > room || l.latest == endless {
		return Never
	}
	// Upper bounds on the number of groups: one per waiter; every group but the last is larger than
	// room minus the largest cost; and two successive groups together are larger than room.
	total := min(l.queue.cost, math.MaxInt64) + uint64(cost)
	groups := min(uint64(l.queue.waiters.Len())+1, 2*ceil(total, uint64(room))-1, ceil(total, uint64(room-largest+1)))
	if l.numbers.MaxHold == 0 && groups > 1 {
		return Never // the holds of the first group would never expire
	}
	return time.Duration(rules.Until(rules.PlusTimes(max(l.latest, now), groups-1, int64(l.numbers.MaxHold)), now))
}

// expires returns a time after which enough holds have expired for a cost, if nobody waits before
// it.
func (l *ConcurrencyLimiter) expires(now, free, cost int64) time.Duration {
	need := cost - free
	if cost < 0 || cost > l.numbers.Limit || need > l.returns {
		return Never
	}
	at := now
	// the next expiries are near the front, though not in order
	for i := 0; i < l.expiring.Len() && need > 0; i++ {
		if r, expiry := l.expiring.At(i); expiry != endless {
			need -= r.cost
			at = max(at, expiry)
		}
	}
	if need > 0 {
		return Never
	}
	return time.Duration(at - now)
}

// ceil is a/b, rounded up.
func ceil(a, b uint64) uint64 { return (a-1)/b + 1 }

// wait is EnterCost for a caller that got no place at once.
func (l *ConcurrencyLimiter) wait(ctx context.Context, cost int64) (Hold, error) {
	if cost < 0 {
		return Hold{}, ErrCost
	}
	if cost == 0 {
		return Hold{}, nil
	}
	w, h, err := l.joinQueue(cost)
	if w == nil {
		return h, err
	}
	return l.finish(w, awaitTurn(ctx, w.ready, func() bool { return l.giveUp(w) }))
}

// joinQueue takes a place at once, or puts an entrant in the queue, or refuses.
func (l *ConcurrencyLimiter) joinQueue(cost int64) (*entrant, Hold, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	h, free, ok := l.takePlace(now, cost)
	if ok {
		return nil, h, nil
	}
	if cost > l.numbers.Limit || int64(l.queue.waiters.Len()) >= l.numbers.Queue {
		var d Decision
		l.describe(&d, now, free, cost)
		if first := l.queue.waiters.First(); first != nil && int64(l.queue.waiters.Len()) == l.numbers.Queue && cost <= l.numbers.Limit {
			d.RetryAfter = l.expires(now, free, first.cost)
		}
		return nil, Hold{}, &LimitedError{Decision: d}
	}
	w := l.queue.entrant(cost)
	l.queue.join(w)
	return w, Hold{}, nil
}

// giveUp removes an entrant from the queue. It reports false if the entrant had already got a
// place, or had been refused.
func (l *ConcurrencyLimiter) giveUp(w *entrant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	if w.state != queued {
		return false
	}
	l.queue.remove(w, left)
	return true
}

// finish ends a wait: it returns the entrant's hold or error, and recycles the entrant.
func (l *ConcurrencyLimiter) finish(w *entrant, err error) (Hold, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := w.hold
	if w.state == cast {
		d := Decision{RetryAfter: Never}
		l.describe(&d, l.now(), l.free(), w.cost)
		err = &LimitedError{Decision: d}
	}
	l.queue.release(w)
	return h, err
}
