package weirtest

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir"
)

// A Model is a limit as SEMANTICS defines it, one state, in exact fractions and as plainly as it can be put. It shares nothing with
// the limiters but the structs, so that where both agree, both are believed.
//
// Times are in clock units of length tick. A Model is slow, and not safe for concurrent use.
type Model struct {
	tick time.Duration
	b    bucket

	z *big.Rat // when the bucket is full again; nil while untouched
	x *big.Rat // all that was ever given back, in clock units

	charges map[int]*charge // reservations not yet settled, by id
	line    []*waiter
	named   bool // whether the first in line has a turn that can be named
	ids     int
}

// bucket is the numbers of a TokenBucket or a LeakyBucket: t clock units bring one token, one clock unit has n parts.
type bucket struct {
	t       *big.Rat
	n       *big.Int
	size    int64
	passes  int64 // leaky: units of work that may be ahead of one that is not delayed
	leaky   bool
	initial int64
}

// charge is a reservation: z and x just after it.
type charge struct {
	cost int64
	z, x *big.Rat
}

// waiter is someone in line. promised is set where a reservation made later fixed the turn.
type waiter struct {
	id       int
	cost     int64
	promised *charge
	before   *big.Rat // z before the promised charge
	turn     *big.Rat
}

const (
	century  = 36525 * 24 * time.Hour // no wait is longer
	lateness = 10 * time.Millisecond  // how long after its turn a waiter is charged as if noticed on time
)

// NewModel returns the model of a limit. It panics for a limit that is not valid, or that it has no model of: it is for tests.
func NewModel(l weir.Limit, tick time.Duration) *Model {
	if err := l.Validate(); err != nil {
		panic(err)
	}
	return &Model{tick: tick, b: bucketOf(l, tick), x: new(big.Rat), charges: map[int]*charge{}}
}

// Clone returns a copy that goes its own way.
func (m *Model) Clone() *Model {
	c := *m // the fractions are never changed in place
	c.charges = maps.Clone(m.charges)
	c.line = make([]*waiter, len(m.line))
	for i, w := range m.line {
		copied := *w
		c.line[i] = &copied
	}
	return &c
}

func bucketOf(l weir.Limit, tick time.Duration) bucket {
	perToken := func(r weir.Rate) (*big.Rat, *big.Int) {
		t := new(big.Rat).SetFrac(big.NewInt(int64(r.Per)), new(big.Int).Mul(big.NewInt(r.N), big.NewInt(int64(tick))))
		return t, t.Denom() // t = p/n in lowest terms
	}
	switch l := l.(type) {
	case weir.TokenBucket:
		t, n := perToken(l.Rate)
		initial := l.Initial
		switch initial {
		case 0:
			initial = l.Burst
		case weir.InitialEmpty:
			initial = 0
		}
		return bucket{t: t, n: n, size: l.Burst, passes: l.Burst, initial: initial}
	case weir.LeakyBucket:
		t, n := perToken(l.Rate)
		return bucket{t: t, n: n, size: l.Queue + 1, passes: l.DelayAfter, leaky: true, initial: l.Queue + 1}
	}
	panic(fmt.Sprintf("weirtest: no model of %T", l))
}

// cost is c tokens in clock units.
func (b bucket) cost(c int64) *big.Rat { return mul(b.t, whole(c)) }

// most is the largest total given back that is counted: 127 bits of parts.
func (b bucket) most() *big.Rat {
	parts := new(big.Int).Lsh(big.NewInt(1), 127)
	return new(big.Rat).SetFrac(parts.Sub(parts, big.NewInt(1)), b.n)
}

// State returns the time at which the bucket is full, nil while untouched, and the total ever given back, both in clock units.
func (m *Model) State() (z, x *big.Rat) { return m.z, m.x }

// Take decides and charges.
func (m *Model) Take(now, cost int64) weir.Decision {
	m.begin(now)
	defer m.end(now)
	d := m.decide(now, cost)
	if cost > 0 && cost <= m.b.size {
		m.contact(now)
	}
	if d.Allowed && cost > 0 {
		m.charge(whole(now), cost)
		m.see(&d, now)
	}
	return d
}

// Peek decides and charges nothing.
func (m *Model) Peek(now, cost int64) weir.Decision {
	m.begin(now)
	defer m.end(now)
	return m.decide(now, cost)
}

// decide is the decision of a Take, the state as it is.
func (m *Model) decide(now, cost int64) weir.Decision {
	d := weir.Decision{Allowed: true, Limit: m.b.size}
	m.see(&d, now)
	if cost == 0 {
		return d
	}
	wait, room := m.plan(now, cost)
	if wait != nil && room != nil && wait.Sign() == 0 && room.Sign() == 0 {
		return d
	}
	d.Allowed, d.RetryAfter = false, weir.Never
	if wait != nil && room != nil {
		d.RetryAfter = m.duration(up(largest(wait, room)))
	}
	return d
}

// plan says how long from now until a cost could go, behind everyone in line, and until there is room for it to wait. Nil is never.
func (m *Model) plan(now, cost int64) (wait, room *big.Rat) {
	if cost < 0 || cost > m.b.size {
		return nil, nil
	}
	before := add(m.level(now), m.unpromised())
	wait, room = m.planAt(before, whole(now), cost)
	if wait == nil || room == nil {
		return nil, nil
	}
	if p := m.lastPromised(); p != nil {
		turn := m.wait(sub(p.turn, whole(now)))
		if turn == nil {
			return nil, nil
		}
		wait = largest(wait, turn)
	}
	return wait, room
}

// planAt is plan for an explicit z, at least now.
func (m *Model) planAt(before, now *big.Rat, cost int64) (wait, room *big.Rat) {
	after := add(before, m.b.cost(cost))
	if after.Cmp(whole(math.MaxInt64)) > 0 {
		return nil, nil // a state past the end of the clock cannot be held
	}
	fits := m.wait(sub(sub(after, m.b.cost(m.b.size)), now))
	if !m.b.leaky {
		return fits, new(big.Rat)
	}
	return m.wait(sub(sub(before, m.b.cost(m.b.passes)), now)), fits
}

// wait is d where it is ahead, 0 where it is past, and nil where it is beyond a century.
func (m *Model) wait(d *big.Rat) *big.Rat {
	if up(d) > int64(century/m.tick) {
		return nil
	}
	return largest(d, new(big.Rat))
}

// level is max(z, now), z being what an untouched bucket would start with.
func (m *Model) level(now int64) *big.Rat {
	switch {
	case m.z != nil:
		return largest(m.z, whole(now))
	default:
		return smallest(add(whole(now), m.b.cost(m.b.size-m.b.initial)), whole(math.MaxInt64))
	}
}

// contact writes down the first contact of a bucket that does not start full.
func (m *Model) contact(now int64) {
	if m.z == nil && m.b.initial < m.b.size {
		m.z = m.level(now)
	}
}

// charge takes a cost at a time.
func (m *Model) charge(at *big.Rat, cost int64) {
	if m.z == nil || m.z.Cmp(at) < 0 {
		m.z = at
	}
	m.z = smallest(add(m.z, m.b.cost(cost)), whole(math.MaxInt64))
}

// see fills in Remaining and ResetAfter.
func (m *Model) see(d *weir.Decision, now int64) {
	level := add(m.level(now), m.unpromised())
	end := smallest(add(whole(now), m.b.cost(m.b.size)), whole(math.MaxInt64))
	d.Remaining = max(0, down(quo(sub(end, level), m.b.t)))
	if m.b.leaky && level.Cmp(add(whole(now), m.b.cost(m.b.passes))) > 0 {
		d.Remaining = 0
	}
	reset := up(sub(level, whole(now)))
	if p := m.lastPromised(); p != nil {
		d.Remaining, reset = 0, max(reset, up(sub(p.turn, whole(now))))
	}
	d.ResetAfter = m.duration(reset)
}

// Reserve charges ahead. within is the longest delay in clock units, or below 0 for any. The id is for Settle and Cancel.
func (m *Model) Reserve(now, cost, within int64) (id int, delay time.Duration, d weir.Decision) {
	m.begin(now)
	defer m.end(now)
	wait, d := m.accept(now, cost, within)
	if !d.Allowed {
		return 0, d.RetryAfter, d
	}
	if cost > 0 {
		for i, w := range m.line {
			if w.promised == nil {
				w.before = m.z
				w.turn = m.promisedTurn(i, now)
				m.charge(whole(now), w.cost)
				w.promised = &charge{w.cost, m.z, m.x}
			}
		}
		m.charge(whole(now), cost)
		m.see(&d, now)
	}
	m.ids++
	m.charges[m.ids] = &charge{cost, m.z, m.x}
	return m.ids, m.duration(up(wait)), d
}

// promisedTurn is when the i-th in line goes, its charge to come on top of its before.
func (m *Model) promisedTurn(i int, now int64) *big.Rat {
	w := m.line[i]
	wait, _ := m.planAt(largest(w.before, whole(now)), whole(now), w.cost)
	if wait == nil || i > 0 && m.wait(sub(m.line[i-1].turn, whole(now))) == nil {
		return whole(math.MaxInt64)
	}
	turn := add(whole(now), whole(up(wait)))
	if i > 0 {
		turn = largest(turn, m.line[i-1].turn)
	}
	return turn
}

// accept is what Reserve and Join decide.
func (m *Model) accept(now, cost, within int64) (wait *big.Rat, d weir.Decision) {
	d = weir.Decision{Limit: m.b.size, RetryAfter: weir.Never}
	if cost > 0 && cost <= m.b.size {
		m.contact(now)
	}
	m.see(&d, now)
	if cost == 0 {
		d.Allowed, d.RetryAfter = true, 0
		return new(big.Rat), d
	}
	wait, room := m.plan(now, cost)
	if ahead := add(quo(m.unpromised(), m.b.t), whole(cost)); ahead.Num().BitLen() > 64 {
		wait = nil // a line is counted in 64 bits
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

// Settle puts the actual cost in place of the reserved one. The first for an id counts.
func (m *Model) Settle(now int64, id int, actual int64) {
	m.begin(now)
	defer m.end(now)
	c := m.charges[id]
	if c == nil || actual < 0 {
		return
	}
	delete(m.charges, id)
	switch {
	case actual > c.cost:
		m.contact(now)
		m.charge(whole(now), actual-c.cost)
	case actual < c.cost:
		m.giveBack(now, c, c.cost-actual)
	}
}

// giveBack returns what never admits too much of a charge.
func (m *Model) giveBack(now int64, c *charge, amount int64) {
	t := whole(now)
	since := sub(add(m.z, m.x), add(c.z, c.x))
	if since.Sign() < 0 {
		return // only where z or x met the end of the clock
	}
	give := smallest(m.b.cost(amount), sub(sub(c.z, sub(m.x, c.x)), t)) // what the bucket has not refilled by itself
	promised := m.b.cost(m.b.size)
	if m.b.leaky {
		promised = m.b.cost(m.b.passes + 1)
	}
	if since.Sign() > 0 && m.z.Cmp(add(t, promised)) > 0 { // later work may still wait for its time, and cannot move up
		give = smallest(give, sub(smallest(m.b.cost(amount), promised), since))
	}
	if total := add(m.x, give); give.Sign() > 0 && total.Cmp(m.b.most()) <= 0 { // else the total cannot be held
		m.z, m.x = sub(m.z, give), add(m.x, give)
	}
}

// Join gets in line. The id is for Leave and Outcome; it is 0 where the line was not joined.
func (m *Model) Join(now, cost, within int64) (id int, delay time.Duration, d weir.Decision) {
	m.begin(now)
	defer m.end(now)
	wait, d := m.accept(now, cost, within)
	if !d.Allowed {
		return 0, d.RetryAfter, d
	}
	m.ids++
	if wait.Sign() > 0 {
		m.line = append(m.line, &waiter{id: m.ids, cost: cost})
	} else if cost > 0 {
		m.charge(whole(now), cost)
	}
	m.see(&d, now)
	return m.ids, m.duration(up(wait)), d
}

// Leave gives up a place in line and reports whether it was still one.
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

// InLine reports whether a Join is still waiting at now.
func (m *Model) InLine(now int64, id int) bool {
	m.begin(now)
	defer m.end(now)
	for _, w := range m.line {
		if w.id == id {
			return true
		}
	}
	return false
}

// NextTurn is when the first in line goes, as a clock reading, and whether anyone waits whose turn can be named.
func (m *Model) NextTurn() (int64, bool) {
	if len(m.line) == 0 || !m.named {
		return 0, false
	}
	turn := up(m.turn())
	return turn, turn != math.MaxInt64
}

// turn is the exact time at which the first in line may go.
func (m *Model) turn() *big.Rat {
	w := m.line[0]
	switch {
	case w.promised != nil:
		return w.turn
	case m.b.leaky:
		return sub(m.z, m.b.cost(m.b.passes))
	}
	return sub(add(m.z, m.b.cost(w.cost)), m.b.cost(m.b.size))
}

// begin is how every call starts: whose turn came since the last one is let go, and charged at the very time, unless that is noticed
// long after.
func (m *Model) begin(now int64) {
	if m.named {
		m.serve(now, nil, sub(whole(now), whole(int64(lateness/m.tick))))
	}
}

// end is how every call ends: whoever can go now, by what the call changed, is let go.
func (m *Model) end(now int64) {
	m.serve(now, whole(now), whole(now))
	m.named = true
	if len(m.line) > 0 && m.line[0].promised == nil {
		wait, _ := m.planAt(m.level(now), whole(now), m.line[0].cost)
		m.named = wait != nil
	}
}

// serve lets go, in order, whose turn has come by now. from is the reading that turns are seen from: an earlier one is counted as that.
func (m *Model) serve(now int64, from, early *big.Rat) {
	for len(m.line) > 0 {
		w, turn := m.line[0], m.turn()
		if from != nil {
			turn = largest(turn, from)
		}
		if turn.Cmp(whole(now)) > 0 {
			return
		}
		if up(turn) == math.MaxInt64 || w.promised == nil && up(add(largest(m.z, turn), m.b.cost(w.cost))) == math.MaxInt64 {
			return // the end of the clock
		}
		m.line = m.line[1:]
		if w.promised == nil {
			m.charge(largest(turn, early), w.cost)
		}
		from = largest(whole(up(turn)), early)
	}
}

// SetLimit changes the limit and keeps the tokens used, rounded up to 1/n of a clock unit, n being of the new rate.
func (m *Model) SetLimit(now int64, l weir.Limit) {
	m.begin(now)
	defer m.end(now)
	old, next := m.b, bucketOf(l, m.tick)
	if old.same(next) {
		return
	}
	t := whole(now)
	parts, end := new(big.Rat).SetInt(next.n), whole(math.MaxInt64)
	rescale := func(v *big.Rat, round func(*big.Rat) *big.Int) *big.Rat {
		return quo(new(big.Rat).SetInt(round(mul(mul(quo(v, old.t), next.t), parts))), parts)
	}
	move := func(z *big.Rat, round func(*big.Rat) *big.Int) *big.Rat {
		if z == nil {
			return nil
		}
		return smallest(add(t, rescale(largest(sub(z, t), new(big.Rat)), round)), end)
	}
	m.z, m.x = move(m.z, ceil), smallest(rescale(m.x, ceil), next.most())
	moved := func(c *charge) *charge {
		z := move(c.z, floor)
		if z != nil && z.Cmp(t) == 0 { // nothing left to give back: a later step back of the clock is not to change that
			z = smallest(t, new(big.Rat).SetInt(floor(c.z)))
		}
		return &charge{c.cost, z, smallest(rescale(c.x, floor), next.most())}
	}
	for id, c := range m.charges {
		m.charges[id] = moved(c)
	}
	m.b = next
	var line []*waiter
	for _, w := range m.line {
		if w.promised != nil {
			w.promised, w.before = moved(w.promised), move(w.before, ceil)
		}
		switch {
		case w.cost > next.size && w.promised != nil:
			m.giveBack(now, w.promised, w.cost)
		case w.cost > next.size:
		default:
			line = append(line, w)
		}
	}
	m.line = line
	for i, w := range m.line {
		if w.promised != nil {
			w.turn = m.promisedTurn(i, now)
		}
	}
}

// same reports whether two buckets decide alike.
func (b bucket) same(o bucket) bool {
	return b.t.Cmp(o.t) == 0 && b.size == o.size && b.passes == o.passes && b.leaky == o.leaky && b.initial == o.initial
}

// lastPromised is the last in line whose turn is fixed.
func (m *Model) lastPromised() (last *waiter) {
	for _, w := range m.line {
		if w.promised != nil {
			last = w
		}
	}
	return last
}

// unpromised is what those in line will be charged, in clock units, who are charged when they are served.
func (m *Model) unpromised() *big.Rat {
	sum := new(big.Rat)
	for _, w := range m.line {
		if w.promised == nil {
			sum = add(sum, m.b.cost(w.cost))
		}
	}
	return sum
}

// duration turns clock units into a duration, the longest where it does not fit.
func (m *Model) duration(units int64) time.Duration {
	if units > math.MaxInt64/int64(m.tick) {
		return math.MaxInt64
	}
	return time.Duration(units) * m.tick
}

func whole(v int64) *big.Rat     { return new(big.Rat).SetInt64(v) }
func add(a, b *big.Rat) *big.Rat { return new(big.Rat).Add(a, b) }
func sub(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }
func mul(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }
func quo(a, b *big.Rat) *big.Rat { return new(big.Rat).Quo(a, b) }
func floor(v *big.Rat) *big.Int  { return new(big.Int).Div(v.Num(), v.Denom()) }
func ceil(v *big.Rat) *big.Int   { f := floor(new(big.Rat).Neg(v)); return f.Neg(f) }
func largest(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}
func smallest(a, b *big.Rat) *big.Rat {
	if b.Cmp(a) < 0 {
		return b
	}
	return a
}

// up and down round to an int64; what does not fit becomes the nearest that does.
func up(v *big.Rat) int64   { return clamp(ceil(v)) }
func down(v *big.Rat) int64 { return clamp(floor(v)) }
func clamp(v *big.Int) int64 {
	switch {
	case v.IsInt64():
		return v.Int64()
	case v.Sign() < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}
