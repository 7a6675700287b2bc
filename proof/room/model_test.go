package room

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/weirflow/weir/server/room"
)

// model is a queue, simple enough to believe: a list of all visitors, which every operation goes
// through. Times are microseconds.
type model struct {
	spec     room.Spec
	visitors []*visitor
	now      int64
	steps    []int64 // how far the clock is behind the room's time, after at most two steps back
	waited   int64   // the wait clock
	sweepAt  int64
	started  int64
	hold     int64
	last     int64
	called   int64    // the time up to which visitors were admitted
	full     *big.Rat // when the bucket is full

	since int64   // when the queue began; 0: there is none
	calls []int64 // when its visitors were admitted
	turns []int64 // the turn of each visitor
}

type visitor struct {
	id     string
	inside bool
	place  int64
	until  int64
	end    int64
}

const (
	us       = int64(1)
	sec      = 1_000_000 * us
	standing = 60 * sec // longest step of the wait clock
	gather   = 45 * sec
	window   = 30 * sec
)

func newModel(s room.Spec) *model { return &model{spec: s, full: new(big.Rat)} }

func (m *model) line() (all []*visitor) {
	for _, v := range m.visitors {
		if !v.inside {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b *visitor) int { return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.id, b.id)) })
	return all
}

func (m *model) inside() (n int64) {
	for _, v := range m.visitors {
		if v.inside {
			n++
		}
	}
	return n
}

func (m *model) of(id string) *visitor {
	for _, v := range m.visitors {
		if v.id == id {
			return v
		}
	}
	return nil
}

func (m *model) drop(gone func(*visitor) bool) {
	m.visitors = slices.DeleteFunc(m.visitors, gone)
}

// each returns how long the bucket takes to refill one.
func (m *model) each() *big.Rat {
	return big.NewRat(m.spec.Bucket.Rate.Per.Microseconds(), m.spec.Bucket.Rate.N)
}

// due returns the first time, from the given one on, at which the bucket has one: when it would be
// full after one more, minus its size, in whole units.
func (m *model) due(at int64) int64 {
	full := new(big.Rat).SetInt64(at)
	if m.full.Cmp(full) > 0 {
		full.Set(m.full)
	}
	full.Add(full, m.each())
	full.Sub(full, new(big.Rat).Mul(m.each(), new(big.Rat).SetInt64(m.spec.Bucket.Burst)))
	up := new(big.Int).Add(full.Num(), new(big.Int).Sub(full.Denom(), big.NewInt(1)))
	return max(at, up.Div(up, full.Denom()).Int64())
}

// room returns the first time, from the given one on, at which there is a place inside.
func (m *model) room(at int64) int64 {
	if m.spec.Inside == 0 {
		return at
	}
	var until []int64
	for _, v := range m.visitors {
		if v.inside && v.until > at {
			until = append(until, v.until)
		}
	}
	slices.Sort(until)
	if too := int64(len(until)) - m.spec.Inside; too >= 0 {
		return until[too]
	}
	return at
}

// turn returns when the next visitor may be admitted, from a time on.
func (m *model) turn(at int64) int64 {
	for at = max(at, m.hold, m.spec.Opens); ; {
		then := max(m.due(at), m.room(at))
		if then == at {
			return at
		}
		at = then
	}
}

func (m *model) call() {
	at := max(m.called, m.now-standing)
	for len(m.line()) > 0 {
		first := m.line()[0]
		if first.until <= m.waited {
			m.drop(func(v *visitor) bool { return v == first })
			continue
		}
		if at = m.turn(at); at > m.now || m.spec.Paused {
			break
		}
		if from := new(big.Rat).SetInt64(at); m.full.Cmp(from) < 0 {
			m.full = from
		}
		m.full = new(big.Rat).Add(m.full, m.each())
		m.turns = append(m.turns, at)
		first.inside, first.until, first.end = true, m.now+m.spec.EnterWithin.Microseconds(), 0
		if m.since > 0 {
			m.calls = append(m.calls, m.now)
		}
	}
	m.called = m.now
	m.drop(func(v *visitor) bool { return v.inside && v.until <= m.now })
}

func (m *model) join(id string, place int64) (full bool) {
	if int64(len(m.line())) >= m.spec.MaxWaiting {
		return true
	}
	m.last = max(m.last, place)
	m.visitors = append(m.visitors, &visitor{id: id, place: place, until: m.waited + m.spec.PollTimeout.Microseconds()})
	return false
}

// time is the room's time at a reading of the clock: it goes on where the clock steps back.
func (m *model) time(reading int64) int64 {
	for i, back := range append([]int64{0}, m.steps...) {
		if reading+back >= m.now {
			m.steps = m.steps[:i]
			return reading + back
		}
	}
	if m.steps = append(m.steps, m.now-reading); len(m.steps) > 2 {
		m.steps = m.steps[1:]
	}
	return m.now
}

// ask returns the queue's result of a poll. The measured rate is not modelled.
func (m *model) ask(now int64, q room.Poll) (a room.Standing) {
	if m.started == 0 {
		m.started, m.now = now, now
	}
	if now = m.time(now); now > m.now {
		m.waited += min(now-m.now, standing)
		m.now = now
	}
	if m.waited >= m.sweepAt {
		m.drop(func(v *visitor) bool { return !v.inside && v.until <= m.waited })
		m.sweepAt = m.waited + sec
	}
	m.call()
	full := m.admit(q)
	m.call()
	if line := m.line(); len(line) == 0 || m.now < m.spec.Opens {
		m.since, m.calls = 0, nil
	} else if m.since == 0 {
		m.since = m.now
	}
	m.resolve(q, &a)
	if full {
		a.State = room.Full
	}
	a.Waiting, a.Inside, a.Started, a.Now = int64(len(m.line())), m.inside(), m.started, m.now
	if m.since > 0 { // from the beginning of the previous window, or of the queue
		from := max(m.since, m.since+((m.now-m.since)/window-1)*window)
		a.Span = m.now - from
		for _, at := range m.calls {
			if at >= from {
				a.Counted++
			}
		}
	}
	return a
}

func (m *model) admit(q room.Poll) (full bool) {
	if v := m.of(q.ID); v != nil && !v.inside && v.until <= m.waited {
		m.drop(func(w *visitor) bool { return w == v })
	}
	known := m.of(q.ID)
	lost := q.Started != m.started || q.Provisional
	if q.Ticket == room.InsideTicket && lost && q.End > m.now && (known == nil || !known.inside) {
		m.drop(func(w *visitor) bool { return w == known })
		m.visitors = append(m.visitors, &visitor{id: q.ID, inside: true, end: q.End, until: min(m.now+m.spec.Idle.Microseconds(), q.End)})
		return false
	}
	if known != nil {
		return false
	}
	if q.Ticket == room.WaitingTicket && lost {
		if q.Started != m.started && q.Started != 0 {
			m.hold = max(m.hold, m.started+gather)
		}
		if q.Place > 0 && m.now >= m.spec.Opens {
			return m.join(q.ID, min(q.Place, m.now))
		}
		return m.join(q.ID, m.lot(q))
	}
	if q.Join && m.now < m.spec.Opens {
		return m.join(q.ID, m.lot(q))
	}
	if q.Join || len(m.line()) == 0 && m.turn(m.now) == m.now && !m.spec.Paused {
		return m.join(q.ID, max(m.now, m.last+1))
	}
	return false
}

// lot is a place in the hour before the opening, or before now where there is none any more.
func (m *model) lot(q room.Poll) int64 {
	before := m.spec.Opens
	if before == 0 {
		before = m.now
	}
	return before - min(max(q.Lot, 1), 3600*sec)
}

func (m *model) resolve(q room.Poll, a *room.Standing) {
	v := m.of(q.ID)
	if v == nil {
		return
	}
	if !v.inside {
		v.until = m.waited + m.spec.PollTimeout.Microseconds()
		a.State, a.Place, a.Ahead = room.Waiting, v.place, int64(slices.Index(m.line(), v))
		return
	}
	if v.end == 0 && !q.Enter {
		a.State = room.Admitted
		return
	}
	if v.end == 0 {
		v.end = m.now + m.spec.Session.Microseconds()
		a.Entered = true
	}
	a.State, a.End = room.Inside, v.end
	if q.Enter {
		v.until = min(m.now+m.spec.Idle.Microseconds(), v.end)
	}
}
