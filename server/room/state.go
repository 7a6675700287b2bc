package room

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// state is a room's line as a pure function of what it is asked and when: it has no clock, no lock and no I/O. The script of a
// shared store does the same (server/stores/redis/line.lua); proof/room holds both to one model.
type state struct {
	spec   micros
	bucket weir.Prepared
	tokens []int64 // the bucket's state

	now     int64 // the latest reading of the clock
	waited  int64 // the clock of those who wait
	sweepAt int64 // by that clock
	born    int64 // 0 before the first question
	hold    int64 // until when nobody is let in
	last    int64 // place that was given
	called  int64 // up to when all were called whose turn it was
	changed bool  // the numbers were, since the latest question

	visitors map[string]*visitor
	line     []*visitor // by place, and by id where places are equal
	inside   insiders
	pace     pace
}

// micros are the times of a Spec in microseconds.
type micros struct {
	inside, idle, session, enter, lapse, maxWaiting int64
}

// visitor is one who waits or is inside.
type visitor struct {
	id    string
	place int64
	until int64 // in line, by the clock of those who wait; inside, by the clock
	end   int64 // of the session; 0 for one who has not entered
	index int   // among those inside; -1 in line
}

// pace is how fast the line moves.
type pace struct {
	since  int64 // there is a line; 0 for none
	start  int64 // of the window
	before int64 // how many were called in the window before
	count  int64 // and in this one
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
	return micros{s.Inside, us(s.Idle), us(s.Session), us(s.Enter), us(s.Lapse), s.MaxWaiting}
}

// Parameters are the settings of a room, in the order in which the script of a Line outside this process reads them: those of the bucket, what
// the policy says, and what all rooms have in common. Times are in microseconds.
func (s Spec) Parameters() []int64 {
	m := s.micros()
	return []int64{
		s.Bucket.Rate.N, int64(s.Bucket.Rate.Per / tick), s.Bucket.Burst, m.inside, m.idle, m.session, m.enter, m.lapse, m.maxWaiting,
		patience, gather, window, most,
	}
}

// set puts other numbers in force. What was let in stays counted; who is inside or waits goes on, and has the new times from the next question on.
func (s *state) set(now int64, spec Spec) error {
	p, err := weir.Prepare(spec.Bucket, tick)
	if err != nil {
		return err
	}
	now = max(now, s.now)
	s.tokens = s.bucket.Convert(s.tokens, now, p, now)
	s.changed = s.changed || p.Limit() != s.bucket.Limit()
	s.spec, s.bucket = spec.micros(), p
	return nil
}

// ask answers a question at a reading of the clock.
func (s *state) ask(now int64, q Question) Answer {
	if s.born == 0 {
		s.born, s.now = now, now
	}
	if now > s.now {
		s.waited += min(now-s.now, patience)
		s.now = now
	}
	if s.changed { // the new rate is not that of the time before
		s.called, s.changed = s.now, false
	}
	var a Answer
	if s.waited >= s.sweepAt {
		s.sweep(&a)
		s.sweepAt = s.waited + second
	}
	s.advance(&a)
	full := s.place(&q, &a)
	s.advance(&a)
	s.pace.mark(s.now, len(s.line) > 0)
	s.resolve(&q, &a)
	if full {
		a.State = Full
	}
	a.Waiting, a.Inside = int64(len(s.line)), int64(len(s.inside))
	a.Counted, a.Span = s.pace.measured(s.now)
	a.Era, a.Now = s.born, s.now
	return a
}

// expire lets go of those inside whose time is over at a moment.
func (s *state) expire(at int64, a *Answer) {
	for len(s.inside) > 0 && s.inside[0].until <= at {
		v := heap.Pop(&s.inside).(*visitor)
		delete(s.visitors, v.id)
		if v.end == 0 {
			a.Missed++
		} else {
			a.Left++
		}
	}
}

// sweep takes those out of the line who did not ask for too long.
func (s *state) sweep(a *Answer) {
	s.line = slices.DeleteFunc(s.line, func(v *visitor) bool {
		if v.until > s.waited {
			return false
		}
		delete(s.visitors, v.id)
		a.Lapsed++
		return true
	})
}

// full reports whether nobody more may be inside.
func (s *state) full() bool { return s.spec.inside > 0 && int64(len(s.inside)) >= s.spec.inside }

// advance calls those whose turn it is, or was since the last question: each as of the moment at which there was a token and a place, so that the
// line keeps its pace however seldom it is asked. It does not go back further than the clock of those who wait does.
func (s *state) advance(a *Answer) {
	at := max(s.called, s.now-patience, s.hold)
	for range most {
		s.expire(min(at, s.now), a)
		if len(s.line) == 0 {
			break
		}
		v := s.line[0]
		lapsed := v.until <= s.waited
		if !lapsed && at > s.now {
			break
		}
		switch {
		case lapsed:
			delete(s.visitors, v.id)
			a.Lapsed++
		case s.full():
			at = s.inside[0].until
			continue
		default:
			next, d := s.bucket.Step(s.tokens, at, 1)
			if !d.Allowed {
				at += int64(d.RetryAfter / tick)
				continue
			}
			s.tokens = next
			v.until = s.now + s.spec.enter
			heap.Push(&s.inside, v)
			s.pace.called(s.now)
		}
		s.line[0] = nil
		s.line = s.line[1:]
	}
	if len(s.line) == 0 {
		at = s.now
	}
	s.called = min(at, s.now)
	s.expire(s.now, a)
}

// place finds a place for a visitor who is not known: that of the ticket where the state was lost, and otherwise the last one. It reports
// whether there is none.
func (s *state) place(q *Question, a *Answer) (full bool) {
	v := s.visitors[q.ID]
	if v != nil && v.index < 0 && v.until <= s.waited {
		s.remove(v)
		a.Lapsed++
		v = nil
	}
	lost := q.Era != s.born || q.Kept
	switch {
	case q.Held == Admitted && lost && q.End > s.now && (v == nil || v.index < 0):
		if v != nil {
			s.remove(v)
		}
		v = &visitor{id: q.ID, end: q.End, until: min(s.now+s.spec.idle, q.End)}
		s.visitors[v.id] = v
		heap.Push(&s.inside, v)
	case v != nil:
	case q.Held == InLine && lost:
		if q.Era != s.born && q.Era != 0 {
			s.hold = max(s.hold, s.born+gather)
		}
		return s.join(q.ID, min(q.Place, s.now))
	case q.Join || len(s.line) == 0 && s.now >= s.hold && !s.full() && s.bucket.Peek(s.tokens, s.now, 1).Allowed:
		full = s.join(q.ID, max(s.now, s.last+1))
	}
	return full
}

// join puts a visitor into the line, or reports that it is full.
func (s *state) join(id string, place int64) (full bool) {
	if int64(len(s.line)) >= s.spec.maxWaiting {
		return true
	}
	v := &visitor{id: id, place: place, until: s.waited + s.spec.lapse, index: -1}
	s.last = max(s.last, place)
	s.visitors[id] = v
	s.line = slices.Insert(s.line, s.find(v), v)
	return false
}

// find is where a visitor is in the line, or would be.
func (s *state) find(v *visitor) int {
	i, _ := slices.BinarySearchFunc(s.line, v, func(a, b *visitor) int {
		return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.id, b.id))
	})
	return i
}

// remove takes a visitor out of the line.
func (s *state) remove(v *visitor) {
	i := s.find(v)
	s.line = slices.Delete(s.line, i, i+1)
	delete(s.visitors, v.id)
}

// resolve says what becomes of a visitor.
func (s *state) resolve(q *Question, a *Answer) {
	v := s.visitors[q.ID]
	switch {
	case v == nil:
		return
	case v.index < 0:
		v.until = s.waited + s.spec.lapse
		a.State, a.Place, a.Ahead = Waiting, v.place, int64(s.find(v))
		return
	case v.end == 0 && !q.Enter:
		a.State = Called
		return
	case v.end == 0:
		v.end = s.now + s.spec.session
		a.Entered = true
	}
	a.State, a.End = Inside, v.end
	if q.Enter {
		v.until = min(s.now+s.spec.idle, v.end)
		heap.Fix(&s.inside, v.index)
	}
}

// mark notes whether there is a line.
func (p *pace) mark(now int64, line bool) {
	switch {
	case !line:
		*p = pace{}
	case p.since == 0:
		*p = pace{since: now, start: now}
	}
}

// roll begins a window where the last one is over.
func (p *pace) roll(now int64) {
	if k := (now - p.start) / window; k > 0 {
		p.before = 0
		if k == 1 {
			p.before = p.count
		}
		p.count = 0
		p.start += k * window
	}
}

// called counts one who was called while there was a line.
func (p *pace) called(now int64) {
	if p.since > 0 {
		p.roll(now)
		p.count++
	}
}

// measured is how many were called in how long.
func (p *pace) measured(now int64) (counted, span int64) {
	if p.since == 0 {
		return 0, 0
	}
	p.roll(now)
	return p.before + p.count, now - max(p.since, p.start-window)
}

// insiders is a heap of those inside, by when their time is over.
type insiders []*visitor

func (h insiders) Len() int           { return len(h) }
func (h insiders) Less(i, j int) bool { return h[i].until < h[j].until }
func (h insiders) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for package heap.
func (h *insiders) Push(x any) {
	v := x.(*visitor)
	v.index = len(*h)
	*h = append(*h, v)
}

// Pop is for package heap.
func (h *insiders) Pop() any {
	old := *h
	v := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return v
}
