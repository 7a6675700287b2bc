package weirtest

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// slidingWindow is the model of SlidingWindow: the count of each slot, by the slot's
// number. As in a ring of n counters, a slot evicts the slots that are n, 2n, ... slots older.
type slidingWindow struct {
	tick           time.Duration
	limit, perSlot int64
	n              int64 // how many slots the window has
	width          int64 // of one slot, in clock units

	counts   map[int64]int64 // nil while untouched; never changed in place
	promised *int64          // the latest promised time that was ahead when it was promised
}

// slotMark has the slot of a charge, its count just after, the promised times before and after the
// charge, and the slot that it evicted.
type slotMark struct {
	slot, cost, count int64
	before, after     *int64
	old, oldCount     int64 // oldCount 0 means that none was evicted
}

func newSlots(l weir.SlidingWindow, tick time.Duration) *slidingWindow {
	s := &slidingWindow{tick: tick, limit: l.Limit, perSlot: l.SlotLimit, n: int64(l.Slots), width: int64(l.Window / tick / time.Duration(l.Slots))}
	if s.perSlot == 0 {
		s.perSlot = l.Limit
	}
	return s
}

func (s *slidingWindow) size() int64        { return s.perSlot }
func (s *slidingWindow) largest() int64     { return s.perSlot }
func (s *slidingWindow) chargesAhead() bool { return true }
func (s *slidingWindow) turnsMove() bool    { return false }
func (s *slidingWindow) contact(int64)      {}
func (s *slidingWindow) touched() bool      { return s.counts != nil }
func (s *slidingWindow) clone() algorithm   { c := *s; return &c }
func (s *slidingWindow) String() string {
	if s.promised != nil {
		return fmt.Sprint(s.counts, *s.promised)
	}
	return fmt.Sprint(s.counts)
}

// reached: the newest slot has begun, unless it was promised.
func (s *slidingWindow) reached() *big.Int {
	if s.counts == nil {
		return nil
	}
	t := big.NewInt(promised(s.promised, 0))
	if newest, ok := s.newest(); ok {
		t = latestOf(t, s.start(big.NewInt(newest)))
	}
	return t
}

// slotOf returns the slot of a time. If a slot is one clock unit, the first few slots of all time
// are one slot, and so are the last few.
func (s *slidingWindow) slotOf(t int64) int64 {
	slot := new(big.Int).Div(big.NewInt(t), big.NewInt(s.width)).Int64()
	return min(max(slot, math.MinInt64+2*4096), math.MaxInt64-2*4096)
}

// start returns the start of a slot; nil beyond the end of the clock.
func (s *slidingWindow) start(slot *big.Int) *big.Int {
	if slot.Cmp(big.NewInt(s.slotOf(math.MaxInt64))) > 0 {
		return nil
	}
	return new(big.Int).Mul(slot, big.NewInt(s.width))
}

// newest returns the latest slot with a count.
func (s *slidingWindow) newest() (slot int64, ok bool) {
	for k, count := range s.counts {
		if count > 0 && (!ok || k > slot) {
			slot, ok = k, true
		}
	}
	return slot, ok
}

// at returns the slot of a clock reading, and the promised time if one is ahead. A reading before
// the newest slot counts in that slot.
func (s *slidingWindow) at(now int64) (slot int64, promised *int64) {
	t := now
	if s.promised != nil && *s.promised > now {
		t, promised = *s.promised, s.promised
	}
	slot = s.slotOf(t)
	if newest, ok := s.newest(); ok {
		slot = max(slot, newest)
	}
	return slot, promised
}

// total returns the count of the window that ends with a slot.
func (s *slidingWindow) total(slot int64) *big.Int {
	sum := new(big.Int)
	for k, count := range s.counts {
		if k <= slot && k > slot-s.n { // cannot overflow: no slot is that early
			sum.Add(sum, big.NewInt(count))
		}
	}
	return sum
}

// first returns the first slot, from a given one on, in which a cost fits.
func (s *slidingWindow) first(from, cost int64, perSlot bool) int64 {
	for slot := from; ; slot++ {
		if s.total(slot).Cmp(big.NewInt(s.limit-cost)) <= 0 && (!perSlot || s.counts[slot] <= s.perSlot-cost) {
			return slot
		}
	}
}

// plan behind others adds up the costs, without SlotLimit: after the first part, each further Limit
// takes a window.
func (s *slidingWindow) plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat) {
	at, promised := s.at(now)
	until := new(big.Int)
	if promised != nil {
		until.Sub(big.NewInt(*promised), big.NewInt(now))
	}
	most := big.NewInt(int64(century / s.tick))
	if until.Cmp(most) > 0 {
		return nil, nil
	}
	slot := big.NewInt(s.first(at, cost, true))
	if ahead.Sign() > 0 {
		last := new(big.Int).Add(ahead, big.NewInt(cost-1))
		windows, part := new(big.Int).DivMod(last, big.NewInt(s.limit), new(big.Int))
		behind := windows.Add(windows.Mul(windows, big.NewInt(s.n)), big.NewInt(s.first(at, part.Int64()+1, false)))
		slot = latestOf(slot, behind)
	}
	if slot.Cmp(big.NewInt(at)) > 0 {
		start := s.start(slot)
		if start == nil {
			return nil, nil
		}
		until = latestOf(new(big.Int), start.Sub(start, big.NewInt(now)))
	}
	if until.Cmp(most) > 0 {
		return nil, nil
	}
	return exact(until), new(big.Rat)
}

func latestOf(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

func (s *slidingWindow) peek(now int64, ahead *big.Int) (remaining int64, reset *big.Int) {
	at, promised := s.at(now)
	reset = new(big.Int)
	ends := func(slot int64) *big.Int { // how long until the count of a slot leaves the window
		start := s.start(new(big.Int).Add(big.NewInt(slot), big.NewInt(s.n)))
		if start == nil {
			return big.NewInt(math.MaxInt64)
		}
		return start.Sub(start, big.NewInt(now))
	}
	if newest, ok := s.newest(); ok {
		reset = latestOf(reset, ends(newest))
	}
	if ahead.Sign() > 0 {
		reset = latestOf(reset, ends(at))
	}
	if promised != nil {
		return 0, latestOf(reset, new(big.Int).Sub(big.NewInt(*promised), big.NewInt(now)))
	}
	left := new(big.Int).Sub(big.NewInt(s.limit), s.total(at))
	if inSlot := big.NewInt(s.perSlot - s.counts[at]); inSlot.Cmp(left) < 0 {
		left = inSlot
	}
	return max(0, clamp(left.Sub(left, ahead))), reset
}

func (s *slidingWindow) charge(at *big.Rat, cost int64) { s.reserve(down(at), at, cost) }

func (s *slidingWindow) reserve(now int64, due *big.Rat, cost int64) mark {
	when := max(now, down(due))
	if s.promised != nil {
		when = max(when, *s.promised)
	}
	slot, _ := s.at(when)
	m := slotMark{slot: slot, cost: cost, before: s.promised}
	if when > now {
		m.after = &when
	}
	s.counts = maps.Clone(s.counts)
	if s.counts == nil {
		s.counts = map[int64]int64{}
	}
	for k, count := range s.counts {
		if k != slot && new(big.Int).Mod(new(big.Int).Sub(big.NewInt(slot), big.NewInt(k)), big.NewInt(s.n)).Sign() == 0 {
			m.old, m.oldCount = k, count
			delete(s.counts, k)
		}
	}
	s.counts[slot] = clamp(new(big.Int).Add(big.NewInt(s.counts[slot]), big.NewInt(cost)))
	m.count, s.promised = s.counts[slot], m.after
	return m
}

// giveBack lowers the count of a charge's slot, unless the slot was evicted. If the charge was the
// latest one, the promised time before it is restored, and so is the slot that it evicted.
func (s *slidingWindow) giveBack(_ int64, m mark, amount int64) {
	c := m.(slotMark)
	count, ok := s.counts[c.slot]
	if !ok {
		return
	}
	newest, _ := s.newest()
	same := s.promised == nil && c.after == nil || s.promised != nil && c.after != nil && *s.promised == *c.after
	latest := same && count == c.count && newest == c.slot
	s.counts = maps.Clone(s.counts)
	s.counts[c.slot] = max(0, count-amount)
	if !latest || amount != c.cost {
		return
	}
	if s.promised = c.before; s.counts[c.slot] == 0 {
		delete(s.counts, c.slot)
		if c.oldCount > 0 {
			s.counts[c.old] = c.oldCount
		}
	}
}

func (s *slidingWindow) turn(seen *big.Rat, cost int64) *big.Rat {
	wait, _ := s.plan(up(seen), new(big.Int), cost)
	if wait == nil || up(add(seen, wait)) == math.MaxInt64 {
		return nil
	}
	return add(whole(up(seen)), wait)
}

func (s *slidingWindow) asOf(_ *big.Rat, now int64) *big.Rat { return whole(now) }

func (s *slidingWindow) same(o algorithm) bool {
	c, ok := o.(*slidingWindow)
	return ok && s.limit == c.limit && s.perSlot == c.perSlot && s.n == c.n && s.width == c.width
}

// changedTo keeps the counts. If the width or the number of slots changes, each count goes to the
// new slot of its latest possible time.
func (s *slidingWindow) changedTo(now int64, o algorithm) algorithm {
	next, ok := o.(*slidingWindow)
	switch {
	case !ok:
		return transfer(now, s, o)
	case s.counts == nil:
		return next
	}
	next.promised = s.promised
	if next.width == s.width && next.n == s.n {
		next.counts = s.counts
		return next
	}
	next.counts = map[int64]int64{}
	at, _ := s.at(now)
	for _, slot := range slices.Sorted(maps.Keys(s.counts)) {
		if slot > at || slot <= at-s.n || s.counts[slot] == 0 {
			continue
		}
		end := new(big.Int).Mul(big.NewInt(slot), big.NewInt(s.width))
		latest := clamp(end.Add(end, big.NewInt(s.width-1)))
		if slot == s.slotOf(math.MaxInt64) {
			latest = math.MaxInt64
		}
		if slot == s.slotOf(now) {
			until := now // or the latest promised time, if it is in this slot
			if next.promised != nil {
				until = max(now, *next.promised)
			}
			latest = min(latest, until)
		}
		to := next.slotOf(latest)
		for k := range next.counts {
			if k != to && new(big.Int).Mod(new(big.Int).Sub(big.NewInt(to), big.NewInt(k)), big.NewInt(next.n)).Sign() == 0 {
				delete(next.counts, k)
			}
		}
		next.counts[to] = clamp(new(big.Int).Add(big.NewInt(next.counts[to]), big.NewInt(s.counts[slot])))
	}
	return next
}

func (s *slidingWindow) drop(mark) {}

func (s *slidingWindow) convertMark(_ int64, m mark, o algorithm) mark {
	if next, ok := o.(*slidingWindow); ok && next.width == s.width && next.n == s.n {
		return m
	}
	return nil
}

func (s *slidingWindow) spent(now int64) *big.Int {
	at, _ := s.at(now)
	return s.total(at)
}

func (s *slidingWindow) counted() *big.Int {
	sum := new(big.Int)
	for _, n := range s.counts {
		sum.Add(sum, big.NewInt(n))
	}
	return sum
}

func (s *slidingWindow) load(now int64, spent *big.Int) {
	s.charge(whole(now), min(clamp(spent), s.limit))
}
