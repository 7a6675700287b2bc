package weirsql

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A queue holds the requests that wait for a round trip. It has a few senders at a time: goroutines
// that make round trips, each with all requests that wait, up to a bound.
type queue struct {
	mu      sync.Mutex
	waiting []*request
	lanes   []*lane // those without a sender
	closed  bool
	// with so many waiting, those whose callers have left are removed: while no round trip ends, no sender
	// does it
	sweepAt int
}

// A lane sends one call at a time, each with a higher number than the one before: so the server has to
// remember only the latest one to know a repeated call again.
type lane struct {
	id      int64
	number  int64
	refused bool // a charge of the latest call: see key.sql
}

// maxCharges is how many charges a call carries, unless one batch has more: their keys are locked
// together.
const maxCharges = 128

// minSweep is how many requests may always wait.
const minSweep = 256

// errLate is for a request whose caller has left, or its end has come, and which was not carried out.
var errLate = fmt.Errorf("weirsql: no reply in time; nothing was charged: %w", context.DeadlineExceeded)

// add hands a request in. It reports false after the end.
func (q *queue) add(s *Store, r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	if len(q.waiting) >= max(q.sweepAt, minSweep) {
		q.sweep(time.Now())
	}
	q.waiting = append(q.waiting, r)
	if n := len(q.lanes); n > 0 {
		l := q.lanes[n-1]
		q.lanes = q.lanes[:n-1]
		s.sending.Go(func() { s.send(l) })
	}
	return true
}

// sweep ends requests whose callers have left.
func (q *queue) sweep(now time.Time) {
	kept := q.waiting[:0]
	for _, r := range q.waiting {
		if r.waits(now) {
			kept = append(kept, r)
		} else {
			r.finish(errLate)
		}
	}
	clear(q.waiting[len(kept):])
	q.waiting, q.sweepAt = kept, 2*len(kept)
}

// next returns what a sender takes from the queue. Nothing means that the sender ends.
func (q *queue) next(l *lane) (taken []*request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, n, charges := time.Now(), 0, 0
	for ; n < len(q.waiting); n++ {
		r := q.waiting[n]
		if !r.waits(now) {
			r.finish(errLate)
			continue
		}
		if len(taken) > 0 && charges+len(r.charges) > maxCharges {
			break
		}
		taken = append(taken, r)
		charges += len(r.charges)
	}
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
	if taken == nil {
		q.lanes = append(q.lanes, l)
		if cap(q.waiting) > minSweep {
			q.waiting = nil
		}
	}
	return taken
}

// close refuses further requests.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// send makes round trips while requests wait.
func (s *Store) send(l *lane) {
	for requests := s.queue.next(l); requests != nil; requests = s.queue.next(l) {
		s.carry(l, requests)
	}
}
