package weirtest

import (
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// waiter is a place in the queue. promised is set if a later reservation fixed its turn.
type waiter struct {
	id       int
	cost     int64
	promised *charge
	before   algorithm // just before the promised charge, if the turn moves with the limit
	turn     *big.Rat  // the promised turn; nil if it is unknown
	keep     bool      // its charge can be settled after the turn
}

// promise charges all waiters ahead of time, each for a time of its own. A reservation behind them
// needs this, because its own time depends on theirs.
func (m *Model) promise(now int64) {
	for i, w := range m.line {
		if w.promised == nil {
			if w.before = nil; m.algorithm.turnsMove() {
				w.before = m.algorithm.clone()
			}
			w.turn = m.promisedTurn(m.algorithm, i, now)
			w.promised = &charge{w.cost, m.algorithm.reserve(now, orEnd(w.turn), w.cost)}
		}
	}
}

// orEnd returns a time, or the end of the clock if it is nil.
func orEnd(t *big.Rat) *big.Rat {
	if t == nil {
		return whole(math.MaxInt64)
	}
	return smallest(t, whole(math.MaxInt64))
}

// promisedTurn returns when the i-th waiter goes, if its charge comes on top of a state.
func (m *Model) promisedTurn(before algorithm, i int, now int64) *big.Rat {
	wait, _ := before.plan(now, new(big.Int), m.line[i].cost)
	if wait == nil {
		return nil
	}
	turn := add(whole(now), whole(up(wait)))
	if i > 0 {
		last := m.line[i-1].turn
		if last == nil || named(sub(last, whole(now)), m.tick) == nil {
			return nil
		}
		turn = largest(turn, last)
	}
	if up(turn) == math.MaxInt64 {
		return nil
	}
	return turn
}

// Join joins the queue. The id is for Leave and Waits. It is 0 if Join did not join.
func (m *Model) Join(now, cost, within int64) (id int, delay time.Duration, d weir.Decision) {
	return m.join(now, cost, within, false)
}

// JoinKept is Join for a charge that can be settled before and after its turn. The id is for
// SettlePlace, too.
func (m *Model) JoinKept(now, cost, within int64) (id int, delay time.Duration, d weir.Decision) {
	return m.join(now, cost, within, true)
}

func (m *Model) join(now, cost, within int64, keep bool) (id int, delay time.Duration, d weir.Decision) {
	m.begin(now)
	defer m.end(now)
	wait, d := m.accept(now, cost, within)
	if !d.Allowed {
		return 0, d.RetryAfter, d
	}
	m.ids++
	if wait.Sign() > 0 {
		m.line = append(m.line, &waiter{id: m.ids, cost: cost, keep: keep})
		if len(m.line) == 1 {
			m.due = add(whole(now), wait)
		}
	} else if keep {
		c := &charge{cost: cost}
		if m.charges[m.ids] = c; cost > 0 {
			c.mark = m.algorithm.reserve(now, whole(now), cost)
		}
	} else if cost > 0 {
		m.algorithm.charge(whole(now), cost)
	}
	if m.see(&d, now); wait.Sign() == 0 {
		m.sign(&d, now, cost)
	}
	return m.ids, m.duration(up(wait)), d
}

// Leave gives up a place in the queue. It reports whether the place still existed.
func (m *Model) Leave(now int64, id int) bool {
	m.begin(now)
	defer m.end(now)
	for i, w := range m.line {
		if w.id == id {
			m.line = append(m.line[:i:i], m.line[i+1:]...)
			if w.promised != nil {
				m.giveBack(now, w.promised, w.cost)
			}
			return true
		}
	}
	return false
}

// SettlePlace replaces the cost of a kept place by the actual one. A place that still waits leaves the
// queue. Only the first call for an id counts.
func (m *Model) SettlePlace(now int64, id int, actual int64) {
	if actual < 0 {
		return
	}
	if !m.Waits(now, id) {
		m.Settle(now, id, actual)
		return
	}
	m.begin(now)
	defer m.end(now)
	i := slices.IndexFunc(m.line, func(w *waiter) bool { return w.id == id })
	w := m.line[i]
	m.line = slices.Delete(slices.Clone(m.line), i, i+1)
	if w.promised != nil {
		m.giveBack(now, w.promised, w.cost)
	}
	if actual > 0 {
		m.algorithm.contact(now)
		m.algorithm.charge(whole(now), actual)
	}
}

// Waits reports whether a Join still waits at now.
func (m *Model) Waits(now int64, id int) bool {
	m.begin(now)
	defer m.end(now)
	for _, w := range m.line {
		if w.id == id {
			return true
		}
	}
	return false
}

// NextTurn returns when the first waiter goes, as a clock reading, and whether there is a waiter
// whose turn is known.
func (m *Model) NextTurn() (int64, bool) {
	if m.due == nil {
		return 0, false
	}
	return up(m.due), true
}

// appoint computes the turn of the first waiter, as seen from a reading.
func (m *Model) appoint(seen *big.Rat) {
	switch {
	case len(m.line) == 0:
		m.due = nil
	case m.line[0].promised != nil:
		m.due = m.line[0].turn
	default:
		m.due = m.algorithm.turn(seen, m.line[0].cost)
	}
	m.waited = m.due != nil && m.due.Cmp(seen) > 0
}

// serve serves, in order, the waiters whose turn has come by now.
func (m *Model) serve(now int64) {
	for m.due != nil && m.due.Cmp(whole(now)) <= 0 {
		w := m.line[0]
		m.line = m.line[1:]
		j, ok := m.algorithm.(*allOf)
		switch {
		case w.promised != nil && w.keep:
			m.charges[w.id] = w.promised
		case w.promised != nil:
			if w.promised.mark != nil {
				m.algorithm.drop(w.promised.mark)
			}
		case ok && w.keep:
			m.charges[w.id] = &charge{w.cost, j.serveKept(m.due, now, w.cost, m.waited)}
		case w.keep:
			m.charges[w.id] = &charge{w.cost, reserveAt(m.algorithm, m.algorithm.asOf(m.due, now), w.cost)}
		case ok && m.waited:
			j.serve(m.due, now, w.cost)
		default:
			m.algorithm.charge(m.algorithm.asOf(m.due, now), w.cost)
		}
		m.appoint(m.algorithm.asOf(whole(up(m.due)), now))
	}
}

// lastPromised returns the last waiter whose turn is fixed.
func (m *Model) lastPromised() (last *waiter) {
	for _, w := range m.line {
		if w.promised != nil {
			last = w
		}
	}
	return last
}

// unpromised returns the total cost of waiters that will be charged when they are served.
func (m *Model) unpromised() *big.Int {
	sum := new(big.Int)
	for _, w := range m.line {
		if w.promised == nil {
			sum.Add(sum, big.NewInt(w.cost))
		}
	}
	return sum
}

// reserveAt makes a reservation as of a time that need not be whole, whose work goes at once.
func reserveAt(l algorithm, at *big.Rat, cost int64) mark {
	if r, ok := l.(interface {
		reserveAt(at *big.Rat, cost int64) mark
	}); ok {
		return r.reserveAt(at, cost)
	}
	return l.reserve(down(at), at, cost)
}
