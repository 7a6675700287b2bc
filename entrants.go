package weir

import (
	"math"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// entrants is those who wait at a ConcurrencyLimiter, in the order in which they came. Its fields are guarded by the limiter's lock.
type entrants struct {
	first, last *entrant
	n           int
	cost        uint64   // of all
	largest     int64    // no cost is larger than this
	spare       *entrant // to be used again, linked by next
	spares      int
}

// An entrant is one who waits.
type entrant struct {
	next, prev *entrant
	ready      chan struct{} // holds one token once the state is not inLine
	cost       int64
	hold       Hold // once served
	state      waiting
}

// entrant returns one that was used before, if there is one.
func (q *entrants) entrant(cost int64) *entrant {
	w := q.spare
	if w == nil {
		return &entrant{ready: make(chan struct{}, 1), cost: cost}
	}
	q.spare, q.spares = w.next, q.spares-1
	*w = entrant{ready: w.ready, cost: cost}
	return w
}

// release keeps an entrant that nobody refers to any more, its token taken.
func (q *entrants) release(w *entrant) {
	if w.hold = (Hold{}); q.spares < maxSpares {
		w.next, q.spare = q.spare, w
		q.spares++
	}
}

// join puts an entrant at the end.
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

// remove takes an entrant out and lets it go.
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

// retry is a time after which a TryEnter of the cost succeeds if nobody else calls: sufficient, and not tight.
//
// Where nobody waits, enough of the holds have expired by then. Behind others: divide those who wait, and this call as the last, into
// groups, each as large as fits what there is when every hold that expires has done so. All that is held now is gone by latest, so
// the first group has entered by then; MaxHold later it is gone too, and as nobody overtakes the second has entered; and so on.
func (l *ConcurrencyLimiter) retry(now, free, cost int64) time.Duration {
	if l.queue.first == nil {
		return l.expires(now, free, cost)
	}
	room := free + l.returns
	largest := max(l.queue.largest, cost)
	if cost < 0 || cost > l.numbers.Limit || largest > room || l.latest == endless {
		return Never
	}
	// The bounds on how many groups there are: one for each who waits; each but the last is larger than room less the largest; and two in
	// a row are larger than room.
	total := min(l.queue.cost, math.MaxInt64) + uint64(cost)
	groups := min(uint64(l.queue.n)+1, 2*ceil(total, uint64(room))-1, ceil(total, uint64(room-largest+1)))
	if l.numbers.MaxHold == 0 && groups > 1 {
		return Never // the first would never expire
	}
	return time.Duration(rules.Until(rules.PlusTimes(max(l.latest, now), groups-1, int64(l.numbers.MaxHold)), now))
}

// expires is a time after which enough holds have expired for a cost, if nobody waits before it.
func (l *ConcurrencyLimiter) expires(now, free, cost int64) time.Duration {
	need := cost - free
	if cost < 0 || cost > l.numbers.Limit || need > l.returns {
		return Never
	}
	at := now
	for _, r := range l.expiring { // those that expire soon are among the first of a heap, though not in order
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
