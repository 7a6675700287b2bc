package weir

import (
	"fmt"
	"math"
	"time"
)

// FixedWindow counts in windows that follow one another: at most Limit in each. It is the limit of contracts and quotas ("10,000 a
// month"), and the loosest one: around the boundary of two windows, twice Limit may come at once.
//
// In any interval of length D it admits at most Limit for each window that it touches: Limit*(ceil(D/Window)+1) for D > 0. A cost never
// straddles two windows. State: three words.
type FixedWindow struct {
	Limit  int64         // how many in each window; at least 1
	Window time.Duration // how long a window is; 0 with a calendar
	Align  Align         // where windows begin; empty is AlignEpoch
}

// Align says where the windows of a FixedWindow begin: AlignEpoch, AlignFirst, or a period of the calendar, "day", "week", "month" or
// "year", with the name of a time zone after a colon, as in "month:Europe/Berlin"; without one it is UTC. Weeks begin on Monday; with
// another day it is "week-sunday" or the like.
//
// A calendar's window begins at the earliest moment at which clocks in the zone show midnight of its first day, or anything later, so
// that midnights that are skipped, or come twice, make no difference. Zones are those of the time package; a program that may run where
// there are none imports time/tzdata.
type Align string

// The alignments that are not of a calendar.
const (
	AlignEpoch Align = "epoch" // windows begin at multiples of their length since 1970-01-01 00:00 UTC
	AlignFirst Align = "first" // a window begins with the first charge for which none is open
)

// Validate reports what is wrong with the numbers.
func (l FixedWindow) Validate() error {
	const name = "FixedWindow"
	if l.Limit < 1 {
		return field(name, "Limit", fmt.Errorf("%d lets nothing pass: it must be at least 1", l.Limit))
	}
	if l.Align == "" || l.Align == AlignEpoch || l.Align == AlignFirst {
		if l.Window < 1 || l.Window > maxSpan {
			return field(name, "Window", fmt.Errorf("%v is not within 1ns and 100 years", l.Window))
		}
		return nil
	}
	if _, err := newCalendar(l.Align, time.Nanosecond); err != nil {
		return field(name, "Align", err)
	}
	if l.Window != 0 {
		return field(name, "Window", fmt.Errorf("%v with Align %q: the calendar says how long windows are: leave it out", l.Window, l.Align))
	}
	return nil
}

func (l FixedWindow) compile(unit time.Duration) (rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	w := &fixed{limit: l.Limit, tick: unit, horizon: int64(maxSpan / unit)}
	w.bits, w.latest = layout(w.limit, 1, 1, w.horizon)
	switch l.Align {
	case "", AlignEpoch, AlignFirst:
		length, err := wholeUnits(l.Window, unit)
		if err != nil {
			return nil, field("FixedWindow", "Window", err)
		}
		w.frames, w.length, w.hits = grid(length), length, l.Align == AlignFirst
		if w.hits {
			w.frames = hits(length)
		}
	default:
		c, err := newCalendar(l.Align, unit)
		if err != nil {
			return nil, field("FixedWindow", "Align", err)
		}
		w.frames = c
	}
	return w, nil
}

func (l FixedWindow) normal() Limit {
	if l.Align == "" {
		l.Align = AlignEpoch
	}
	return l
}

// frames is how windows lie in time. A window is known by an id, which is larger for a later one.
type frames interface {
	// window is the one that t is in.
	window(t int64) (id int64)
	// ends is when the n-th window after one begins, and so, for 1, when that one ends; the end of the clock where that is beyond it.
	ends(id int64, n uint64) int64
	// begins is when a window begins.
	begins(id int64) int64
	// wall reports whether t is wall time.
	wall() bool
	// same reports whether others lie alike.
	same(others frames) bool
}

// grid is windows at multiples of their length. The id is the time at which one begins.
type grid int64

func (g grid) wall() bool            { return true }
func (g grid) begins(id int64) int64 { return id }
func (g grid) window(t int64) int64  { return floorTo(t, int64(g)) }

// ends knows that the window in which the clock begins began before it.
func (g grid) ends(id int64, n uint64) int64 {
	return plusTimes(plusTimes(id, 1, int64(g)-modulo(id, int64(g))), n-1, int64(g))
}

func (g grid) same(o frames) bool { return o == frames(g) }

// hits is windows that begin with a charge. The id is the time at which one begins.
type hits int64

func (h hits) wall() bool                    { return false }
func (h hits) begins(id int64) int64         { return id }
func (h hits) window(t int64) int64          { return t }
func (h hits) ends(id int64, n uint64) int64 { return plusTimes(id, n, int64(h)) }

func (h hits) same(o frames) bool { return o == frames(h) }

// floorTo is the largest multiple of length that is not above t, or the least number.
func floorTo(t, length int64) int64 {
	over := t % length
	if over < 0 {
		over += length
	}
	return minus(t, over)
}

// plusTimes is t + n*d, or the end of the clock.
func plusTimes(t int64, n uint64, d int64) int64 {
	if d == 0 {
		return t
	}
	if left := clockLeft(t); n > left/uint64(d) {
		return math.MaxInt64
	}
	return t + int64(n*uint64(d))
}

// fixed is the rule of FixedWindow. Work that is promised a later window is counted there at once, and that window is then the one that
// the state is about: nothing goes before what was promised.
type fixed struct {
	limit   int64
	frames  frames
	tick    time.Duration
	horizon int64

	length int64 // of a window; 0 in a calendar
	hits   bool  // windows begin with a charge
	bits   uint  // of the count in a word
	latest int64 // time in a word; 0 where there is none
}

// Words of a state of fixed, and of a ticket: those of the state just after the charge, the cost, and those of the state before.
const (
	wordWindow  = iota // the id of the latest window that was counted in
	wordCount          // what was counted there
	wordPromise        // the latest time promised that lies ahead; none
	fixedWords

	ticketCharge        = 3
	ticketWindowBefore  = 4 // with a count of 0 where there was no state
	ticketCountBefore   = 5
	ticketPromiseBefore = 6
)

func (w *fixed) capacity() int64     { return w.limit }
func (w *fixed) largest() int64      { return w.limit }
func (w *fixed) books() bool         { return true }
func (w *fixed) wall() bool          { return w.frames.wall() }
func (w *fixed) unit() time.Duration { return w.tick }

func (w *fixed) valid(s []int64) bool {
	return len(s) == 0 || len(s) == fixedWords && s[wordCount] >= 0
}

func (w *fixed) contact(s []int64, _ int64) []int64 { return s }

// at is the window that counts at now, or at the latest time that was promised, and what is counted in it. An earlier reading than the
// window counts in it too.
func (w *fixed) at(s []int64, now int64) (id, count, wait int64) {
	if len(s) == 0 {
		return w.frames.window(now), 0, 0
	}
	wait = pending(s[wordPromise], now)
	if t := max(now, s[wordPromise]); s[wordCount] == 0 || ended(w.frames.ends(s[wordWindow], 1), t) {
		return max(w.frames.window(t), s[wordWindow]), 0, wait
	}
	return s[wordWindow], s[wordCount], wait
}

// ended reports whether a time is past an end. What ends with the clock does not end before it.
func ended(end, t int64) bool { return t >= end && end != math.MaxInt64 }

// plan counts windows by volume: behind others whose costs do not fill theirs, it may name too early a time, but never too late a one.
func (w *fixed) plan(s []int64, now int64, ahead uint64, cost int64) plan {
	id, count, wait := w.at(s, now)
	if taken := uint64(count) + ahead; taken < ahead || taken > uint64(w.limit-cost) || count > w.limit-cost {
		end := w.frames.ends(id, windowsFor(uint64(count), ahead, uint64(cost), uint64(w.limit)))
		if end == math.MaxInt64 {
			return plan{never, never}
		}
		wait = until(end, now)
	}
	if wait > w.horizon {
		return plan{never, never}
	}
	return plan{wait: wait}
}

// windowsFor says in which window after one with count a cost goes that does not go in that one, where ahead goes before it, and fills
// what it goes in.
func windowsFor(count, ahead, cost, limit uint64) uint64 {
	free := limit - min(count, limit)
	if ahead <= free {
		return 1
	}
	n := (ahead-free)/limit + 1
	if (ahead-free)%limit > limit-cost {
		n++
	}
	return n
}

func (w *fixed) charge(s []int64, now, cost int64) []int64 {
	s, _ = w.book(s, now, now, cost)
	return s
}

func (w *fixed) book(s []int64, now, due, cost int64) ([]int64, ticket) {
	t := ticket{ticketCharge: cost, ticketPromiseBefore: none}
	if len(s) == 0 {
		s = append(s, w.frames.window(now), 0, none)
	}
	t[ticketWindowBefore], t[ticketCountBefore], t[ticketPromiseBefore] = s[wordWindow], s[wordCount], s[wordPromise]
	due = max(due, s[wordPromise])
	id, count, _ := w.at(s, due)
	s[wordWindow], s[wordCount] = id, plus(count, cost)
	if s[wordPromise] = none; due > now {
		s[wordPromise] = due
	}
	copy(t[:], s)
	return s, t
}

func (w *fixed) serve(s []int64, _, now, cost int64) []int64 { return w.charge(s, now, cost) }
func (w *fixed) asOf(_, now int64) int64                     { return now }

// refund takes back from the window that was counted in, while it is open. Where nothing was charged since, the state is as it was before.
func (w *fixed) refund(s []int64, now int64, t ticket, amount int64) []int64 {
	switch {
	case len(s) == 0:
	case amount == t[ticketCharge] && [fixedWords]int64(s) == [fixedWords]int64(t[:]):
		s[wordWindow], s[wordCount], s[wordPromise] = t[ticketWindowBefore], t[ticketCountBefore], t[ticketPromiseBefore]
	case s[wordWindow] == t[wordWindow]:
		s[wordCount] = max(0, s[wordCount]-amount)
	}
	return s
}

func (w *fixed) look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	id, count, wait := w.at(s, now)
	if count > 0 || ahead > 0 {
		reset = until(w.frames.ends(id, 1+ahead/uint64(w.limit)), now)
	}
	reset = max(reset, wait)
	left := w.limit - min(count, w.limit)
	if wait > 0 || uint64(left) <= ahead {
		return 0, reset
	}
	return left - int64(ahead), reset
}

// convert keeps the count; with other windows, it counts in the one that holds now, or the latest time that was promised.
func (w *fixed) convert(s []int64, now int64, to rule, then int64) []int64 {
	next, ok := to.(*fixed)
	switch {
	case !ok || next.wall() != w.wall():
		return transfer(w, s, now, to, then)
	case len(s) == 0 || next.frames.same(w.frames):
		return s
	}
	_, count, wait := w.at(s, now)
	s[wordWindow], s[wordCount] = next.frames.window(then+wait), count
	return s
}

func (w *fixed) reticket(t ticket, _ int64, to rule) (ticket, bool) {
	next, ok := to.(*fixed)
	return t, ok && next.frames.same(w.frames)
}

func (w *fixed) spent(s []int64, now int64) int64 {
	_, count, _ := w.at(s, now)
	return count
}

func (w *fixed) load(now, spent int64) []int64 { return w.charge(nil, now, min(spent, w.limit)) }

// plus is a+b, or the end of the numbers that it would pass; b is not below 0.
func plus(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxInt64
}
