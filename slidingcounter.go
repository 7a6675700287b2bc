package weir

import (
	"fmt"
	"math"
	"time"

	"github.com/weirflow/weir/internal/u128"
)

// SlidingCounter is a FixedWindow whose boundary is smoothed: what was counted in the window before still counts, for the part of it that
// a window sliding along with time would still cover.
//
// In any interval of length D it admits at most Limit*(1 + D/Window); in one of Window, that is up to 2*Limit - 1 where all of it comes at
// the wrong moments. It cannot book ahead: Reserve succeeds only where nothing has to be delayed; Wait queues. State: three words, for
// any Limit, which is what it has over SlidingLog.
type SlidingCounter struct {
	Limit  int64         // how many over the window; at least 1
	Window time.Duration // how long it is
}

// Validate reports what is wrong with the numbers.
func (l SlidingCounter) Validate() error {
	const name = "SlidingCounter"
	switch {
	case l.Limit < 1:
		return field(name, "Limit", fmt.Errorf("%d lets nothing pass: it must be at least 1", l.Limit))
	case l.Window < 1 || l.Window > maxSpan:
		return field(name, "Window", fmt.Errorf("%v is not within 1ns and 100 years", l.Window))
	}
	return nil
}

func (l SlidingCounter) compile(unit time.Duration) (rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	window, err := wholeUnits(l.Window, unit)
	if err != nil {
		return nil, field("SlidingCounter", "Window", err)
	}
	w := &weighted{limit: l.Limit, window: window, tick: unit, horizon: int64(maxSpan / unit)}
	w.first, w.last = w.number(math.MinInt64), w.number(math.MaxInt64)
	w.bits, w.reach = layout(l.Limit, 2, window, w.horizon)
	return w, nil
}

func (l SlidingCounter) normal() Limit { return l }

// weighted is the rule of SlidingCounter: with e the time into the window, a cost is admitted while
//
//	previous*(W-e) + (current+cost)*W <= limit*W
type weighted struct {
	limit, window int64
	first, last   int64 // windows of the clock
	tick          time.Duration
	horizon       int64

	bits  uint  // of each count in a word
	reach int64 // of a word's times; 0 where there is none
}

// Words of a state of weighted. A window is known by its number, as the first one of the clock begins before it.
const (
	wordNumber   = iota // of the current window
	wordCurrent         // what was counted in it
	wordPrevious        // what was counted in the one before
	weightedWords
)

func (w *weighted) capacity() int64     { return w.limit }
func (w *weighted) largest() int64      { return w.limit }
func (w *weighted) books() bool         { return false }
func (w *weighted) wall() bool          { return false }
func (w *weighted) unit() time.Duration { return w.tick }

func (w *weighted) valid(s []int64) bool {
	return len(s) == 0 ||
		len(s) == weightedWords && s[wordNumber] >= w.first && s[wordNumber] <= w.last && s[wordCurrent] >= 0 && s[wordPrevious] >= 0
}

func (w *weighted) contact(s []int64, _ int64) []int64 { return s }

// counts is a state as of a time, which is so far into the current window, or, for an earlier reading, so long before it.
type counts struct{ number, current, previous, into, before int64 }

// number is that of the window that t is in.
func (w *weighted) number(t int64) int64 {
	n := t / w.window
	if t < 0 && n*w.window != t {
		n--
	}
	return n
}

// at brings a state to now. An earlier reading than the current window counts as its beginning.
func (w *weighted) at(s []int64, now int64) counts {
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
	begins := c.number * w.window // for the first window, this and what is left from it on may wrap, and then wrap back
	if here < c.number {
		c.before = until(begins, now)
	} else {
		c.into = now - begins
	}
	return c
}

// fits reports whether a cost is admitted.
func (w *weighted) fits(c counts, cost int64) bool {
	if c.current > w.limit-cost {
		return false
	}
	old := u128.Mul(uint64(c.previous), uint64(w.window-c.into))
	return !u128.Mul(uint64(w.limit-cost-c.current), uint64(w.window)).Less(old)
}

// plan names the exact time for the first in line. Behind others it names one that the turn cannot come before, and may come after: it goes
// by volume, as if those ahead filled each window to the limit.
func (w *weighted) plan(s []int64, now int64, ahead uint64, cost int64) plan {
	c := w.at(s, now)
	wait := w.wait(c, cost)
	if ahead > 0 {
		wait = max(wait, w.behind(c, ahead, cost))
	}
	if wait > w.horizon || uint64(wait) > clockLeft(now) {
		return plan{never, never}
	}
	return plan{wait: wait}
}

// wait is how long it is until a cost is admitted.
func (w *weighted) wait(c counts, cost int64) int64 {
	switch {
	case w.fits(c, cost):
		return 0
	case c.current <= w.limit-cost:
		return plus(c.before, w.enough(c.previous, w.limit-cost-c.current)-c.into)
	}
	return plus(w.next(c, 1), w.enough(c.current, w.limit-cost))
}

// behind is a wait that the turn of a cost cannot come sooner than, behind others. Where all of them fit into this window, the turn comes in it
// no sooner than one cost as large as they are together would. What does not fit goes in later windows, none of which takes more than
// the limit: so many begin before the one that the turn is in.
func (w *weighted) behind(c counts, ahead uint64, cost int64) int64 {
	free := max(minus(w.limit, c.current), 0)
	sum := u128.From(ahead).Add(u128.From(uint64(cost)))
	over := sum.Sub(u128.From(uint64(free)))
	if over.IsZero() {
		return w.wait(c, int64(sum.Lo))
	}
	return w.next(c, over.DivCeil(uint64(w.limit)))
}

// next is how long it is until the n-th window after the current one begins.
func (w *weighted) next(c counts, n uint64) int64 {
	windows := u128.Mul(n-1, uint64(w.window)).Add(u128.From(uint64(w.window - c.into))).Add(u128.From(uint64(c.before)))
	return int64(windows.Min(u128.From(math.MaxInt64)).Lo)
}

// enough is how long into a window it is until no more than room is left of what was counted before it.
func (w *weighted) enough(previous, room int64) int64 {
	if previous == 0 {
		return 0
	}
	q, _, _ := u128.Mul(uint64(room), uint64(w.window)).Div(uint64(previous))
	return max(0, w.window-int64(min(q, uint64(w.window))))
}

func (w *weighted) charge(s []int64, now, cost int64) []int64 {
	c := w.at(s, now)
	return append(s[:0], c.number, plus(c.current, cost), c.previous)
}

func (w *weighted) book(s []int64, now, _, cost int64) ([]int64, ticket) {
	s = w.charge(s, now, cost)
	return s, ticket{wordNumber: s[wordNumber]}
}

func (w *weighted) serve(s []int64, _, now, cost int64) []int64 { return w.charge(s, now, cost) }
func (w *weighted) asOf(_, now int64) int64                     { return now }

// refund takes back from the window that was counted in, while it is the current one or the one before.
func (w *weighted) refund(s []int64, now int64, t ticket, amount int64) []int64 {
	if len(s) == 0 {
		return s
	}
	c := w.at(s, now)
	switch until(c.number, t[wordNumber]) {
	case 0:
		c.current = max(0, c.current-amount)
	case 1:
		c.previous = max(0, c.previous-amount)
	default:
		return s
	}
	return append(s[:0], c.number, c.current, c.previous)
}

func (w *weighted) look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	c := w.at(s, now)
	switch {
	case c.current > 0 || ahead > 0:
		reset = w.next(c, 2)
	case c.previous > 0:
		reset = w.next(c, 1)
	}
	// The largest cost that fits is limit - current - ceil(previous*(W-e)/W).
	old := u128.Mul(uint64(c.previous), uint64(w.window-c.into)).DivCeil(uint64(w.window))
	left := minus(minus(w.limit, c.current), int64(min(old, math.MaxInt64)))
	if left <= 0 || uint64(left) <= ahead {
		return 0, reset
	}
	return left - int64(ahead), reset
}

// convert keeps both counts; with another window, they count in the one that holds now and the one before.
func (w *weighted) convert(s []int64, now int64, to rule, then int64) []int64 {
	next, ok := to.(*weighted)
	switch {
	case !ok:
		return transfer(w, s, now, to, then)
	case len(s) == 0 || next.window == w.window:
		return s
	}
	c := w.at(s, now)
	return append(s[:0], next.number(now), c.current, c.previous)
}

func (w *weighted) reticket(t ticket, _ int64, to rule) (ticket, bool) {
	next, ok := to.(*weighted)
	return t, ok && next.window == w.window
}

func (w *weighted) spent(s []int64, now int64) int64 {
	remaining, _ := w.look(s, now, 0)
	return w.limit - remaining
}

func (w *weighted) load(now, spent int64) []int64 { return w.charge(nil, now, min(spent, w.limit)) }
