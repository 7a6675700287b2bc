package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir"
)

// fixedWindow is the model of FixedWindow. A reservation for a later window is
// counted there at once, and nothing goes on before its promised time.
type fixedWindow struct {
	tick       time.Duration
	limit      int64
	boundaries boundaries

	now *fixedState // nil while untouched

	blind   bool
	ids     int
	charges []fixedCharge // of the latest window, if it began with one of them
	// forgotten: charges lacks some of the latest window, so that it does not move. Either a later
	// window had begun, and its only charge was given back, or the limit was changed.
	forgotten bool
}

// fixedCharge is a charge of a window, with the time as of which it was made.
type fixedCharge struct {
	id       int
	at, cost int64
}

// fixedState has the start of the latest window, its count, and the latest promised time. It is
// immutable.
type fixedState struct {
	window, count int64
	promised      *int64 // nil if no promised time is ahead
}

// fixedMark has the state before a charge and just after it.
type fixedMark struct {
	id            int
	cost          int64
	before, after fixedState
}

// boundaries say when windows begin and end.
type boundaries interface {
	// begins returns the start of the window that contains a time.
	begins(t int64) int64
	// ends returns the end of the n-th window, counted from a given one; at most the end of the
	// clock.
	ends(begins int64, n *big.Int) int64
	wall() bool
	String() string // differs if the boundaries differ
}

func newFixed(l weir.FixedWindow, tick time.Duration, blind bool) *fixedWindow {
	f := &fixedWindow{tick: tick, limit: l.Limit, blind: blind}
	switch l.Align {
	case "", weir.AlignEpoch:
		f.boundaries = evenWindows{int64(l.Window / tick), true}
	case weir.AlignFirst:
		f.boundaries = evenWindows{int64(l.Window / tick), false}
	default:
		name, zone, _ := strings.Cut(string(l.Align), ":")
		loc, err := time.LoadLocation(zone)
		if err != nil {
			panic(err)
		}
		f.boundaries = calendarWindows{name, loc, tick}
	}
	return f
}

// evenWindows have one length. They begin at its multiples or, if they are not aligned, at the
// first charge without an open window.
type evenWindows struct {
	length  int64
	aligned bool
}

func (e evenWindows) wall() bool     { return e.aligned }
func (e evenWindows) String() string { return fmt.Sprint(e.length, e.aligned) }
func (e evenWindows) begins(t int64) int64 {
	if !e.aligned {
		return t
	}
	return clamp(floored(t, e.length)) // the first window of all begins with the clock
}

func (e evenWindows) ends(begins int64, n *big.Int) int64 {
	from := big.NewInt(begins)
	if e.aligned {
		from = floored(begins, e.length)
	}
	return clamp(from.Add(from, new(big.Int).Mul(n, big.NewInt(e.length))))
}

// floored returns the largest multiple of a length that is not above t.
func floored(t, length int64) *big.Int {
	n := new(big.Int).Div(big.NewInt(t), big.NewInt(length))
	return n.Mul(n, big.NewInt(length))
}

func (f *fixedWindow) size() int64        { return f.limit }
func (f *fixedWindow) largest() int64     { return f.limit }
func (f *fixedWindow) chargesAhead() bool { return true }
func (f *fixedWindow) turnsMove() bool    { return false }
func (f *fixedWindow) contact(int64)      {}
func (f *fixedWindow) touched() bool      { return f.now != nil }
func (f *fixedWindow) clone() algorithm   { c := *f; return &c }
func (f *fixedWindow) String() string {
	if f.now == nil {
		return "untouched"
	}
	return fmt.Sprint(f.now.window, f.now.count, promised(f.now.promised, math.MinInt64))
}

// reached: the latest window has begun, unless it was promised. With a calendar, the state does not
// show it: a window may begin later by other time zone data.
func (f *fixedWindow) reached() *big.Int {
	if f.now == nil {
		return nil
	}
	if _, ok := f.boundaries.(calendarWindows); ok {
		return big.NewInt(math.MaxInt64)
	}
	return big.NewInt(promised(f.now.promised, f.now.window))
}

// promised returns the later one of t and the promised time p.
func promised(p *int64, t int64) int64 {
	if p != nil {
		return max(*p, t)
	}
	return t
}

// ahead returns t if it is after now, otherwise nil.
func ahead(t, now int64) *int64 {
	if t <= now {
		return nil
	}
	return &t
}

// at returns the window of t, or of the latest promised time if that is later, with its count. A
// clock reading before the window counts in it, too.
func (f *fixedWindow) at(t int64) (window, count, when int64) {
	if f.now == nil {
		return f.boundaries.begins(t), 0, t
	}
	t = promised(f.now.promised, t)
	if end := f.boundaries.ends(f.now.window, big.NewInt(1)); f.now.count > 0 && (t < end || end == math.MaxInt64) {
		return f.now.window, f.now.count, t
	}
	return max(f.boundaries.begins(t), f.now.window), 0, t
}

// plan behind others adds up the costs, as if they filled each window completely.
func (f *fixedWindow) plan(now int64, before *big.Int, cost int64) (wait, room *big.Rat) {
	window, count, when := f.at(now)
	limit, free := big.NewInt(f.limit), big.NewInt(max(0, f.limit-count))
	if sum := new(big.Int).Add(before, big.NewInt(cost)); sum.Add(sum, big.NewInt(count)).Cmp(limit) > 0 {
		n := big.NewInt(1) // how many windows end before it goes
		if rest := new(big.Int).Sub(before, free); rest.Sign() > 0 {
			full, in := new(big.Int).DivMod(rest, limit, new(big.Int))
			n.Add(n, full)
			if in.Add(in, big.NewInt(cost)).Cmp(limit) > 0 {
				n.Add(n, big.NewInt(1))
			}
		}
		if when = f.boundaries.ends(window, n); when == math.MaxInt64 {
			return nil, nil
		}
	}
	w := named(sub(whole(when), whole(now)), f.tick)
	if w == nil {
		return nil, nil
	}
	return w, new(big.Rat)
}

func (f *fixedWindow) peek(now int64, before *big.Int) (remaining int64, reset *big.Int) {
	window, count, when := f.at(now)
	reset = new(big.Int).Sub(big.NewInt(when), big.NewInt(now))
	if count > 0 || before.Sign() > 0 {
		n := new(big.Int).Div(before, big.NewInt(f.limit))
		end := f.boundaries.ends(window, n.Add(n, big.NewInt(1)))
		reset = latest(reset, new(big.Int).Sub(big.NewInt(end), big.NewInt(now)))
	}
	if when > now {
		return 0, reset
	}
	left := new(big.Int).Sub(big.NewInt(max(0, f.limit-count)), before)
	return max(0, clamp(left)), reset
}

func (f *fixedWindow) charge(at *big.Rat, cost int64) { f.reserve(down(at), at, cost) }

func (f *fixedWindow) reserve(now int64, due *big.Rat, cost int64) mark {
	window, count, when := f.at(max(now, down(due)))
	before := f.now
	if before == nil {
		before = &fixedState{window: f.boundaries.begins(now)}
	}
	f.now = &fixedState{window, clamp(new(big.Int).Add(big.NewInt(count), big.NewInt(cost))), ahead(when, now)}
	at := max(when, window)
	if count == 0 {
		f.charges, f.forgotten, at = nil, false, window
	}
	if f.ids++; !f.forgotten {
		f.charges = append(slices.Clone(f.charges), fixedCharge{f.ids, at, cost})
	}
	return fixedMark{f.ids, cost, *before, *f.now}
}

func (f *fixedWindow) turn(seen *big.Rat, cost int64) *big.Rat { return turnOf(f, seen, cost) }
func (f *fixedWindow) asOf(_ *big.Rat, now int64) *big.Rat     { return whole(now) }

// giveBack lowers the count of the window while it is the current one. If nothing was charged
// since, it restores the state before the charge. A window that began with what is given back begins
// with the next charge.
func (f *fixedWindow) giveBack(now int64, m mark, amount int64) {
	c, next := m.(fixedMark), *f.now
	i := slices.IndexFunc(f.charges, func(o fixedCharge) bool { return o.id == c.id })
	even, ok := f.boundaries.(evenWindows)
	moves := i >= 0 && !f.blind && ok && !even.aligned
	switch {
	case amount == c.cost && next.equals(c.after):
		next = c.before
		f.forgotten = f.forgotten || next.window != c.after.window
	case next.window == c.after.window || moves:
		next.count = max(0, next.count-amount)
	}
	if moves {
		f.charges = slices.Clone(f.charges)
		if f.charges[i].cost -= amount; f.charges[i].cost <= 0 {
			f.charges = slices.Delete(f.charges, i, i+1)
		}
		end := f.boundaries.ends(next.window, big.NewInt(1))
		if open := promised(next.promised, now) < end || end == math.MaxInt64; open && len(f.charges) > 0 && next.count > 0 {
			next.window = max(next.window, f.charges[0].at)
		}
	}
	f.now = &next
}

func (s fixedState) equals(o fixedState) bool {
	const none = math.MinInt64
	return s.window == o.window && s.count == o.count && promised(s.promised, none) == promised(o.promised, none)
}

func (f *fixedWindow) same(o algorithm) bool {
	c, ok := o.(*fixedWindow)
	return ok && f.limit == c.limit && f.boundaries.String() == c.boundaries.String()
}

// lower lowers the count of the current window, or of the one of promised work.
func (f *fixedWindow) lower(now, amount int64) {
	if f.now == nil {
		return
	}
	if window, count, _ := f.at(now); window == f.now.window {
		f.now.count = max(0, count-amount)
	}
}

// changedTo keeps the count. If the windows change, it counts in the window of now, or of the
// latest promised time.
func (f *fixedWindow) changedTo(now int64, o algorithm) algorithm {
	next, ok := o.(*fixedWindow)
	if !ok || next.boundaries.wall() != f.boundaries.wall() {
		return transfer(now, f, o)
	}
	if next.now = f.now; f.now != nil && f.boundaries.String() != next.boundaries.String() {
		_, count, when := f.at(now)
		next.now, next.forgotten = &fixedState{next.boundaries.begins(when), count, f.now.promised}, true
	} else {
		next.charges, next.forgotten, next.ids = f.charges, f.forgotten, f.ids
	}
	return next
}

func (f *fixedWindow) drop(mark) {}

func (f *fixedWindow) convertMark(_ int64, m mark, o algorithm) mark {
	if next, ok := o.(*fixedWindow); ok && f.boundaries.String() == next.boundaries.String() {
		return m
	}
	return nil
}

func (f *fixedWindow) spent(now int64) *big.Int {
	_, count, _ := f.at(now)
	return big.NewInt(count)
}

func (f *fixedWindow) counted() *big.Int {
	if f.now == nil {
		return new(big.Int)
	}
	return big.NewInt(f.now.count)
}

// load fills at most one window, because a window has no debt.
func (f *fixedWindow) load(now int64, spent *big.Int) {
	f.charge(whole(now), clamp(earliest(spent, big.NewInt(f.limit))))
}
