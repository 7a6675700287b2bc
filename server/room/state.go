package room

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/heap"
)

// state is a room's queue as a pure function of polls and clock readings, without a clock, a lock
// or I/O. The script of the Redis store (server/stores/redis/queue.lua) and a function of PostgreSQL
// (weirsql/postgres/room.sql) do the same; proof/room compares all with one model.
type state struct {
	spec   micros
	bucket weir.Prepared
	tokens []int64 // the bucket's state

	now           int64 // the room's time at the latest poll
	behind        behind
	waitClock     int64 // goes forward by at most maxWaitStep between two polls
	nextSweep     int64 // on the wait clock
	started       int64 // 0 before the first poll
	holdUntil     int64 // nobody is admitted before
	lastPlace     int64 // the last place that was given
	admittedUntil int64 // all visitors whose turn came until then are admitted
	rateChanged   bool  // since the latest poll; or a pause has begun or ended

	visitors map[string]*visitor
	queue    []*visitor         // by place, then by id
	inside   heap.Heap[visitor] // by the end of their time
	pace     pace
}

// micros is a Spec with its durations in microseconds.
type micros struct {
	inside, idle, session, enterWithin, pollTimeout, maxWaiting, opens int64

	paused bool
}

// visitor is a visitor who waits or is inside.
type visitor struct {
	id         string
	place      int64
	pollUntil  int64 // in the queue: when the place is lost, on the wait clock
	sessionEnd int64 // 0 before the visitor has entered
	inside     heap.Node[visitor]
}

// pace measures how fast the queue moves.
type pace struct {
	queueSince    int64 // 0 without a queue
	windowStart   int64 // of the current window
	previousCount int64 // admissions in the previous window
	count         int64 // and in the current one
}

const tick = time.Microsecond

func newState(s Spec) (*state, error) {
	p, err := weir.Prepare(s.Bucket, tick)
	if err != nil {
		return nil, err
	}
	return &state{spec: s.micros(), bucket: p, visitors: map[string]*visitor{}}, nil
}

func (s Spec) micros() micros {
	us := func(d time.Duration) int64 { return int64(d / tick) }
	return micros{s.Inside, us(s.Idle), us(s.Session), us(s.EnterWithin), us(s.PollTimeout), s.MaxWaiting, s.Opens, s.Paused}
}

// Parameters are the parameters and constants of a room in the order in which the script of a store
// reads them: the bucket's, the policy's, and the constants of all rooms. Times are in
// microseconds.
func (s Spec) Parameters() []int64 {
	m := s.micros()
	paused := int64(0)
	if s.Paused {
		paused = 1
	}
	return []int64{
		s.Bucket.Rate.N, int64(s.Bucket.Rate.Per / tick), s.Bucket.Burst, m.inside, m.idle, m.session, m.enterWithin, m.pollTimeout, m.maxWaiting,
		maxWaitStep, recoveryTime, paceWindow, maxAdmissions, m.opens, paused,
	}
}

// setSpec changes the parameters. Used tokens stay used. Visitors stay where they are, and get the
// new durations with their next poll.
func (s *state) setSpec(now int64, spec Spec) error {
	p, err := weir.Prepare(spec.Bucket, tick)
	if err != nil {
		return err
	}
	now = max(now, s.now)
	s.tokens = s.bucket.Convert(s.tokens, now, p, now)
	s.rateChanged = s.rateChanged || p.Limit() != s.bucket.Limit() || spec.Paused != s.spec.paused
	s.spec, s.bucket = spec.micros(), p
	return nil
}

// poll handles a poll at a clock reading.
func (s *state) poll(now int64, q Poll) Standing {
	if s.started == 0 {
		s.started, s.now = now, now
	}
	if now = s.behind.time(now, s.now); now > s.now {
		s.waitClock += min(now-s.now, maxWaitStep)
		s.now = now
	}
	if s.rateChanged { // the new rate does not apply to the time before the change
		s.admittedUntil, s.rateChanged = s.now, false
	}
	var a Standing
	if s.waitClock >= s.nextSweep {
		s.sweepQueue(&a)
		s.nextSweep = s.waitClock + second
	}
	s.admit(&a)
	full := s.assignPlace(&q, &a)
	s.admit(&a)
	s.pace.markQueue(s.now, len(s.queue) > 0 && s.now >= s.spec.opens)
	s.resolve(&q, &a)
	if full {
		a.State = Full
	}
	a.Waiting, a.Inside = int64(len(s.queue)), int64(s.inside.Len())
	a.Counted, a.Span = s.pace.measured(s.now)
	a.Started, a.Now = s.started, s.now
	return a
}

// expireInside removes the visitors inside whose time is over at a moment.
func (s *state) expireInside(at int64, a *Standing) {
	for v := s.inside.Due(at); v != nil; v = s.inside.Due(at) {
		s.inside.Remove(&v.inside)
		delete(s.visitors, v.id)
		if v.sessionEnd == 0 {
			a.Missed++
		} else {
			a.Left++
		}
	}
}

// sweepQueue removes the waiting visitors who have stopped polling.
func (s *state) sweepQueue(a *Standing) {
	s.queue = slices.DeleteFunc(s.queue, func(v *visitor) bool {
		if v.pollUntil > s.waitClock {
			return false
		}
		delete(s.visitors, v.id)
		a.Lapsed++
		return true
	})
}

// isFull reports whether as many visitors are inside as may be.
func (s *state) isFull() bool { return s.spec.inside > 0 && int64(s.inside.Len()) >= s.spec.inside }

// admit admits the visitors whose turn came since the last poll, each as of the moment at which
// there was a token and a place. So the queue keeps its pace however seldom visitors poll. It goes
// back no further than maxWaitStep.
func (s *state) admit(a *Standing) {
	at := max(s.admittedUntil, s.now-maxWaitStep, s.holdUntil, s.spec.opens)
	if s.spec.paused {
		at = max(at, s.now+1)
	}
	for range maxAdmissions {
		s.expireInside(min(at, s.now), a)
		if len(s.queue) == 0 {
			break
		}
		v := s.queue[0]
		lapsed := v.pollUntil <= s.waitClock
		if !lapsed && at > s.now {
			break
		}
		switch {
		case lapsed:
			delete(s.visitors, v.id)
			a.Lapsed++
		case s.isFull():
			_, at = s.inside.First()
			continue
		default:
			next, d := s.bucket.Step(s.tokens, at, 1)
			if !d.Allowed {
				at += int64(d.RetryAfter / tick)
				continue
			}
			s.tokens = next
			s.inside.Push(&v.inside, v, s.now+s.spec.enterWithin)
			s.pace.countAdmission(s.now)
		}
		s.queue[0] = nil
		s.queue = s.queue[1:]
	}
	if len(s.queue) == 0 {
		at = s.now
	}
	s.admittedUntil = min(at, s.now)
	s.expireInside(s.now, a)
}

// assignPlace gives an unknown visitor a place: that of the ticket if the state was lost, else the
// last one. It reports whether the queue is full.
func (s *state) assignPlace(q *Poll, a *Standing) (full bool) {
	v := s.visitors[q.ID]
	if v != nil && !v.inside.In() && v.pollUntil <= s.waitClock {
		s.remove(v)
		a.Lapsed++
		v = nil
	}
	lost := q.Started != s.started || q.Provisional
	switch {
	case q.Ticket == InsideTicket && lost && q.End > s.now && (v == nil || !v.inside.In()):
		if v != nil {
			s.remove(v)
		}
		v = &visitor{id: q.ID, sessionEnd: q.End}
		s.visitors[v.id] = v
		s.inside.Push(&v.inside, v, min(s.now+s.spec.idle, q.End))
	case v != nil:
	case q.Ticket == WaitingTicket && lost:
		if q.Started != s.started && q.Started != 0 {
			s.holdUntil = max(s.holdUntil, s.started+recoveryTime)
		}
		if s.now < s.spec.opens || q.Place == 0 {
			return s.join(q.ID, s.drawn(q))
		}
		return s.join(q.ID, min(q.Place, s.now))
	case q.Join && s.now < s.spec.opens:
		full = s.join(q.ID, s.drawn(q))
	case q.Join || len(s.queue) == 0 && s.isOpen() && !s.isFull() && s.bucket.Peek(s.tokens, s.now, 1).Allowed:
		full = s.join(q.ID, max(s.now, s.lastPlace+1))
	}
	return full
}

// isOpen reports whether visitors may be admitted at all.
func (s *state) isOpen() bool { return s.now >= max(s.holdUntil, s.spec.opens) && !s.spec.paused }

// drawn is the place of a visitor by lot: before the opening, so that all who come later are behind. Without an opening, as after
// a change, it is an hour back at most.
func (s *state) drawn(q *Poll) int64 {
	opens := s.spec.opens
	if opens == 0 {
		opens = s.now
	}
	return opens - min(max(q.Lot, 1), MostLot)
}

// join adds a visitor to the queue, or reports that it is full.
func (s *state) join(id string, place int64) (full bool) {
	if int64(len(s.queue)) >= s.spec.maxWaiting {
		return true
	}
	v := &visitor{id: id, place: place, pollUntil: s.waitClock + s.spec.pollTimeout}
	s.lastPlace = max(s.lastPlace, place)
	s.visitors[id] = v
	s.queue = slices.Insert(s.queue, s.indexOf(v), v)
	return false
}

// indexOf is where a visitor is in the queue, or belongs.
func (s *state) indexOf(v *visitor) int {
	i, _ := slices.BinarySearchFunc(s.queue, v, func(a, b *visitor) int {
		return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.id, b.id))
	})
	return i
}

// remove removes a visitor from the queue.
func (s *state) remove(v *visitor) {
	i := s.indexOf(v)
	s.queue = slices.Delete(s.queue, i, i+1)
	delete(s.visitors, v.id)
}

// resolve fills in where the polling visitor stands, and records that they have polled.
func (s *state) resolve(q *Poll, a *Standing) {
	v := s.visitors[q.ID]
	switch {
	case v == nil:
		return
	case !v.inside.In():
		v.pollUntil = s.waitClock + s.spec.pollTimeout
		a.State, a.Place, a.Ahead = Waiting, v.place, int64(s.indexOf(v))
		return
	case v.sessionEnd == 0 && !q.Enter:
		a.State = Admitted
		return
	case v.sessionEnd == 0:
		v.sessionEnd = s.now + s.spec.session
		a.Entered = true
	}
	a.State, a.End = Inside, v.sessionEnd
	if q.Enter {
		s.inside.Move(&v.inside, min(s.now+s.spec.idle, v.sessionEnd))
	}
}

// markQueue records whether there is a queue.
func (p *pace) markQueue(now int64, line bool) {
	switch {
	case !line:
		*p = pace{}
	case p.queueSince == 0:
		*p = pace{queueSince: now, windowStart: now}
	}
}

// roll starts a new window if the current one is over.
func (p *pace) roll(now int64) {
	if k := (now - p.windowStart) / paceWindow; k > 0 {
		p.previousCount = 0
		if k == 1 {
			p.previousCount = p.count
		}
		p.count = 0
		p.windowStart += k * paceWindow
	}
}

// countAdmission counts an admission if there is a queue.
func (p *pace) countAdmission(now int64) {
	if p.queueSince > 0 {
		p.roll(now)
		p.count++
	}
}

// measured returns the admissions, and the time in which they happened.
func (p *pace) measured(now int64) (counted, span int64) {
	if p.queueSince == 0 {
		return 0, 0
	}
	p.roll(now)
	return p.previousCount + p.count, now - max(p.queueSince, p.windowStart-paceWindow)
}
