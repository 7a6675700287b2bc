package weirredis

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirflow/weir"
)

// ErrLost is the cause with which a Hold's context ends when the hold was not extended in time, or
// the server lost it.
var ErrLost = errors.New("weirredis: the hold is lost: it was not extended in time, or the server lost it")

// A Hold is a place held in Redis. It is a plain value; copies are the same hold. The zero Hold
// holds nothing, and its methods are harmless. A caller that enters must call Done: until then the
// store extends the hold, for as long as the process lives. All methods are safe for concurrent
// use.
type Hold struct{ h *heldPlace }

// heldPlace is the place of a Hold. The lock of the store's holds guards the fields that change.
type heldPlace struct {
	c      *Concurrency
	key    string // in Redis
	id     string
	cost   int64
	fence  int64
	unsure time.Time // the end of a question to enter that the server may still receive
	lost   chan struct{}

	over    bool
	beating bool          // a heartbeat is in flight
	span    time.Duration // MaxHold when it was last sent
	until   time.Time     // the place is held for sure before this
	next    time.Time     // heartbeat
	ends    []context.CancelCauseFunc
}

// Done leaves the place, and counts the outcome. The first Done wins; later ones do nothing, and so
// does one after the hold was lost. Done does not wait: the server is notified in the background,
// with retries until it confirms or the hold would have ended anyway.
func (h Hold) Done(o weir.Outcome) {
	if h.h != nil && h.h.c.store.leave(h.h) {
		h.h.c.count(o)
	}
}

// Fence returns a number that is larger than that of each hold given before for the key: at least
// the server's microseconds since the Unix epoch, so that it grows even if the server has lost its
// data. A resource that remembers the largest number it has seen, and refuses smaller ones, is safe
// from a holder that goes on working after its hold has ended.
func (h Hold) Fence() int64 {
	if h.h == nil {
		return 0
	}
	return h.h.fence
}

// Lost returns a channel that is closed when the place may be another's: no heartbeat got through
// for MaxHold, the server lost the hold, or the store was closed. The work should stop
// then. After Done the channel is never closed.
func (h Hold) Lost() <-chan struct{} {
	if h.h == nil {
		return nil
	}
	return h.h.lost
}

// Held reports whether the place is still held, by this process's own clock. It makes no call.
func (h Hold) Held() bool {
	if h.h == nil {
		return false
	}
	all := &h.h.c.store.holds
	all.mu.Lock()
	defer all.mu.Unlock()
	return !h.h.over && time.Now().Before(h.h.until)
}

// Context returns a context for the work. It ends with the parent, with Done, and, if the hold is
// lost, with the cause ErrLost.
func (h Hold) Context(parent context.Context) context.Context {
	if h.h == nil {
		return parent // the zero Hold cannot be lost
	}
	ctx, cancel := context.WithCancelCause(parent)
	all := &h.h.c.store.holds
	all.mu.Lock()
	defer all.mu.Unlock()
	h.h.ends = append(h.h.ends, cancel)
	if h.h.over {
		cancel(ErrLost)
	}
	return ctx
}

// end ends a hold, and its contexts with the cause. It reports false if the hold has ended before.
// The lock of the holds is held.
func (h *heldPlace) end(cause error) bool {
	if h.over {
		return false
	}
	h.over = true
	delete(h.c.store.holds.all, h)
	for _, end := range h.ends {
		end(cause)
	}
	h.ends = nil
	return true
}

// lose ends a hold whose place may be another's. The lock of the holds is held.
func (h *heldPlace) lose() {
	if h.end(ErrLost) {
		h.c.lost.Add(1)
		close(h.lost)
	}
}

// holds are those of this process, with one timer for their heartbeats. Its lock comes before that
// of the queues.
type holds struct {
	mu     sync.Mutex
	closed bool
	all    map[*heldPlace]struct{}
	leaves sync.WaitGroup // that the server has not confirmed
	timer  *time.Timer
	due    time.Time // when the timer goes off
}

func (all *holds) isClosed() bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.closed
}

// hold begins the heartbeats of a new hold. It reports false after Close.
func (s *Store) hold(h *heldPlace, sent time.Time) bool {
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	if s.holds.closed {
		return false
	}
	if s.holds.all == nil {
		s.holds.all = map[*heldPlace]struct{}{}
	}
	s.holds.all[h] = struct{}{}
	h.extended(sent)
	s.arm(h.next)
	return true
}

// extended notes that a hold lasts for its span, from the time at which the question was sent.
func (h *heldPlace) extended(sent time.Time) {
	h.beating, h.until, h.next = false, sent.Add(h.span), sent.Add(h.span/beats)
}

// beats is how many heartbeats are sent in the span of a hold.
const beats = 3

// arm has beat called by then. The lock of the holds is held.
func (s *Store) arm(at time.Time) {
	all := &s.holds
	switch {
	case all.closed || !all.due.IsZero() && !at.Before(all.due):
		return
	case all.timer == nil:
		all.timer = time.AfterFunc(time.Until(at), s.beat)
	default:
		all.timer.Reset(time.Until(at))
	}
	all.due = at
}

// beat sends the heartbeats that are due, or nearly due, in few calls, and ends holds that were not
// extended in time.
func (s *Store) beat() {
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	s.holds.due = time.Time{}
	now := time.Now()
	var due []*request
	var wake time.Time
	for h := range s.holds.all {
		if !now.Before(h.until) {
			h.lose()
			continue
		}
		if !h.beating && h.next.Before(now.Add(h.span/(4*beats))) {
			due = append(due, s.heartbeat(h, now))
		}
		at := h.until
		if !h.beating && h.next.Before(at) {
			at = h.next
		}
		if wake.IsZero() || at.Before(wake) {
			wake = at
		}
	}
	if !wake.IsZero() {
		s.arm(wake)
	}
	if len(due) > 0 && !s.holds.closed {
		s.queues.add(s, due...)
	}
}

// heartbeat returns the request that extends a hold to MaxHold from when it is sent. If it fails,
// another one is sent soon.
func (s *Store) heartbeat(h *heldPlace, now time.Time) *request {
	l := h.c.Limit()
	h.beating, h.span = true, l.MaxHold
	p := s.newPlace(placeOp{op: opExtend, key: h.key, id: h.id, cost: h.cost, limit: l.Limit, span: int64(l.MaxHold / tick)})
	p.end = now.Add(min(s.opts.Timeout, max(h.span/(2*beats), time.Millisecond)))
	p.then = func(*request) {
		s.holds.mu.Lock()
		defer s.holds.mu.Unlock()
		switch {
		case h.over:
			return
		case p.err != nil:
			h.beating, h.next = false, time.Now().Add(h.span/(4*beats))
		case p.answer.code != codeHeld:
			h.lose()
			return
		default:
			until := h.until
			if h.extended(p.sent); h.until.Before(until) {
				h.until = until // MaxHold is shorter now; the earlier promise stays
			}
		}
		s.arm(h.next)
	}
	return &p.request
}

// leave ends a hold, and notifies the server. It reports false if the hold has ended before.
func (s *Store) leave(h *heldPlace) bool {
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	until := h.until
	if !h.end(context.Canceled) {
		return false
	}
	s.leaveLocked(h.key, h.id, h.unsure, until)
	return true
}

// leaveLocked notifies the server that an id has left, with retries.
func (s *Store) leaveLocked(key, id string, unsure, until time.Time) {
	if s.holds.closed {
		return
	}
	if most := time.Now().Add(leaving); until.After(most) {
		until = most
	}
	p := s.newPlace(placeOp{op: opLeave, key: key, id: id, limit: 1, unsure: unsure})
	p.end, p.then = until, func(*request) { s.holds.leaves.Done() }
	s.holds.leaves.Add(1)
	if !s.queues.add(s, &p.request) {
		s.holds.leaves.Done()
	}
}

// leaving is how long the store retries to notify the server that a holder has left. After that
// the place comes back when its hold expires.
const leaving = 10 * time.Second

// closeHolds ends all holds. It waits until the server has confirmed those that have left, no
// longer than Timeout.
func (s *Store) closeHolds() {
	all := &s.holds
	all.mu.Lock()
	for h := range all.all {
		h.lose()
	}
	all.closed = true
	if all.timer != nil {
		all.timer.Stop()
	}
	all.mu.Unlock()
	left := make(chan struct{})
	go func() {
		all.leaves.Wait()
		close(left)
	}()
	timeout := time.NewTimer(s.opts.Timeout)
	defer timeout.Stop()
	select {
	case <-left:
	case <-timeout.C:
		s.cancel()
		<-left
	}
}
