package rules

import (
	"math"
	"time"
)

// SlidingWindow has the parameters of weir.SlidingWindow.
type SlidingWindow struct {
	Limit     int64
	Window    time.Duration
	Slots     int
	SlotLimit int64 // default: Limit
}

// MaxSlots bounds the size of a state, and so the time of each decision.
const MaxSlots = 4096

// Normal fills in SlotLimit.
func (l SlidingWindow) Normal() SlidingWindow {
	if l.SlotLimit == 0 {
		l.SlotLimit = l.Limit
	}
	return l
}

// Compile returns the rule for clock units of length unit. The parameters have been validated.
func (l SlidingWindow) Compile(unit time.Duration) (Rule, error) {
	width, err := wholeUnits("Slots", l.Window/time.Duration(l.Slots), unit)
	if err != nil {
		return nil, err
	}
	w := &slidingWindowRule{ruleBasics: basicsFor(unit), limit: l.Limit, slots: int64(l.Slots), width: width, perSlot: l.Normal().SlotLimit}
	w.last = w.slotOf(math.MaxInt64)
	return w, nil
}

// slidingWindowRule is the rule of SlidingWindow. A state is the latest promised time, and a ring of
// counters with the number of the slot that each counts: the counter of slot i is at index i modulo
// the number of slots. When a slot takes over the counter of an earlier one, that one has left the
// window.
type slidingWindowRule struct {
	ruleBasics
	limit, perSlot int64
	slots, width   int64
	last           int64 // the slot that contains the last reading of the clock
}

// Words of a ticket: the charge's slot, the cost, the latest promised time before and after the
// charge, and the slot and count that it overwrote.
const (
	ticketSlot = iota
	ticketSlotCost
	ticketPromisedBefore
	ticketPromisedAfter
	ticketOldSlot
	ticketOldCount
	ticketSlotCount // the count of the slot just after the charge
)

func (w *slidingWindowRule) Kind() string       { return "sliding_window" }
func (w *slidingWindowRule) Words() int         { return int(1 + 2*w.slots) }
func (w *slidingWindowRule) Capacity() int64    { return w.perSlot }
func (w *slidingWindowRule) LargestCost() int64 { return w.perSlot }

func (w *slidingWindowRule) Valid(s []int64) bool {
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

// at returns the slot in which a charge counts: that of now, or of the latest promised time if it is
// later. If the clock was set back, that is the newest slot with a count. wait is the time until the
// latest promise.
func (w *slidingWindowRule) at(s []int64, now int64) (slot, wait int64) {
	if len(s) == 0 {
		return w.slotOf(now), 0
	}
	wait = pending(s[0], now)
	return max(w.slotOf(max(now, s[0])), w.newest(s)), wait
}

// firstSlot and lastSlot bound the slot numbers, so that the numbers of a whole window before and
// after do not overflow. With slots of one clock unit, readings at the very beginning of the clock
// count as a little later, and all readings at its very end are in one slot, the last.
const (
	firstSlot = math.MinInt64 + 2*MaxSlots
	lastSlot  = math.MaxInt64 - 2*MaxSlots
)

// slotOf is the slot that contains t.
func (w *slidingWindowRule) slotOf(t int64) int64 {
	slot := t / w.width
	if t < 0 && slot*w.width != t {
		slot--
	}
	return min(max(slot, firstSlot), lastSlot)
}

// DecideDirect reads the ring once. It leaves the decision to the general path if a reservation is
// promised a later time, or if the clock was set back to before a slot with a count.
func (w *slidingWindowRule) DecideDirect(s []int64, now, cost int64, charge bool) (next []int64, v DirectVerdict, ok bool) {
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
	left, here := Minus(w.limit, sum), int64(0)
	i := 1 + 2*modulo(at, w.slots)
	if s[i] == at {
		here = s[i+1]
	}
	left = min(left, w.perSlot-here)
	switch {
	case cost > left:
		if v.Retry = w.starts(w.first(s, at, cost, true), now); v.Retry == Never {
			return s, v, false
		}
	case charge:
		s[0], s[i], s[i+1] = none, at, here+cost
		newest = at
		left -= cost
	}
	if newest != none {
		v.Reset = w.leaves(newest, now)
	}
	v.Remaining = max(left, 0)
	return s, v, true
}

// newest returns the latest slot with a count.
func (w *slidingWindowRule) newest(s []int64) int64 {
	newest := int64(none)
	for i := 1; i < len(s); i += 2 {
		if s[i+1] > 0 {
			newest = max(newest, s[i])
		}
	}
	return newest
}

// count returns the count of a slot.
func (w *slidingWindowRule) count(s []int64, slot int64) int64 {
	if i := 1 + 2*modulo(slot, w.slots); len(s) > 0 && s[i] == slot {
		return s[i+1]
	}
	return 0
}

// total returns the sum of the counts of the window that ends with a slot.
func (w *slidingWindowRule) total(s []int64, slot int64) (sum int64) {
	for i := 1; i < len(s); i += 2 {
		if s[i] <= slot && s[i] > slot-w.slots {
			sum = plus(sum, s[i+1])
		}
	}
	return sum
}

// first returns the first slot, from the given one on, in which a cost fits: into the limit of the
// window, and if perSlot is set, into the limit of the slot.
func (w *slidingWindowRule) first(s []int64, from, cost int64, perSlot bool) int64 {
	sum := w.total(s, from)
	if sum == math.MaxInt64 { // saturated: the exact sum has to be counted from the other end
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
		if here = 0; len(s) > 0 && s[i] == slot+1-w.slots { // the slot that leaves; slots after from have no counts
			sum -= s[i+1]
		}
	}
}

// starts returns the time from now until a slot starts; Never if that is beyond the horizon or the
// end of the clock. It is 0 for a slot that has started.
func (w *slidingWindowRule) starts(slot, now int64) int64 {
	if slot > w.last {
		return Never
	}
	if wait := Until(slot*w.width, now); wait <= w.horizon {
		return wait
	}
	return Never
}

// leaves returns the time from now until a slot leaves the window; the largest int64 if that is
// beyond the end of the clock.
func (w *slidingWindowRule) leaves(slot, now int64) int64 {
	if slot > w.last-w.slots {
		return math.MaxInt64
	}
	return Until((slot+w.slots)*w.width, now)
}

// Plan estimates the wait behind a queue by the sum of the costs ahead. The estimate may be too
// short, and is never too long.
func (w *slidingWindowRule) Plan(s []int64, now int64, ahead uint64, cost int64) Plan {
	at, wait := w.at(s, now)
	if wait > w.horizon {
		return Plan{Never, Never}
	}
	slot := w.first(s, at, cost, true)
	if ahead > 0 {
		whole, rest := inLimits(ahead, cost, w.limit)
		if whole > uint64(w.horizon/w.width/w.slots)+1 {
			return Plan{Never, Never}
		}
		slot = max(slot, plus(w.first(s, at, rest, false), int64(whole)*w.slots))
	}
	if slot > at {
		wait = w.starts(slot, now)
	}
	return Plan{Wait: wait}
}

func (w *slidingWindowRule) Charge(s []int64, now, cost int64) []int64 {
	s, _ = w.Book(s, now, now, cost)
	return s
}

func (w *slidingWindowRule) Book(s []int64, now, due, cost int64) ([]int64, Ticket) {
	if len(s) == 0 {
		s = append(s, none)
		for range w.slots {
			s = append(s, none, 0)
		}
	}
	due = max(due, s[0])
	slot, _ := w.at(s, due)
	i := 1 + 2*modulo(slot, w.slots)
	t := Ticket{
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

// Refund lowers the count of the charge's slot while the slot is in the window. If the charge was the
// latest, it restores the promised time before it, and the slot that it overwrote.
func (w *slidingWindowRule) Refund(_ *Memory, s []int64, now int64, t Ticket, amount int64) []int64 {
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

func (w *slidingWindowRule) Look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	at, wait := w.at(s, now)
	if newest := w.newest(s); newest != none {
		reset = w.leaves(newest, now)
	}
	if ahead > 0 {
		reset = max(reset, w.leaves(at, now))
	}
	reset = max(reset, wait)
	left := min(Minus(w.limit, w.total(s, at)), Minus(w.perSlot, w.count(s, at)))
	if wait > 0 || left <= 0 || uint64(left) <= ahead {
		return 0, reset
	}
	return left - int64(ahead), reset
}

// Convert moves each count to a new slot, if the number or the length of the slots changes: to the one
// of the latest time at which it may have been counted.
func (w *slidingWindowRule) Convert(s []int64, now int64, to Rule, then int64) []int64 {
	next, ok := to.(*slidingWindowRule)
	switch {
	case !ok:
		return convertAcross(w, s, now, to, then)
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

// latest returns the latest time at which a count of a slot may have been counted. last is the time
// after which nothing is counted.
func (w *slidingWindowRule) latest(slot, now, last int64) int64 {
	end := int64(math.MaxInt64)
	if slot < w.last {
		end = (slot+1)*w.width - 1
	}
	if slot == w.slotOf(now) {
		return min(end, last)
	}
	return end
}

func (w *slidingWindowRule) ConvertTicket(t Ticket, to Rule) (Ticket, bool) {
	next, ok := to.(*slidingWindowRule)
	return t, ok && next.width == w.width && next.slots == w.slots
}

func (w *slidingWindowRule) Spent(s []int64, now int64) int64 {
	at, _ := w.at(s, now)
	return w.total(s, at)
}

func (w *slidingWindowRule) Load(now, spent int64) []int64 {
	return w.Charge(nil, now, min(spent, w.limit))
}

var slidingWindowKind = Kind{
	Name:    "sliding_window",
	GoName:  "SlidingWindow",
	Doc:     "Sliding window of counters: at most limit over the last slots, and at most slot_limit in each slot.",
	Returns: "what a slot has used comes back when the slot leaves the window",
	Page:    "SlidingWindow",
	Zero:    SlidingWindow{},
	Script:  Script{Name: "window", Number: 5, Lists: true},
	Fields: []Field{
		{Name: "limit", Type: CountField, Required: true, Doc: "How many requests over the window; at least 1."},
		{Name: "window", Type: DurationField, Required: true, Doc: "The length of the window, like 1s. Each slot must be a whole number of nanoseconds."},
		{Name: "slots", Type: CountField, Required: true, Doc: "How many slots the window is divided into; 2 to 4096."},
		{Name: "slot_limit", Type: CountField, Default: "limit", Doc: "How many requests in each slot."},
	},
	NoZone: "nginx has no window to import, and no other use of a shared window is known",
}

// Kind implements Params.
func (l SlidingWindow) Kind() *Kind { return &slidingWindowKind }

// MostPerRequest implements Params.
func (l SlidingWindow) MostPerRequest() (int64, string) {
	if l.SlotLimit > 0 {
		return l.SlotLimit, "slot_limit"
	}
	return l.Limit, "limit"
}

// QuotaWindow implements Params.
func (l SlidingWindow) QuotaWindow() time.Duration { return l.Window }

// MostWords implements Params.
func (l SlidingWindow) MostWords() int64 { return 4 * int64(l.Slots) }

// Resets implements Params.
func (l SlidingWindow) Resets() bool { return true }

// Share implements Shared.
func (l SlidingWindow) Share(n int64) Params {
	l.Limit = part(l.Limit, n)
	if l.SlotLimit > 0 {
		l.SlotLimit = part(l.SlotLimit, n)
	}
	return l
}

// UsedUp implements Shared.
func (l SlidingWindow) UsedUp(time.Duration) []Use {
	return spread(l.Limit, l.Window, min(l.Slots, pieces))
}

// LeaseEnds implements Leased: with the slot.
func (l SlidingWindow) LeaseEnds(reset, unit time.Duration) (time.Duration, bool) {
	return reset - time.Duration(l.Slots-1)*l.LongestLease() - unit, true
}

// LongestLease implements Leased.
func (l SlidingWindow) LongestLease() time.Duration {
	if l.Slots > 0 {
		return l.Window / time.Duration(l.Slots)
	}
	return math.MaxInt64
}

// LeasePause implements Leased.
func (l SlidingWindow) LeasePause(time.Duration) time.Duration { return 0 }

// MoreWait implements Leased.
func (l SlidingWindow) MoreWait(int64) (time.Duration, bool) { return 0, false }

// LeaseResets implements Leased.
func (l SlidingWindow) LeaseResets() bool { return false }

// StoreNumbers implements Stored: the last is the width of a slot.
func (l SlidingWindow) StoreNumbers(c Counting) ([]int64, error) {
	return []int64{l.Limit, l.Normal().SlotLimit, int64(l.Slots), c.units(l.Window) / int64(l.Slots)}, nil
}
