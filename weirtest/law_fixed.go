package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"

	"github.com/weirflow/weir"
)

// fixed is the law of FixedWindow (SEMANTICS 3). What was promised a later window is counted there at once, and while that lies ahead
// nothing goes before it.
type fixed struct {
	tick   time.Duration
	limit  int64
	frames frames

	now *fixedState // nil while untouched
}

// fixedState is the latest window counted in, by when it begins, and the latest time promised. It is never changed.
type fixedState struct {
	window, count int64
	promised      *int64 // nil for none that lies ahead
}

// fixedMark is the state before a charge and just after it.
type fixedMark struct {
	cost          int64
	before, after fixedState
}

// frames is how windows lie in time.
type frames interface {
	// begins is when the window begins that a time is in.
	begins(t int64) int64
	// ends is when the n-th window from one on ends; the end of the clock where that is beyond it.
	ends(begins int64, n *big.Int) int64
	wall() bool
	String() string // tells frames that lie differently apart
}

func newFixed(l weir.FixedWindow, tick time.Duration) *fixed {
	f := &fixed{tick: tick, limit: l.Limit}
	switch l.Align {
	case "", weir.AlignEpoch:
		f.frames = even{int64(l.Window / tick), true}
	case weir.AlignFirst:
		f.frames = even{int64(l.Window / tick), false}
	default:
		name, zone, _ := strings.Cut(string(l.Align), ":")
		loc, err := time.LoadLocation(zone)
		if err != nil {
			panic(err)
		}
		f.frames = dated{name, loc, tick}
	}
	return f
}

// even is windows of one length: at its multiples, or, where they are not aligned, from the charge on that found none open.
type even struct {
	length  int64
	aligned bool
}

func (e even) wall() bool     { return e.aligned }
func (e even) String() string { return fmt.Sprint(e.length, e.aligned) }
func (e even) begins(t int64) int64 {
	if !e.aligned {
		return t
	}
	return clamp(floored(t, e.length)) // the window that the clock begins in is named by that
}

func (e even) ends(begins int64, n *big.Int) int64 {
	from := big.NewInt(begins)
	if e.aligned {
		from = floored(begins, e.length)
	}
	return clamp(from.Add(from, new(big.Int).Mul(n, big.NewInt(e.length))))
}

// floored is the largest multiple of a length that is not above t.
func floored(t, length int64) *big.Int {
	n := new(big.Int).Div(big.NewInt(t), big.NewInt(length))
	return n.Mul(n, big.NewInt(length))
}

func (f *fixed) size() int64    { return f.limit }
func (f *fixed) largest() int64 { return f.limit }
func (f *fixed) books() bool    { return true }
func (f *fixed) moves() bool    { return false }
func (f *fixed) contact(int64)  {}
func (f *fixed) touched() bool  { return f.now != nil }
func (f *fixed) clone() law     { c := *f; return &c }
func (f *fixed) String() string {
	if f.now == nil {
		return "untouched"
	}
	return fmt.Sprint(f.now.window, f.now.count, promised(f.now.promised, math.MinInt64))
}

// promised is a time, or the latest promised one where that is later.
func promised(p *int64, t int64) int64 {
	if p != nil {
		return max(*p, t)
	}
	return t
}

// ahead is a time to promise, where it lies ahead.
func ahead(t, now int64) *int64 {
	if t <= now {
		return nil
	}
	return &t
}

// at is the window that counts at t, or at the latest time promised, and what is counted in it. An earlier reading than the window counts
// in it too.
func (f *fixed) at(t int64) (window, count, when int64) {
	if f.now == nil {
		return f.frames.begins(t), 0, t
	}
	t = promised(f.now.promised, t)
	if end := f.frames.ends(f.now.window, big.NewInt(1)); f.now.count > 0 && (t < end || end == math.MaxInt64) {
		return f.now.window, f.now.count, t
	}
	return max(f.frames.begins(t), f.now.window), 0, t
}

// plan behind others goes by the sum of the costs, as if they filled every window.
func (f *fixed) plan(now int64, before *big.Int, cost int64) (wait, room *big.Rat) {
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
		if when = f.frames.ends(window, n); when == math.MaxInt64 {
			return nil, nil
		}
	}
	w := named(sub(whole(when), whole(now)), f.tick)
	if w == nil {
		return nil, nil
	}
	return w, new(big.Rat)
}

func (f *fixed) look(now int64, before *big.Int) (remaining int64, reset *big.Int) {
	window, count, when := f.at(now)
	reset = new(big.Int).Sub(big.NewInt(when), big.NewInt(now))
	if count > 0 || before.Sign() > 0 {
		n := new(big.Int).Div(before, big.NewInt(f.limit))
		end := f.frames.ends(window, n.Add(n, big.NewInt(1)))
		reset = latest(reset, new(big.Int).Sub(big.NewInt(end), big.NewInt(now)))
	}
	if when > now {
		return 0, reset
	}
	left := new(big.Int).Sub(big.NewInt(max(0, f.limit-count)), before)
	return max(0, clamp(left)), reset
}

func (f *fixed) charge(at *big.Rat, cost int64) { f.book(down(at), at, cost) }

func (f *fixed) book(now int64, due *big.Rat, cost int64) mark {
	window, count, when := f.at(max(now, down(due)))
	before := f.now
	if before == nil {
		before = &fixedState{window: f.frames.begins(now)}
	}
	f.now = &fixedState{window, clamp(new(big.Int).Add(big.NewInt(count), big.NewInt(cost))), ahead(when, now)}
	return fixedMark{cost, *before, *f.now}
}

func (f *fixed) turn(seen *big.Rat, cost int64) *big.Rat { return turnOf(f, seen, cost) }
func (f *fixed) asOf(_ *big.Rat, now int64) *big.Rat     { return whole(now) }

// giveBack takes back from the window, while it is the one that counts. Where nothing came after the charge, all is as before.
func (f *fixed) giveBack(_ int64, m mark, amount int64) {
	c, next := m.(fixedMark), *f.now
	switch {
	case amount == c.cost && next.equals(c.after):
		next = c.before
	case next.window == c.after.window:
		next.count = max(0, next.count-amount)
	}
	f.now = &next
}

func (s fixedState) equals(o fixedState) bool {
	const none = math.MinInt64
	return s.window == o.window && s.count == o.count && promised(s.promised, none) == promised(o.promised, none)
}

func (f *fixed) same(o law) bool {
	c, ok := o.(*fixed)
	return ok && f.limit == c.limit && f.frames.String() == c.frames.String()
}

// become keeps the count; with other windows, it counts in the one that holds now, or the latest time promised.
func (f *fixed) become(now int64, o law) law {
	next, ok := o.(*fixed)
	if !ok || next.frames.wall() != f.frames.wall() {
		return transfer(now, f, o)
	}
	if next.now = f.now; f.now != nil && f.frames.String() != next.frames.String() {
		_, count, when := f.at(now)
		next.now = &fixedState{next.frames.begins(when), count, f.now.promised}
	}
	return next
}

func (f *fixed) drop(mark) {}

func (f *fixed) remark(_ int64, m mark, o law) mark {
	if next, ok := o.(*fixed); ok && f.frames.String() == next.frames.String() {
		return m
	}
	return nil
}

func (f *fixed) spent(now int64) *big.Int {
	_, count, _ := f.at(now)
	return big.NewInt(count)
}

func (f *fixed) counted() *big.Int {
	if f.now == nil {
		return new(big.Int)
	}
	return big.NewInt(f.now.count)
}

// load fills one window and no more: a window knows no debt.
func (f *fixed) load(now int64, spent *big.Int) {
	f.charge(whole(now), clamp(earliest(spent, big.NewInt(f.limit))))
}
