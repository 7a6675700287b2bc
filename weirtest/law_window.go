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

// slots is the law of SlidingWindow (SEMANTICS 4): what was counted in each slot, by its number. As many slots as the window has are kept:
// one that is as many, or twice as many, or more of them older gives its place to a newer one.
type slots struct {
	tick           time.Duration
	limit, perSlot int64
	n              int64 // how many slots the window has
	width          int64 // of one, in clock units

	counts   map[int64]int64 // nil while untouched; never changed in place
	promised *int64          // the latest time promised that lay ahead when it was
}

// slotMark is a charge: its slot, what was counted there just after, the promises before and after it, and the slot that gave it its place.
type slotMark struct {
	slot, cost, count int64
	before, after     *int64
	old, oldCount     int64 // no slot where oldCount is 0
}

func newSlots(l weir.SlidingWindow, tick time.Duration) *slots {
	s := &slots{tick: tick, limit: l.Limit, perSlot: l.SlotLimit, n: int64(l.Slots), width: int64(l.Window / tick / time.Duration(l.Slots))}
	if s.perSlot == 0 {
		s.perSlot = l.Limit
	}
	return s
}

func (s *slots) size() int64    { return s.perSlot }
func (s *slots) largest() int64 { return s.perSlot }
func (s *slots) books() bool    { return true }
func (s *slots) moves() bool    { return false }
func (s *slots) contact(int64)  {}
func (s *slots) touched() bool  { return s.counts != nil }
func (s *slots) clone() law     { c := *s; return &c }
func (s *slots) String() string {
	if s.promised != nil {
		return fmt.Sprint(s.counts, *s.promised)
	}
	return fmt.Sprint(s.counts)
}

// slotOf is the slot of a time. Where slots are of one clock unit, the first few of all time are one, and so are the last few.
func (s *slots) slotOf(t int64) int64 {
	slot := new(big.Int).Div(big.NewInt(t), big.NewInt(s.width)).Int64()
	return min(max(slot, math.MinInt64+2*4096), math.MaxInt64-2*4096)
}

// start is when a slot starts; nil where that is beyond the end of the clock.
func (s *slots) start(slot *big.Int) *big.Int {
	if slot.Cmp(big.NewInt(s.slotOf(math.MaxInt64))) > 0 {
		return nil
	}
	return new(big.Int).Mul(slot, big.NewInt(s.width))
}

// newest is the latest slot that something is counted in.
func (s *slots) newest() (slot int64, ok bool) {
	for k, count := range s.counts {
		if count > 0 && (!ok || k > slot) {
			slot, ok = k, true
		}
	}
	return slot, ok
}

// at is the slot that counts at a reading, and the time that was promised where one lies ahead. An earlier reading counts in the newest.
func (s *slots) at(now int64) (slot int64, promised *int64) {
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

// total is what is counted in the window that ends with a slot.
func (s *slots) total(slot int64) *big.Int {
	sum := new(big.Int)
	for k, count := range s.counts {
		if k <= slot && k > slot-s.n { // no slot is so early that this is no number
			sum.Add(sum, big.NewInt(count))
		}
	}
	return sum
}

// first is the first slot from one on in which a cost fits.
func (s *slots) first(from, cost int64, perSlot bool) int64 {
	for slot := from; ; slot++ {
		if s.total(slot).Cmp(big.NewInt(s.limit-cost)) <= 0 && (!perSlot || s.counts[slot] <= s.perSlot-cost) {
			return slot
		}
	}
}

// plan behind others goes by volume, without the caps of slots: after the first part of it, each further limit takes a window.
func (s *slots) plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat) {
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

func (s *slots) look(now int64, ahead *big.Int) (remaining int64, reset *big.Int) {
	at, promised := s.at(now)
	reset = new(big.Int)
	ends := func(slot int64) *big.Int { // when what is counted in a slot leaves, from now
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

func (s *slots) charge(at *big.Rat, cost int64) { s.book(down(at), at, cost) }

func (s *slots) book(now int64, due *big.Rat, cost int64) mark {
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

// giveBack takes from the slot of a charge, while it has its place. Where the charge was the latest, what was promised before is the
// latest again, and the slot that gave up its place has it back.
func (s *slots) giveBack(_ int64, m mark, amount int64) {
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

func (s *slots) turn(seen *big.Rat, cost int64) *big.Rat {
	wait, _ := s.plan(up(seen), new(big.Int), cost)
	if wait == nil || up(add(seen, wait)) == math.MaxInt64 {
		return nil
	}
	return add(whole(up(seen)), wait)
}

func (s *slots) asOf(_ *big.Rat, now int64) *big.Rat { return whole(now) }

func (s *slots) same(o law) bool {
	c, ok := o.(*slots)
	return ok && s.limit == c.limit && s.perSlot == c.perSlot && s.n == c.n && s.width == c.width
}

// become keeps the counts; where slots have another width, or there are more or fewer, each goes to the slot of the latest time that can
// have been counted in it.
func (s *slots) become(now int64, o law) law {
	next, ok := o.(*slots)
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
			until := now // or the latest time promised, where that is in this slot
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

func (s *slots) drop(mark) {}

func (s *slots) remark(_ int64, m mark, o law) mark {
	if next, ok := o.(*slots); ok && next.width == s.width && next.n == s.n {
		return m
	}
	return nil
}

func (s *slots) spent(now int64) *big.Int {
	at, _ := s.at(now)
	return s.total(at)
}

func (s *slots) counted() *big.Int {
	sum := new(big.Int)
	for _, n := range s.counts {
		sum.Add(sum, big.NewInt(n))
	}
	return sum
}

func (s *slots) load(now int64, spent *big.Int) { s.charge(whole(now), min(clamp(spent), s.limit)) }
