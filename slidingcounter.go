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
	w.bits, w.reach = layout(l.Limit, 2, window, w.horizon)
	return w, nil
}

func (l SlidingCounter) normal() Limit { return l }

// weighted is the rule of SlidingCounter: with e the time into the window, a cost is admitted while
//
//	previous*(W-e) + (current+cost)*W <= limit*W
type weighted struct {
	limit, window int64
	tick          time.Duration
	horizon       int64

	bits  uint  // of each count in a word
	reach int64 // of a word's times; 0 where there is none
}

// Words of a state of weighted.
const (
	wordBegins   = iota // when the current window begins
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
	return len(s) == 0 || len(s) == weightedWords && s[wordCurrent] >= 0 && s[wordPrevious] >= 0
}

func (w *weighted) contact(s []int64, _ int64) []int64 { return s }

// counts is a state as of a time.
type counts struct{ begins, current, previous, into int64 }

// at brings a state to now. An earlier reading than the current window is its beginning.
func (w *weighted) at(s []int64, now int64) counts {
	c := counts{begins: floorTo(now, w.window)}
	if len(s) > 0 {
		switch since := until(c.begins, s[wordBegins]); {
		case since == 0:
			c.begins, c.current, c.previous = s[wordBegins], s[wordCurrent], s[wordPrevious]
		case since == w.window:
			c.previous = s[wordCurrent]
		}
	}
	c.into = min(until(now, c.begins), w.window)
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

// plan names the exact time for the first in line. Behind others it goes by volume, as if their costs were all one: it may then name too
// early a time, but never too late a one.
func (w *weighted) plan(s []int64, now int64, ahead uint64, cost int64) plan {
	c := w.at(s, now)
	at := w.when(c, now, cost)
	if ahead > 0 {
		if ahead > math.MaxUint64-uint64(cost) {
			return plan{never, never}
		}
		// What comes after the first part of it is a multiple of the limit, of which 1 + D/Window times may come in any D.
		last := ahead + uint64(cost) - 1
		part := w.when(c, now, int64(last%uint64(w.limit))+1)
		at = max(at, plusTimes(part, max(last/uint64(w.limit), 1)-1, w.window))
	}
	wait := until(at, now)
	if at == math.MaxInt64 || wait > w.horizon {
		return plan{never, never}
	}
	return plan{wait: wait}
}

// when is the time at which a cost is admitted.
func (w *weighted) when(c counts, now, cost int64) int64 {
	switch {
	case w.fits(c, cost):
		return now
	case c.current <= w.limit-cost:
		return plusTimes(c.begins, 1, w.enough(c.previous, w.limit-cost-c.current))
	}
	next := plusTimes(c.begins, 1, w.window)
	return plusTimes(next, 1, w.enough(c.current, w.limit-cost))
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
	return append(s[:0], c.begins, plus(c.current, cost), c.previous)
}

func (w *weighted) book(s []int64, now, _, cost int64) ([]int64, ticket) {
	s = w.charge(s, now, cost)
	return s, ticket{wordBegins: s[wordBegins]}
}

func (w *weighted) serve(s []int64, _, now, cost int64) []int64 { return w.charge(s, now, cost) }
func (w *weighted) asOf(_, now int64) int64                     { return now }

// refund takes back from the window that was counted in, while it is the current one or the one before.
func (w *weighted) refund(s []int64, now int64, t ticket, amount int64) []int64 {
	if len(s) == 0 {
		return s
	}
	c := w.at(s, now)
	switch until(c.begins, t[wordBegins]) {
	case 0:
		c.current = max(0, c.current-amount)
	case w.window:
		c.previous = max(0, c.previous-amount)
	default:
		return s
	}
	return append(s[:0], c.begins, c.current, c.previous)
}

func (w *weighted) look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	c := w.at(s, now)
	switch {
	case c.current > 0 || ahead > 0:
		reset = until(plusTimes(c.begins, 2, w.window), now)
	case c.previous > 0:
		reset = until(plusTimes(c.begins, 1, w.window), now)
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
	return append(s[:0], floorTo(now, next.window), c.current, c.previous)
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
