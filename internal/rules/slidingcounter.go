package rules

import (
	"math"
	"time"

	"github.com/weirflow/weir/internal/u128"
)

// SlidingCounter is the parameters of the limit of that name.
type SlidingCounter struct {
	Limit  int64
	Window time.Duration
}

// Compile returns the rule for clock units of length unit. The parameters have been validated.
func (l SlidingCounter) Compile(unit time.Duration) (Rule, error) {
	window, err := wholeUnits("Window", l.Window, unit)
	if err != nil {
		return nil, err
	}
	w := &slidingCounterRule{ruleBasics: basicsFor(unit), limit: l.Limit, window: window}
	w.first, w.last = w.number(math.MinInt64), w.number(math.MaxInt64)
	w.bits, w.reach = divideWord(l.Limit, 2, window, w.horizon)
	return w, nil
}

// slidingCounterRule is the rule of SlidingCounter: with e the time into the window, a cost is
// admitted while
//
//	previous*(W-e) + (current+cost)*W <= limit*W
type slidingCounterRule struct {
	ruleBasics
	limit, window int64
	first, last   int64 // windows of the clock

	bits  uint  // bits of each count in a word
	reach int64 // the reach of a word's times; 0 if there is no word form
}

// Words of a state of slidingCounterRule. Windows are numbered, as the first window of the clock
// begins before the clock does.
const (
	wordNumber   = iota // of the current window
	wordCurrent         // its count
	wordPrevious        // the count of the window before
	weightedWords
)

func (w *slidingCounterRule) Kind() string       { return "sliding_counter" }
func (w *slidingCounterRule) Words() int         { return weightedWords }
func (w *slidingCounterRule) Capacity() int64    { return w.limit }
func (w *slidingCounterRule) LargestCost() int64 { return w.limit }
func (w *slidingCounterRule) CanBook() bool      { return false }

func (w *slidingCounterRule) Valid(s []int64) bool {
	return len(s) == 0 ||
		len(s) == weightedWords && s[wordNumber] >= w.first && s[wordNumber] <= w.last && s[wordCurrent] >= 0 && s[wordPrevious] >= 0
}

// counts is a state at a time: how far it is into the current window, or for an earlier reading how
// long before it.
type counts struct{ number, current, previous, into, before int64 }

// number is the number of the window that contains t.
func (w *slidingCounterRule) number(t int64) int64 {
	n := t / w.window
	if t < 0 && n*w.window != t {
		n--
	}
	return n
}

// at brings a state to now. A reading before the current window counts as its beginning.
func (w *slidingCounterRule) at(s []int64, now int64) counts {
	here := w.number(now)
	c := counts{number: here}
	if len(s) > 0 {
		switch {
		case here <= s[wordNumber]:
			c.number, c.current, c.previous = s[wordNumber], s[wordCurrent], s[wordPrevious]
		case here-1 == s[wordNumber]:
			c.previous = s[wordCurrent]
		}
	}
	// for the first window, this and what is left from it on may wrap, and then wrap back
	begins := c.number * w.window
	if here < c.number {
		c.before = Until(begins, now)
	} else {
		c.into = now - begins
	}
	return c
}

// fits reports whether a cost is admitted.
func (w *slidingCounterRule) fits(c counts, cost int64) bool {
	if c.current > w.limit-cost {
		return false
	}
	old := u128.Mul(uint64(c.previous), uint64(w.window-c.into))
	return !u128.Mul(uint64(w.limit-cost-c.current), uint64(w.window)).Less(old)
}

// Plan names the exact time for the first waiter. Behind others, the turn may come later than the
// time that it names, but never earlier: it goes by volume, as if those ahead filled each window to
// the limit.
func (w *slidingCounterRule) Plan(s []int64, now int64, ahead uint64, cost int64) Plan {
	c := w.at(s, now)
	wait := w.wait(c, cost)
	if ahead > 0 {
		wait = max(wait, w.behind(c, ahead, cost))
	}
	if wait > w.horizon || uint64(wait) > ClockLeft(now) {
		return Plan{Never, Never}
	}
	return Plan{Wait: wait}
}

// wait is how long it is until a cost is admitted.
func (w *slidingCounterRule) wait(c counts, cost int64) int64 {
	switch {
	case w.fits(c, cost):
		return 0
	case c.current <= w.limit-cost:
		return plus(c.before, w.enough(c.previous, w.limit-cost-c.current)-c.into)
	}
	return plus(w.next(c, 1), w.enough(c.current, w.limit-cost))
}

// behind is a lower bound of the wait of a cost behind a queue. If the queue fits into this window,
// the turn comes no sooner than that of one cost as large as the whole queue. What does not fit
// goes in later windows, each of which takes at most the limit: at least that many begin before the
// turn's window.
func (w *slidingCounterRule) behind(c counts, ahead uint64, cost int64) int64 {
	free := max(Minus(w.limit, c.current), 0)
	sum := u128.From(ahead).Add(u128.From(uint64(cost)))
	over := sum.Sub(u128.From(uint64(free)))
	if over.IsZero() {
		return w.wait(c, int64(sum.Lo))
	}
	return w.next(c, over.DivCeil(uint64(w.limit)))
}

// next is how long it is until the n-th window after the current one begins.
func (w *slidingCounterRule) next(c counts, n uint64) int64 {
	windows := u128.Mul(n-1, uint64(w.window)).Add(u128.From(uint64(w.window - c.into))).Add(u128.From(uint64(c.before)))
	return int64(windows.Min(u128.From(math.MaxInt64)).Lo)
}

// enough is how far into a window the weighted count of the window before is down to room.
func (w *slidingCounterRule) enough(previous, room int64) int64 {
	if previous == 0 {
		return 0
	}
	q, _, _ := u128.Mul(uint64(room), uint64(w.window)).Div(uint64(previous))
	return max(0, w.window-int64(min(q, uint64(w.window))))
}

func (w *slidingCounterRule) Charge(s []int64, now, cost int64) []int64 {
	c := w.at(s, now)
	return append(s[:0], c.number, plus(c.current, cost), c.previous)
}

func (w *slidingCounterRule) Book(s []int64, now, _, cost int64) ([]int64, Ticket) {
	s = w.Charge(s, now, cost)
	return s, Ticket{wordNumber: s[wordNumber]}
}

// Refund lowers the count of the charge's window, while that is the current window or the one
// before.
func (w *slidingCounterRule) Refund(_ *Memory, s []int64, now int64, t Ticket, amount int64) []int64 {
	if len(s) == 0 {
		return s
	}
	c := w.at(s, now)
	switch Until(c.number, t[wordNumber]) {
	case 0:
		c.current = max(0, c.current-amount)
	case 1:
		c.previous = max(0, c.previous-amount)
	default:
		return s
	}
	return append(s[:0], c.number, c.current, c.previous)
}

func (w *slidingCounterRule) Look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	c := w.at(s, now)
	switch {
	case c.current > 0 || ahead > 0:
		reset = w.next(c, 2)
	case c.previous > 0:
		reset = w.next(c, 1)
	}
	// The largest cost that fits is limit - current - ceil(previous*(W-e)/W).
	old := u128.Mul(uint64(c.previous), uint64(w.window-c.into)).DivCeil(uint64(w.window))
	left := Minus(Minus(w.limit, c.current), int64(min(old, math.MaxInt64)))
	if left <= 0 || uint64(left) <= ahead {
		return 0, reset
	}
	return left - int64(ahead), reset
}

// Convert keeps both counts. If the window changes, they count in the window of now and the one
// before.
func (w *slidingCounterRule) Convert(s []int64, now int64, to Rule, then int64) []int64 {
	next, ok := to.(*slidingCounterRule)
	switch {
	case !ok:
		return convertAcross(w, s, now, to, then)
	case len(s) == 0 || next.window == w.window:
		return s
	}
	c := w.at(s, now)
	return append(s[:0], next.number(now), c.current, c.previous)
}

func (w *slidingCounterRule) ConvertTicket(t Ticket, to Rule) (Ticket, bool) {
	next, ok := to.(*slidingCounterRule)
	return t, ok && next.window == w.window
}

func (w *slidingCounterRule) Spent(s []int64, now int64) int64 {
	remaining, _ := w.Look(s, now, 0)
	return w.limit - remaining
}

func (w *slidingCounterRule) Load(now, spent int64) []int64 {
	return w.Charge(nil, now, min(spent, w.limit))
}

// The word of a SlidingCounter is the number of the current window from the base on, and the counts
// of it and of the window before.

func (w *slidingCounterRule) Rebase(s []int64, now int64) (base, reach int64, kept bool) {
	if w.reach == 0 || w.window > w.horizon/4 {
		return 0, 0, false
	}
	number := w.number(now)
	if kept = len(s) == 0 || Until(number, s[wordNumber]) > 1; !kept {
		number = s[wordNumber]
	}
	if number == w.first {
		return 0, 0, false // the window begins before the clock
	}
	return number * w.window, w.reach, kept
}

func (w *slidingCounterRule) Pack(f *WordRange, s []int64) int64 {
	number := s[wordNumber] - f.Base/w.window
	if number < 0 || number > f.Reach/w.window || s[wordCurrent] > w.limit || s[wordPrevious] > w.limit {
		return askRule
	}
	return number<<(2*w.bits) | s[wordCurrent]<<w.bits | s[wordPrevious]
}

func (w *slidingCounterRule) Unpack(f *WordRange, word int64, s []int64) []int64 {
	number, current, previous := w.parts(word)
	return append(s[:0], f.Base/w.window+number, current, previous)
}

// parts reads a word.
func (w *slidingCounterRule) parts(word int64) (number, current, previous int64) {
	mask := int64(1)<<w.bits - 1
	return word >> (2 * w.bits), word >> w.bits & mask, word & mask
}

func (w *slidingCounterRule) StepWord(_ *WordRange, word, now, cost int64, charge bool) (next, remaining, reset, retry int64) {
	number, current, previous := w.parts(word)
	begins := number * w.window
	into := max(now-begins, 0)
	if into >= w.window {
		passed := into / w.window
		if previous = 0; passed == 1 {
			previous = current
		}
		current = 0
		number += passed
		begins += passed * w.window
		into -= passed * w.window
	}
	left := w.limit - current
	if previous > 0 {
		left -= int64(u128.Mul(uint64(previous), uint64(w.window-into)).DivCeil(uint64(w.window)))
	}
	switch {
	case cost > left && cost > 0:
		retry = w.wait(counts{number, current, previous, into, max(begins-now, 0)}, cost)
	case charge:
		current += cost
		left -= cost
	}
	switch {
	case current > 0:
		reset = begins + 2*w.window - now
	case previous > 0:
		reset = begins + w.window - now
	}
	return number<<(2*w.bits) | current<<w.bits | previous, max(left, 0), reset, retry
}

// OneWindow implements WordRule.
func (w *slidingCounterRule) OneWindow() bool { return false }

var slidingCounterKind = Kind{
	Name:      "sliding_counter",
	GoName:    "SlidingCounter",
	Doc:       "Sliding window counter: the current window plus a weighted part of the previous one. Three numbers per key, whatever the limit.",
	Returns:   "what the previous window has used comes back little by little, while this one goes by",
	Page:      "SlidingCounter",
	Zero:      SlidingCounter{},
	NoRegions: "it estimates what was used by the previous window, which had another part",
	Script:    Script{Name: "counter", Number: 4},
	Fields: []Field{
		{Name: "limit", Type: CountField, Required: true, Doc: "How many requests over the window; at least 1."},
		{Name: "window", Type: DurationField, Required: true, Doc: "The length of the window, like 1m."},
	},
	NoZone: "nginx has no window to import, and no other use of a shared window is known",
}

// Kind implements Params.
func (l SlidingCounter) Kind() *Kind { return &slidingCounterKind }

// MostPerRequest implements Params.
func (l SlidingCounter) MostPerRequest() (int64, string) { return l.Limit, "limit" }

// QuotaWindow implements Params.
func (l SlidingCounter) QuotaWindow() time.Duration { return l.Window }

// MostWords implements Params.
func (l SlidingCounter) MostWords() int64 { return 8 }

// Resets implements Params.
func (l SlidingCounter) Resets() bool { return true }

// Share implements Shared.
func (l SlidingCounter) Share(n int64) Params {
	l.Limit = part(l.Limit, n)
	return l
}

// UsedUp implements Shared.
func (l SlidingCounter) UsedUp(time.Duration) []Use { return spread(l.Limit, l.Window, pieces) }

// LeaseEnds implements Leased: with the current window.
func (l SlidingCounter) LeaseEnds(reset, unit time.Duration) (time.Duration, bool) {
	return reset - l.Window - unit, true
}

// LongestLease implements Leased.
func (l SlidingCounter) LongestLease() time.Duration { return l.Window }

// LeasePause implements Leased.
func (l SlidingCounter) LeasePause(lifetime time.Duration) time.Duration {
	return min(lifetime, l.Window) / 32
}

// MoreWait implements Leased.
func (l SlidingCounter) MoreWait(int64) (time.Duration, bool) { return 0, false }

// LeaseResets implements Leased.
func (l SlidingCounter) LeaseResets() bool { return false }

// StoreNumbers implements Stored.
func (l SlidingCounter) StoreNumbers(c Counting) ([]int64, error) {
	return []int64{l.Limit, c.units(l.Window)}, nil
}
