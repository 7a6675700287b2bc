package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir"
)

// intervalBucket is the model of IntervalBucket. A reservation for a later step takes
// the tokens of that step. Until then nothing else goes on, and the state has the tokens of the
// promised time.
type intervalBucket struct {
	tick                time.Duration
	burst, refill, each int64

	now *intervalState // nil while untouched

	blind bool
	// of a store whose states hold their reservations, which are blind for all others
	list bool
	// of a list: the next charge is not remembered
	forgetful bool
	open      outstanding // in tokens
	ids       int
}

// intervalState has the tokens at a step, the time of the charge that began the steps, and the
// latest promised time. It is immutable.
type intervalState struct {
	tokens, step, grid *big.Int
	promised           *big.Int // nil if no promised time is ahead
}

func (s *intervalState) equals(o *intervalState) bool {
	if (s.promised == nil) != (o.promised == nil) || s.promised != nil && s.promised.Cmp(o.promised) != 0 {
		return false
	}
	return s.tokens.Cmp(o.tokens) == 0 && s.step.Cmp(o.step) == 0 && s.grid.Cmp(o.grid) == 0
}

// intervalMark has the state before a charge and just after it. After a change of the limit, after
// is nil: the earlier state cannot be restored.
type intervalMark struct {
	cost          int64
	step, grid    *big.Int
	before, after *intervalState
	id            int
	listed        bool
	goes          *big.Rat
}

func newInterval(l weir.IntervalBucket, tick time.Duration, blind bool) *intervalBucket {
	return &intervalBucket{tick: tick, burst: l.Burst, refill: l.Refill, each: int64(l.Every / tick), blind: blind}
}

func (b *intervalBucket) size() int64        { return b.burst }
func (b *intervalBucket) largest() int64     { return b.burst }
func (b *intervalBucket) chargesAhead() bool { return true }
func (b *intervalBucket) turnsMove() bool    { return false }
func (b *intervalBucket) contact(int64)      {}
func (b *intervalBucket) touched() bool      { return b.now != nil }
func (b *intervalBucket) clone() algorithm   { c := *b; return &c }
func (b *intervalBucket) String() string {
	if b.now == nil {
		return "untouched"
	}
	return fmt.Sprint(b.now.tokens, b.now.step, b.now.grid, b.now.promised, " ", b.open)
}

// reached: steps are counted up to the clock, or to a promised time.
func (b *intervalBucket) reached() *big.Int {
	switch {
	case b.now == nil:
		return nil
	case b.now.promised != nil:
		return latest(b.now.step, b.now.promised)
	}
	return b.now.step
}

// at returns the tokens at t, or at the latest promised time if that is later, the step at which
// there are so many, and the time. A full bucket has no steps: its step is now.
func (b *intervalBucket) at(t *big.Int) (tokens, step, when *big.Int) {
	full := big.NewInt(b.burst)
	if b.now == nil {
		return full, t, t
	}
	if p := b.now.promised; p != nil && p.Cmp(t) > 0 {
		t = p
	}
	tokens, step = b.now.tokens, b.now.step
	if tokens.Cmp(full) < 0 && t.Cmp(step) > 0 {
		steps := new(big.Int).Div(new(big.Int).Sub(t, step), big.NewInt(b.each))
		tokens = new(big.Int).Add(tokens, new(big.Int).Mul(steps, big.NewInt(b.refill)))
		step = new(big.Int).Add(step, new(big.Int).Mul(steps, big.NewInt(b.each)))
	}
	if tokens.Cmp(full) >= 0 {
		return full, latest(step, t), t
	}
	return tokens, step, t
}

// wait returns how long it takes until there are so many tokens; nil beyond the end of the clock.
func (b *intervalBucket) wait(now int64, asked *big.Int) *big.Int {
	tokens, at, when := b.at(big.NewInt(now))
	if lacks := new(big.Int).Sub(asked, tokens); lacks.Sign() > 0 {
		steps := ceil(new(big.Rat).SetFrac(lacks, big.NewInt(b.refill)))
		when = new(big.Int).Add(at, steps.Mul(steps, big.NewInt(b.each)))
	}
	wait := new(big.Int).Sub(when, big.NewInt(now))
	if when.Cmp(big.NewInt(math.MaxInt64)) > 0 {
		return nil
	}
	return wait
}

// plan behind others adds up the costs. Tokens of a step that do not fit into the bucket delay it.
func (b *intervalBucket) plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat) {
	w := b.wait(now, new(big.Int).Add(ahead, big.NewInt(cost)))
	if w == nil || w.Cmp(big.NewInt(int64(century/b.tick))) > 0 {
		return nil, nil
	}
	return exact(w), new(big.Rat)
}

func (b *intervalBucket) peek(now int64, ahead *big.Int) (remaining int64, reset *big.Int) {
	reset = b.wait(now, new(big.Int).Add(ahead, big.NewInt(b.burst)))
	if reset == nil {
		reset = big.NewInt(math.MaxInt64)
	}
	tokens, _, when := b.at(big.NewInt(now))
	if when.Cmp(big.NewInt(now)) > 0 {
		return 0, reset
	}
	return max(0, clamp(new(big.Int).Sub(tokens, ahead))), reset
}

func (b *intervalBucket) charge(at *big.Rat, cost int64) { b.reserveFor(false, down(at), at, cost) }

func (b *intervalBucket) reserve(now int64, due *big.Rat, cost int64) mark {
	return b.reserveFor(!b.blind || b.list && !b.forgetful, now, due, cost)
}

// fill charges what another version of the limit admitted, so its work goes now.
func (b *intervalBucket) fill(now, cost int64, keeps bool) mark {
	return b.reserveFor(b.list && keeps, now, whole(now), cost)
}

// reserveFor charges; keeps is whether the state remembers the charge.
func (b *intervalBucket) reserveFor(keeps bool, now int64, due *big.Rat, cost int64) mark {
	before := b.now
	tokens, step, when := b.at(latest(big.NewInt(now), floor(due)))
	if before == nil {
		before = &intervalState{tokens: tokens, step: big.NewInt(now), grid: big.NewInt(now)}
	}
	b.open = b.open.charged(exact(new(big.Int).Sub(big.NewInt(b.burst), tokens)))
	m := intervalMark{cost: cost, step: step, before: before, goes: exact(when)}
	b.ids++
	m.id = b.ids
	if b.list {
		if when.Cmp(big.NewInt(now)) <= 0 && tokens.Cmp(big.NewInt(b.burst)) == 0 { // a charge that goes later may be given back before
			b.open = nil
		}
		if keeps {
			b.open = b.open.lasting(now, b.tick)
		}
		m.listed = keeps && len(b.open) < mostListed
		keeps = m.listed
	}
	if keeps {
		b.open = b.open.add(b.ids)
		b.open[len(b.open)-1].goes = m.goes
	}
	grid := before.grid
	if tokens.Cmp(big.NewInt(b.burst)) == 0 {
		grid = step
	}
	b.now = &intervalState{tokens: held(new(big.Int).Sub(tokens, big.NewInt(cost))), step: step, grid: grid}
	if when.Cmp(big.NewInt(now)) > 0 {
		b.now.promised = when
	}
	m.grid, m.after = grid, b.now
	return m
}

// held clamps a number to what a state can hold.
func held(v *big.Int) *big.Int { return big.NewInt(clamp(v)) }

func (b *intervalBucket) turn(seen *big.Rat, cost int64) *big.Rat { return turnOf(b, seen, cost) }
func (b *intervalBucket) asOf(_ *big.Rat, now int64) *big.Rat     { return whole(now) }

// giveBack adds the tokens that the steps since the charge have not refilled; none if the bucket
// was full since. If nothing was charged since, it restores the state before the charge.
func (b *intervalBucket) giveBack(now int64, m mark, amount int64) {
	c := m.(intervalMark)
	if b.list && c.listed && (!b.open.has(c.id) || b.expired(now, m) || c.final(now, b.tick)) {
		b.drop(m)
		return
	}
	// the exact rule does not need to know which charge began the steps
	if (!b.blind || c.listed) && c.after != nil {
		like := *c.after
		like.grid = b.now.grid
		c.after = &like
	}
	if c.cost == amount && c.after != nil && b.now.equals(c.after) {
		b.now = c.before
		b.drop(m)
		return
	}
	tokens, step, _ := b.at(big.NewInt(now))
	if !b.blind || c.listed {
		var give *big.Rat
		b.open, give = b.open.giveBack(c.id, whole(amount), exact(new(big.Int).Sub(big.NewInt(b.burst), tokens)))
		if give.Sign() > 0 {
			next := *b.now
			next.tokens, next.step = new(big.Int).Add(tokens, give.Num()), step
			b.now = &next
		}
		return
	}
	full := big.NewInt(b.burst)
	if b.now.grid.Cmp(c.grid) != 0 || tokens.Cmp(full) == 0 {
		return
	}
	steps := new(big.Int).Div(new(big.Int).Sub(step, c.step), big.NewInt(b.each))
	give := new(big.Int).Sub(big.NewInt(amount), latest(new(big.Int), steps.Mul(steps, big.NewInt(b.refill))))
	if give.Sign() < 0 {
		give.SetInt64(0)
	}
	next := *b.now
	next.tokens, next.step = earliest(full, give.Add(give, tokens)), step
	b.now = &next
	b.open = b.open.lowered(exact(new(big.Int).Sub(next.tokens, tokens)))
}

// final reports whether a charge is too old for a store's state to remember it.
func (c intervalMark) final(now int64, tick time.Duration) bool {
	return expired(promisedCharge{goes: c.goes}, whole(now), tick)
}

func (b *intervalBucket) expired(now int64, m mark) bool {
	c := m.(intervalMark)
	tokens, _, _ := b.at(big.NewInt(now))
	return c.listed && c.final(now, b.tick) && tokens.Cmp(big.NewInt(b.burst)) < 0
}

func (b *intervalBucket) same(o algorithm) bool {
	c, ok := o.(*intervalBucket)
	return ok && b.burst == c.burst && b.refill == c.refill && b.each == c.each
}

// changedTo keeps the tokens used, and the times of the steps. Steps of the new length before the
// change do not count.
func (b *intervalBucket) changedTo(now int64, o algorithm) algorithm {
	next, ok := o.(*intervalBucket)
	if !ok {
		return transfer(now, b, o)
	}
	if b.now == nil {
		return next
	}
	tokens, step, when := b.at(big.NewInt(now))
	s := intervalState{tokens: held(new(big.Int).Sub(big.NewInt(next.burst), new(big.Int).Sub(big.NewInt(b.burst), tokens)))}
	s.step, s.grid, s.promised = step, b.now.grid, b.now.promised
	if since := new(big.Int).Sub(when, step); since.Sign() > 0 {
		s.step = new(big.Int).Sub(when, since.Mod(since, big.NewInt(next.each)))
	}
	next.now = &s
	if !b.blind || b.list && next.each == b.each && next.refill == b.refill {
		next.open, next.ids = b.open, b.ids
	}
	return next
}

func (b *intervalBucket) drop(m mark) { b.open = b.open.without(m.(intervalMark).id) }

// convertMark keeps a mark if the steps stay the same, because giveBack counts the steps since the
// charge.
func (b *intervalBucket) convertMark(_ int64, m mark, o algorithm) mark {
	next, ok := o.(*intervalBucket)
	if !ok || b.blind && (next.each != b.each || next.refill != b.refill) {
		return nil
	}
	c := m.(intervalMark)
	c.after = nil
	return c
}

func (b *intervalBucket) spent(now int64) *big.Int {
	tokens, _, _ := b.at(big.NewInt(now))
	return new(big.Int).Sub(big.NewInt(b.burst), tokens)
}

func (b *intervalBucket) counted() *big.Int {
	if b.now == nil {
		return new(big.Int)
	}
	return new(big.Int).Sub(big.NewInt(b.burst), b.now.tokens)
}

func (b *intervalBucket) load(now int64, spent *big.Int) { b.charge(whole(now), clamp(spent)) }

// turnOf implements turn for an algorithm that plans in whole clock units.
func turnOf(l algorithm, seen *big.Rat, cost int64) *big.Rat {
	wait, _ := l.plan(down(seen), new(big.Int), cost)
	if wait == nil {
		return nil
	}
	at := add(seen, wait)
	if up(at) == math.MaxInt64 {
		return nil
	}
	return at
}

func latest(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

func earliest(a, b *big.Int) *big.Int {
	if b.Cmp(a) < 0 {
		return b
	}
	return a
}
