package weirtest

import (
	"maps"
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir"
)

// A Model is one state of a limit, computed in exact fractions and as
// simply as possible. It shares no code with the limiters except the structs. So a result on which
// both agree is likely to be right.
//
// Times are in clock units of length tick. A Model is slow, and not safe for concurrent use.
type Model struct {
	tick      time.Duration
	algorithm algorithm

	charges map[int]*charge // reservations that are not settled yet, by id
	line    []*waiter
	due     *big.Rat // when the first waiter goes; nil if that is unknown or no one waits
	waited  bool     // due was in the future when it was computed
	ids     int
	blind   bool
	listing bool // as a store whose states hold their outstanding reservations
}

// charge is a reservation. mark is nil if nothing can be given back.
type charge struct {
	cost int64
	mark mark
}

// NewModel returns the model of a limit whose holder knows which reservations are outstanding. It
// is for tests: it panics for an invalid limit, and for one without a model.
func NewModel(l weir.Limit, tick time.Duration) *Model { return newModel(l, tick, false) }

// NewBlindModel returns the model of a limit whose holder has only the state, and does not know
// which reservations are outstanding. It may give back less.
func NewBlindModel(l weir.Limit, tick time.Duration) *Model { return newModel(l, tick, true) }

// NewStoreModel returns the model of a limit whose states hold their outstanding reservations, as far
// as the algorithm needs it: those of TokenBucket, LeakyBucket, SmoothBursty, IntervalBucket and WarmUp
// do. The others are as in NewBlindModel.
func NewStoreModel(l weir.Limit, tick time.Duration) *Model {
	m := newModel(l, tick, true)
	m.listing, m.algorithm = true, listing(m.algorithm)
	return m
}

// unused returns an untouched algorithm of a limit.
func (m *Model) unused(l weir.Limit) algorithm {
	if m.listing {
		return listing(algorithmOf(l, m.tick, m.blind))
	}
	return algorithmOf(l, m.tick, m.blind)
}

func newModel(l weir.Limit, tick time.Duration, blind bool) *Model {
	if err := l.Validate(); err != nil {
		panic(err)
	}
	return &Model{tick: tick, algorithm: algorithmOf(l, tick, blind), charges: map[int]*charge{}, blind: blind}
}

// Clone returns an independent copy.
func (m *Model) Clone() *Model {
	c := *m
	c.algorithm = m.algorithm.clone()
	c.charges = maps.Clone(m.charges)
	c.line = make([]*waiter, len(m.line))
	for i, w := range m.line {
		copied := *w
		c.line[i] = &copied
	}
	return &c
}

// State returns the time at which a bucket is full, in clock units, or nil while it is untouched.
func (m *Model) State() (z *big.Rat) {
	if b, ok := m.algorithm.(*bucket); ok {
		return b.z
	}
	return nil
}

// Contact makes the first call of a state. A limiter makes it when it is created or its limit
// changes, a key when it is first charged: a SmoothBursty stores permits from then on. Other calls
// make it when needed.
func (m *Model) Contact(now int64) {
	parts, _ := all(m.algorithm)
	for _, p := range parts {
		if _, ok := p.(*smoothBursty); ok {
			m.algorithm.contact(now)
			return
		}
	}
}

// Touched reports whether the state was ever touched. A touched state can still equal an untouched
// one.
func (m *Model) Touched() bool { return m.algorithm.touched() }

// String returns the state. Different states of a limit have different strings.
func (m *Model) String() string { return m.algorithm.String() }

// Take decides and charges.
func (m *Model) Take(now, cost int64) weir.Decision {
	m.begin(now)
	defer m.end(now)
	d := m.decide(now, cost)
	if cost > 0 && cost <= m.algorithm.largest() {
		m.algorithm.contact(now)
	}
	if d.Allowed && cost > 0 {
		m.algorithm.charge(whole(now), cost)
		m.see(&d, now)
		m.sign(&d, now, cost)
	}
	return d
}

// sign sets By to the limit of an All that decided.
func (m *Model) sign(d *weir.Decision, now, cost int64) {
	if j, ok := m.algorithm.(*allOf); ok {
		d.By = j.by(now, m.unpromised(), cost, d.Allowed)
	}
}

// Peek decides and charges nothing.
func (m *Model) Peek(now, cost int64) weir.Decision {
	m.begin(now)
	defer m.end(now)
	return m.decide(now, cost)
}

// decide returns the decision of a Take, without changing the state.
func (m *Model) decide(now, cost int64) (d weir.Decision) {
	d = weir.Decision{Allowed: true, Limit: m.algorithm.size()}
	defer func() { m.sign(&d, now, cost) }()
	m.see(&d, now)
	if cost == 0 {
		return d
	}
	wait, room := m.plan(now, cost)
	if wait != nil && room != nil && wait.Sign() == 0 && room.Sign() == 0 {
		if n, ok := m.algorithm.(*nginxBucket); ok {
			d.Level = n.levelWith(now, cost)
		}
		return d
	}
	d.Allowed, d.RetryAfter = false, weir.Never
	if wait != nil && room != nil {
		d.RetryAfter = m.duration(up(largest(wait, room)))
	}
	return d
}

// plan returns how long from now a cost has to wait behind all waiters, and how long until there is
// room for it to wait. Nil means never. Nothing goes before the first waiter, or before the last
// waiter with a promised turn.
func (m *Model) plan(now, cost int64) (wait, room *big.Rat) {
	if cost < 0 || cost > m.algorithm.largest() {
		return nil, nil
	}
	wait, room = m.algorithm.plan(now, m.unpromised(), cost)
	if wait == nil || room == nil {
		return nil, nil
	}
	if len(m.line) > 0 {
		turn := m.lastTurn()
		if turn == nil {
			return nil, nil
		}
		until := named(sub(turn, whole(now)), m.tick)
		if until == nil {
			return nil, nil
		}
		wait = largest(wait, until)
	}
	return wait, room
}

// see sets Remaining and ResetAfter.
func (m *Model) see(d *weir.Decision, now int64) {
	remaining, reset := m.algorithm.peek(now, m.unpromised())
	d.Remaining = remaining
	if n, ok := m.algorithm.(*nginxBucket); ok {
		d.Level = n.level(now)
	}
	until := clamp(reset)
	if len(m.line) > 0 {
		d.Remaining = 0
		if turn := m.lastTurn(); turn != nil {
			until = max(until, up(sub(turn, whole(now))))
		}
	}
	d.ResetAfter = m.duration(until)
}

// lastTurn returns the latest turn with a known time: the last promised one, or that of the first
// waiter. It returns nil if that is unknown.
func (m *Model) lastTurn() *big.Rat {
	if p := m.lastPromised(); p != nil {
		return p.turn
	}
	return m.due
}

// Reserve charges ahead of time. within is the longest delay in clock units; negative: any. The id
// is for Settle and Cancel.
func (m *Model) Reserve(now, cost, within int64) (id int, delay time.Duration, d weir.Decision) {
	m.begin(now)
	defer m.end(now)
	if !m.algorithm.chargesAhead() {
		within = 0
	}
	wait, d := m.accept(now, cost, within)
	if !d.Allowed {
		return 0, d.RetryAfter, d
	}
	promised := m
	if cost > 0 && m.unpromised().Sign() > 0 {
		promised = m.Clone()
		promised.promise(now)
		if wait, d = promised.accept(now, cost, within); !d.Allowed {
			m.see(&d, now)
			return 0, d.RetryAfter, d
		}
	}
	m.algorithm, m.line = promised.algorithm, promised.line
	var made mark
	if cost > 0 {
		made = m.algorithm.reserve(now, add(whole(now), whole(up(wait))), cost)
		m.see(&d, now)
		m.sign(&d, now, cost)
	}
	m.ids++
	m.charges[m.ids] = &charge{cost, made}
	return m.ids, m.duration(up(wait)), d
}

// accept returns the decision of Reserve and Join.
func (m *Model) accept(now, cost, within int64) (wait *big.Rat, d weir.Decision) {
	d = weir.Decision{Limit: m.algorithm.size(), RetryAfter: weir.Never}
	defer func() { m.sign(&d, now, cost) }()
	if cost > 0 && cost <= m.algorithm.largest() {
		m.algorithm.contact(now)
	}
	m.see(&d, now)
	if cost == 0 {
		d.Allowed, d.RetryAfter = true, 0
		return new(big.Rat), d
	}
	wait, room := m.plan(now, cost)
	if new(big.Int).Add(m.unpromised(), big.NewInt(cost)).BitLen() > 64 {
		wait = nil // a queue is counted in 64 bits
	}
	switch {
	case wait == nil || room == nil:
	case room.Sign() == 0 && (within < 0 || up(wait) <= within):
		d.Allowed, d.RetryAfter = true, 0
	case within < 0:
		d.RetryAfter = m.duration(up(room))
	default:
		d.RetryAfter = m.duration(max(up(room), up(wait)-within))
	}
	return wait, d
}

// Cancel gives a reservation back.
func (m *Model) Cancel(now int64, id int) { m.Settle(now, id, 0) }

// Settle replaces the reserved cost by the actual one. Only the first call for an id counts.
func (m *Model) Settle(now int64, id int, actual int64) {
	m.begin(now)
	defer m.end(now)
	c := m.charges[id]
	if c == nil || actual < 0 {
		return
	}
	delete(m.charges, id)
	if actual >= c.cost && c.mark != nil {
		m.algorithm.drop(c.mark)
	}
	switch {
	case actual > c.cost:
		m.algorithm.contact(now)
		m.algorithm.charge(whole(now), actual-c.cost)
	case actual < c.cost:
		m.giveBack(now, c, c.cost-actual)
	}
}

func (m *Model) giveBack(now int64, c *charge, amount int64) {
	if c.mark != nil {
		m.algorithm.giveBack(now, c.mark, amount)
	}
}

// begin starts every call. It serves waiters whose turn has come since the last call, and charges
// them at exactly that time, unless that is noticed long after.
func (m *Model) begin(now int64) {
	m.serve(now)
	if m.due == nil {
		m.appoint(whole(now)) // from here, its time may be known
		m.serve(now)
	}
}

// end ends every call. It serves waiters that can go because of the call.
func (m *Model) end(now int64) {
	m.appoint(whole(now))
	m.serve(now)
}

// SetLimit changes the limit and keeps what was used.
func (m *Model) SetLimit(now int64, l weir.Limit) {
	m.begin(now)
	defer m.end(now)
	old := m.algorithm
	if old.same(m.unused(l)) {
		return
	}
	m.algorithm = change(now, old.clone(), m.unused(l))
	moved := func(c *charge) *charge {
		if c.mark == nil {
			return c
		}
		return &charge{c.cost, changeMark(now, old, c.mark, m.unused(l))}
	}
	for id, c := range m.charges {
		m.charges[id] = moved(c)
	}
	var line []*waiter
	for _, w := range m.line {
		if w.promised != nil {
			w.promised = moved(w.promised)
			if w.before != nil && m.algorithm.turnsMove() {
				w.before = change(now, w.before, m.unused(l))
			} else {
				w.before = nil
			}
		}
		if w.cost <= m.algorithm.largest() {
			line = append(line, w)
		} else if w.promised != nil {
			m.giveBack(now, w.promised, w.cost)
		}
	}
	m.line = line
	for i, w := range m.line {
		if w.before != nil {
			w.turn = m.promisedTurn(w.before, i, now)
		}
	}
}

// duration converts clock units to a time.Duration, or to the longest one if it does not fit.
func (m *Model) duration(units int64) time.Duration {
	if units > math.MaxInt64/int64(m.tick) {
		return math.MaxInt64
	}
	return time.Duration(units) * m.tick
}
