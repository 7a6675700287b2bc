package weir

import (
	"math"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// entrants is the queue of a ConcurrencyLimiter, in the order of arrival. The limiter's lock guards
// its fields.
type entrants struct {
	first, last *entrant
	n           int
	cost        uint64   // the sum of all costs
	largest     int64    // an upper bound of the costs
	spare       *entrant // free list for reuse, linked by next
	spares      int
}

// An entrant is one waiter.
type entrant struct {
	next, prev *entrant
	ready      chan struct{} // holds one token once the state is not inLine
	cost       int64
	hold       Hold // set once the waiter was served
	state      waiting
}

// entrant returns an entrant, from the free list if it has one.
func (q *entrants) entrant(cost int64) *entrant {
	w := q.spare
	if w == nil {
		return &entrant{ready: make(chan struct{}, 1), cost: cost}
	}
	q.spare, q.spares = w.next, q.spares-1
	*w = entrant{ready: w.ready, cost: cost}
	return w
}

// release puts an entrant on the free list. Nobody may refer to it any more, and its token must
// have been taken.
func (q *entrants) release(w *entrant) {
	if w.hold = (Hold{}); q.spares < maxSpares {
		w.next, q.spare = q.spare, w
		q.spares++
	}
}

// join appends an entrant.
func (q *entrants) join(w *entrant) {
	w.prev = q.last
	if q.last != nil {
		q.last.next = w
	} else {
		q.first = w
	}
	q.last = w
	q.n++
	q.cost += uint64(w.cost)
	q.largest = max(q.largest, w.cost)
}

// remove removes an entrant, sets its state and wakes its goroutine.
func (q *entrants) remove(w *entrant, state waiting) {
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
	q.cost -= uint64(w.cost)
	if q.n--; q.n == 0 {
		q.largest = 0
	}
	w.next, w.prev, w.state = nil, nil, state
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
	if l.queue.first == nil {
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
	groups := min(uint64(l.queue.n)+1, 2*ceil(total, uint64(room))-1, ceil(total, uint64(room-largest+1)))
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
	for _, r := range l.expiring { // a heap has the next expiries near its front, though not in order
		if need <= 0 {
			break
		}
		if r.expiry != endless {
			need -= r.cost
			at = max(at, r.expiry)
		}
	}
	if need > 0 {
		return Never
	}
	return time.Duration(at - now)
}

// ceil is a/b, rounded up.
func ceil(a, b uint64) uint64 { return (a-1)/b + 1 }
