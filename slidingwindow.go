package weir

import (
	"fmt"
	"math"
	"time"
)

// SlidingWindow counts in slots: at most Limit over the last Slots of them, which make up Window, and at most SlotLimit in each. "100 a
// second, and no more than 20 in any 100 ms" is SlidingWindow{Limit: 100, Window: time.Second, Slots: 10, SlotLimit: 20}.
//
// It admits at most Limit in any interval up to Window less one slot, and at most Limit + SlotLimit (2*Limit without a SlotLimit) in any
// up to Window. For never more than Limit in any Window there is SlidingLog. Slots are aligned to the limiter's clock: an interval as
// long as a slot may hold twice SlotLimit. State: 1 + 2*Slots words.
type SlidingWindow struct {
	Limit     int64         // how many over the window; at least 1
	Window    time.Duration // how long the window is: a whole number of nanoseconds for each slot
	Slots     int           // how many slots it is divided into; 2 to 4096
	SlotLimit int64         // how many in each slot; 0 for as many as Limit
}

// maxSlots keeps a state, and the work of each decision, small.
const maxSlots = 4096

// Validate reports what is wrong with the numbers.
func (l SlidingWindow) Validate() error {
	const name = "SlidingWindow"
	switch {
	case l.Limit < 1:
		return field(name, "Limit", fmt.Errorf("%d lets nothing pass: it must be at least 1", l.Limit))
	case l.Window < 1 || l.Window > maxSpan:
		return field(name, "Window", fmt.Errorf("%v is not within 1ns and 100 years", l.Window))
	case l.Slots < 2 || l.Slots > maxSlots:
		return field(name, "Slots", fmt.Errorf("%d is not within 2 and %d (for 1, there is FixedWindow)", l.Slots, maxSlots))
	case l.Window%time.Duration(l.Slots) != 0:
		return field(name, "Slots", fmt.Errorf("%v cannot be divided into %d slots of whole nanoseconds", l.Window, l.Slots))
	case l.SlotLimit < 0 || l.SlotLimit > l.Limit:
		return field(name, "SlotLimit", fmt.Errorf("%d is not within 0 and the limit of %d", l.SlotLimit, l.Limit))
	}
	return nil
}

func (l SlidingWindow) compile(unit time.Duration) (rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	width, err := wholeUnits(l.Window/time.Duration(l.Slots), unit)
	if err != nil {
		return nil, field("SlidingWindow", "Slots", err)
	}
	l = l.normal().(SlidingWindow)
	w := &sliding{limit: l.Limit, slots: int64(l.Slots), width: width, perSlot: l.SlotLimit, tick: unit, horizon: int64(maxSpan / unit)}
	w.last = w.slotOf(math.MaxInt64)
	return w, nil
}

func (l SlidingWindow) normal() Limit {
	if l.SlotLimit == 0 {
		l.SlotLimit = l.Limit
	}
	return l
}

// sliding is the rule of SlidingWindow. A state is the latest time that was promised, and for each slot of the window its number and what
// was counted in it: slot i is kept at i modulo the number of slots. A slot that is overwritten is one that has left the window.
type sliding struct {
	limit, perSlot int64
	slots, width   int64
	last           int64 // slot of the clock
	tick           time.Duration
	horizon        int64
}

// Words of a ticket: the slot that was counted in, the cost, the latest promise before and after, and the slot that was overwritten.
const (
	ticketSlot = iota
	ticketSlotCost
	ticketPromisedBefore
	ticketPromisedAfter
	ticketOldSlot
	ticketOldCount
	ticketSlotCount // what was counted in the slot just after
)

func (w *sliding) capacity() int64     { return w.perSlot }
func (w *sliding) largest() int64      { return w.perSlot }
func (w *sliding) books() bool         { return true }
func (w *sliding) wall() bool          { return false }
func (w *sliding) unit() time.Duration { return w.tick }

func (w *sliding) valid(s []int64) bool {
	if len(s) == 0 {
		return true
	}
	if int64(len(s)) != 1+2*w.slots {
		return false
	}
	for i := range w.slots {
		slot, count := s[1+2*i], s[2+2*i]
		if count < 0 || slot != none && (modulo(slot, w.slots) != i || slot < firstSlot || slot > w.last) {
			return false
		}
	}
	return true
}

// modulo is the remainder that is not below 0.
func modulo(a, b int64) int64 {
	if m := a % b; m >= 0 {
		return m
	} else {
		return m + b
	}
}

func (w *sliding) contact(s []int64, _ int64) []int64 { return s }

// at is the slot that counts at now, or at the latest time that was promised. An earlier reading than the newest slot counts in that.
func (w *sliding) at(s []int64, now int64) (slot, wait int64) {
	if len(s) == 0 {
		return w.slotOf(now), 0
	}
	wait = pending(s[0], now)
	return max(w.slotOf(max(now, s[0])), w.newest(s)), wait
}

// firstSlot and lastSlot are the numbers that slots keep within, so that there is a number for as many slots before and after. Where slots
// are of one clock unit, readings at the very beginning of the clock count as a little later, and all at the very end are in one slot, which
// no other follows.
const (
	firstSlot = math.MinInt64 + 2*maxSlots
	lastSlot  = math.MaxInt64 - 2*maxSlots
)

// slotOf is the slot that t is in.
func (w *sliding) slotOf(t int64) int64 {
	slot := t / w.width
	if t < 0 && slot*w.width != t {
		slot--
	}
	return min(max(slot, firstSlot), lastSlot)
}

// decide reads the ring once. Where something lies ahead of now, be it a promise or, when the clock was put back, a slot, it leaves the
// matter to the others.
func (w *sliding) decide(s []int64, now, cost int64, charge bool) (next []int64, v verdict, ok bool) {
	at := w.slotOf(now)
	if s[0] != none && s[0] > now {
		return s, v, false
	}
	sum, newest, oldest := int64(0), int64(none), at-w.slots
	for i := 1; i < len(s); i += 2 {
		if slot, count := s[i], s[i+1]; count > 0 {
			newest = max(newest, slot)
			if slot > oldest {
				sum = plus(sum, count)
			}
		}
	}
	if newest > at {
		return s, v, false
	}
	left, here := minus(w.limit, sum), int64(0)
	i := 1 + 2*modulo(at, w.slots)
	if s[i] == at {
		here = s[i+1]
	}
	left = min(left, w.perSlot-here)
	switch {
	case cost > left:
		if v.wait = w.starts(w.first(s, at, cost, true), now); v.wait == never {
			return s, v, false
		}
	case charge:
		s[0], s[i], s[i+1] = none, at, here+cost
		newest = at
		left -= cost
	}
	if newest != none {
		v.reset = w.leaves(newest, now)
	}
	v.remaining = max(left, 0)
	return s, v, true
}

// newest is the latest slot that something is counted in.
func (w *sliding) newest(s []int64) int64 {
	newest := int64(none)
	for i := 1; i < len(s); i += 2 {
		if s[i+1] > 0 {
			newest = max(newest, s[i])
		}
	}
	return newest
}

// count is what is counted in a slot.
func (w *sliding) count(s []int64, slot int64) int64 {
	if i := 1 + 2*modulo(slot, w.slots); len(s) > 0 && s[i] == slot {
		return s[i+1]
	}
	return 0
}

// total is what is counted in the window that ends with a slot.
func (w *sliding) total(s []int64, slot int64) (sum int64) {
	for i := 1; i < len(s); i += 2 {
		if s[i] <= slot && s[i] > slot-w.slots {
			sum = plus(sum, s[i+1])
		}
	}
	return sum
}

// first is the first slot from one on in which a cost fits, by the total and, where it counts, by the slot.
func (w *sliding) first(s []int64, from, cost int64, perSlot bool) int64 {
	sum := w.total(s, from)
	if sum == math.MaxInt64 { // or more, which has to be counted from the other end
		slot, room := from, w.limit-cost
		for ; w.count(s, slot) <= room; slot-- {
			room -= w.count(s, slot)
		}
		return slot + w.slots
	}
	here := w.count(s, from)
	for slot, i := from, 1+2*int(modulo(from, w.slots)); ; slot++ {
		if sum <= w.limit-cost && (!perSlot || here <= w.perSlot-cost) {
			return slot
		}
		if i += 2; i > int(2*w.slots) {
			i = 1
		}
		if here = 0; len(s) > 0 && s[i] == slot+1-w.slots { // and nothing is counted after from
			sum -= s[i+1]
		}
	}
}

// starts is how long after now a slot starts, never beyond the horizon or the end of the clock. It is 0 for one that has started, and for the
// one that an earlier reading counts in.
func (w *sliding) starts(slot, now int64) int64 {
	if slot > w.last {
		return never
	}
	if wait := until(slot*w.width, now); wait <= w.horizon {
		return wait
	}
	return never
}

// leaves is how long after now a slot leaves the window: for as long as can be said where that is beyond the end of the clock.
func (w *sliding) leaves(slot, now int64) int64 {
	if slot > w.last-w.slots {
		return math.MaxInt64
	}
	return until((slot+w.slots)*w.width, now)
}

// plan goes by volume behind others: it may then name too early a time, but never too late a one.
func (w *sliding) plan(s []int64, now int64, ahead uint64, cost int64) plan {
	at, wait := w.at(s, now)
	if wait > w.horizon {
		return plan{never, never}
	}
	slot := w.first(s, at, cost, true)
	if ahead > 0 {
		whole, rest := inLimits(ahead, cost, w.limit)
		if whole > uint64(w.horizon/w.width/w.slots)+1 {
			return plan{never, never}
		}
		slot = max(slot, plus(w.first(s, at, rest, false), int64(whole)*w.slots))
	}
	if slot > at {
		wait = w.starts(slot, now)
	}
	return plan{wait: wait}
}

func (w *sliding) charge(s []int64, now, cost int64) []int64 {
	s, _ = w.book(s, now, now, cost)
	return s
}

func (w *sliding) book(s []int64, now, due, cost int64) ([]int64, ticket) {
	if len(s) == 0 {
		s = append(s, none)
		for range w.slots {
			s = append(s, none, 0)
		}
	}
	due = max(due, s[0])
	slot, _ := w.at(s, due)
	i := 1 + 2*modulo(slot, w.slots)
	t := ticket{
		ticketSlot: slot, ticketSlotCost: cost, ticketPromisedBefore: s[0], ticketPromisedAfter: none, ticketOldSlot: s[i], ticketOldCount: s[i+1],
	}
	if s[i] != slot {
		s[i], s[i+1] = slot, 0
	}
	s[i+1] = plus(s[i+1], cost)
	if due > now {
		t[ticketPromisedAfter] = due
	}
	s[0], t[ticketSlotCount] = t[ticketPromisedAfter], s[i+1]
	return s, t
}

func (w *sliding) serve(s []int64, _, now, cost int64) []int64 { return w.charge(s, now, cost) }
func (w *sliding) asOf(_, now int64) int64                     { return now }

// refund takes back from the slot that was counted in, while it is in the window. Where it was the latest charge, what was promised before
// is the latest promise again, and a slot that it overwrote is there again.
func (w *sliding) refund(s []int64, now int64, t ticket, amount int64) []int64 {
	if len(s) == 0 {
		return s
	}
	i := 1 + 2*modulo(t[ticketSlot], w.slots)
	if s[i] != t[ticketSlot] {
		return s
	}
	latest := s[0] == t[ticketPromisedAfter] && s[i+1] == t[ticketSlotCount] && w.newest(s) == t[ticketSlot]
	if s[i+1] = max(0, s[i+1]-amount); !latest || amount != t[ticketSlotCost] {
		return s
	}
	if s[0] = t[ticketPromisedBefore]; s[i+1] == 0 {
		s[i], s[i+1] = t[ticketOldSlot], t[ticketOldCount]
	}
	return s
}

func (w *sliding) look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	at, wait := w.at(s, now)
	if newest := w.newest(s); newest != none {
		reset = w.leaves(newest, now)
	}
	if ahead > 0 {
		reset = max(reset, w.leaves(at, now))
	}
	reset = max(reset, wait)
	left := min(minus(w.limit, w.total(s, at)), minus(w.perSlot, w.count(s, at)))
	if wait > 0 || left <= 0 || uint64(left) <= ahead {
		return 0, reset
	}
	return left - int64(ahead), reset
}

// convert moves each count to the slot of its latest possible time, where slots have another width.
func (w *sliding) convert(s []int64, now int64, to rule, then int64) []int64 {
	next, ok := to.(*sliding)
	switch {
	case !ok:
		return transfer(w, s, now, to, then)
	case len(s) == 0 || next.width == w.width && next.slots == w.slots:
		return s
	}
	at, _ := w.at(s, now)
	moved := make([]int64, 1, 1+2*next.slots)
	moved[0] = s[0]
	for range next.slots {
		moved = append(moved, none, 0)
	}
	for slot := at - w.slots + 1; slot <= at; slot++ {
		if count := w.count(s, slot); count > 0 {
			latest := next.slotOf(w.latest(slot, now, max(now, s[0])))
			if i := 1 + 2*modulo(latest, next.slots); moved[i] == latest {
				moved[i+1] = plus(moved[i+1], count)
			} else {
				moved[i], moved[i+1] = latest, count
			}
		}
	}
	return moved
}

// latest is the latest time that can be counted in a slot, where nothing is counted later than some time.
func (w *sliding) latest(slot, now, last int64) int64 {
	end := int64(math.MaxInt64)
	if slot < w.last {
		end = (slot+1)*w.width - 1
	}
	if slot == w.slotOf(now) {
		return min(end, last)
	}
	return end
}

func (w *sliding) reticket(t ticket, _ int64, to rule) (ticket, bool) {
	next, ok := to.(*sliding)
	return t, ok && next.width == w.width && next.slots == w.slots
}

func (w *sliding) spent(s []int64, now int64) int64 {
	at, _ := w.at(s, now)
	return w.total(s, at)
}

func (w *sliding) load(now, spent int64) []int64 { return w.charge(nil, now, min(spent, w.limit)) }
