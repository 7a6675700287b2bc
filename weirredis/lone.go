package weirredis

import (
	"context"
	"time"
)

// soonEnough is how long a caller may be kept after its context was cancelled: a client that reads its reply
// in the caller's goroutine sees the deadline of a context, and not always that it is cancelled.
const soonEnough = 50 * time.Millisecond

// lone makes the first attempt for a request in the caller's goroutine, if no other request is waiting or in
// flight. Handing it to a sender would wake two goroutines, which takes longer than the script. While the server
// does not reply it is handed over nevertheless: a client that connects again may not look at deadlines.
//
// It reports whether the request is complete. If it is not, and done is set, a goroutine makes further attempts;
// if done is not set, nothing was sent.
func (s *Store) lone(ctx context.Context, r *request) (complete bool) {
	if !s.queues.part(r.slot).answers.Load() {
		return false
	}
	q := s.queues.lone(s, r)
	if q == nil {
		return false
	}
	if s.opts.Cluster {
		s.askAgain(askEvery)
	}
	all := s.attempt(ctx, s.exchanges([]*request{r}))
	if len(all) == 0 || all[0].over {
		s.queues.release(s, q)
		return true
	}
	r.done = make(chan struct{})
	go func() {
		s.carryOn(all, false)
		s.queues.release(s, q)
	}()
	return false
}

// lone takes the place of a sender for the caller of a request, if there is no sender. The caller gives it back
// by release.
func (all *queues) lone(s *Store, r *request) *queue {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return nil
	}
	q := all.queue(s, r.slot)
	if q.senders > 0 || len(q.waiting) > 0 {
		return nil
	}
	q.senders++
	s.sending.Add(1)
	return q
}

// release gives the place of a sender back, or to a goroutine if requests wait.
func (all *queues) release(s *Store, q *queue) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(q.waiting) > 0 {
		go s.send(q)
		return
	}
	q.senders--
	all.drop(q)
	s.sending.Done()
}
