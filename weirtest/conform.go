package weirtest

import (
	"embed"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir"
)

// A Subject is an implementation of limits that Conform compares with the reference model: an
// in-process limiter, or a store.
type Subject struct {
	// Tick is its clock unit; default: a nanosecond.
	Tick time.Duration
	// Latest is the latest reading of its clock, in clock units; default: the end of a 64-bit
	// nanosecond clock. A Subject with a Latest, such as a store, is tested less at the extremes:
	// no reading is negative, no cost exceeds what a double can count exactly, and states with a
	// wait or a debt of more than a century are not compared further.
	Latest int64
	// Open returns a new Taker of a limit. Its clock reads nanoseconds and stands still until it is
	// set. Conform also tests those of Peeker, Reserver, Joiner and Setter that the Taker
	// implements. It closes a Taker that implements io.Closer. The scripts need a Holder; there, By
	// of decisions is the name of the algorithm, such as token_bucket.
	Open func(l weir.Limit, c *Clock) (Taker, error)
	// Blind means that the Subject has only the states and does not know which reservations are
	// outstanding. It may then give back less.
	Blind bool
	// Limits draw the limits for the random walks, with random parameters; default: one for each
	// algorithm.
	Limits []func(random *rand.Rand) weir.Limit

	Seed  uint64 // of the random walks; the same seed always gives the same walks
	Walks int    // per algorithm; default: 200
	Steps int    // calls in each walk; default: 60
}

// A Taker decides about keys.
type Taker interface {
	Take(key string, cost int64) weir.Decision
}

// A Peeker decides like Take, but charges nothing.
type Peeker interface {
	Peek(key string, cost int64) weir.Decision
}

// A Reserver charges ahead of time.
type Reserver interface {
	Reserve(key string, cost int64, maxDelay time.Duration) (Reservation, bool)
}

// A Joiner has queues to wait in.
type Joiner interface {
	Join(key string, cost int64, maxDelay time.Duration) (*weir.Place, weir.Decision)
}

// A Setter changes its limit.
type Setter interface {
	SetLimit(weir.Limit) error
}

// TB is the part of *testing.T that Conform needs.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
}

//go:embed testdata
var testdata embed.FS

// Testdata returns the scripts of each limit (*.weir), and the test vectors of other
// implementations.
func Testdata() fs.FS {
	sub, err := fs.Sub(testdata, "testdata")
	if err != nil {
		panic(err) // the name is a constant
	}
	return sub
}

// Conform compares a subject with the reference model, the scripts of this package (if it is a
// Holder) and the test vectors of other implementations.
//
// The comparison with the model uses random walks, with any cost and a clock that steps back and
// jumps. If the subject supports them, the walks include reservations, queues and changes of the
// limit. All fields of a decision must be equal, except Source. By is compared only for an All:
// after a slash, it names the limit that decided. Conform shortens a failing walk as far as
// possible, and reports it call by call.
func Conform(t TB, s Subject) {
	t.Helper()
	if s.Tick == 0 {
		s.Tick = 1
	}
	if s.Walks == 0 {
		s.Walks = 200
	}
	if s.Steps == 0 {
		s.Steps = 60
	}
	limits := s.Limits
	if limits == nil {
		limits = Limits()
	}
	for i, draw := range limits {
		for walk := range s.Walks {
			random := rand.New(rand.NewPCG(s.Seed, uint64(i)<<32|uint64(walk)))
			w := s.walk(random, draw, limits)
			found, err := s.try(w)
			if err != nil {
				t.Errorf("%v: %v", w.limit, err)
				return
			}
			if found != nil {
				w, found = s.shorten(w, found)
				t.Errorf("seed %d: %T does not do as the model:\n%s%s", s.Seed, w.limit, w.script(s.Tick), found)
				break
			}
		}
	}
	if s.Limits == nil {
		Vectors(t, s)
	}
	s.scripts(t)
}

func (s Subject) scripts(t TB) {
	t.Helper()
	probe, err := s.Open(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, new(Clock))
	if err != nil {
		t.Errorf("a token bucket cannot be opened: %v", err)
		return
	}
	shut(probe)
	if _, ok := probe.(Holder); !ok || s.Tick != 1 || s.Limits != nil {
		t.Logf("the scripts are left out: they ask for all verbs, for each limit, and for a clock of nanoseconds")
		return
	}
	r := Runner{Open: func(l weir.Limit, c *Clock) (Holder, error) {
		opened, err := s.Open(l, c)
		if err != nil {
			return nil, err
		}
		return opened.(Holder), nil
	}}
	names, err := fs.Glob(Testdata(), "*.weir")
	if err != nil {
		t.Errorf("%v", err)
	}
	for _, name := range names {
		f, err := Testdata().Open(name)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		mismatches, err := r.Run(name, f)
		if err != nil {
			t.Errorf("%v", err)
		}
		for _, m := range mismatches {
			t.Errorf("%s", m)
		}
		shut(f)
	}
}

// shut closes v if it is an io.Closer.
func shut(v any) {
	if c, ok := v.(interface{ Close() error }); ok {
		_ = c.Close() // a test's own
	}
}

// walk is a limit with a sequence of calls.
type walk struct {
	limit weir.Limit
	calls []call
}

// call is one call of a walk.
type call struct {
	at     int64 // the reading, in clock units
	verb   verb
	key    string
	cost   int64 // for settle: the actual cost
	within int64 // for reserve: the longest delay, in clock units
	of     int   // for settle and leave: the index of the reserve or join in the walk
	limit  weir.Limit
}

type verb uint8

const (
	doTake verb = iota
	doPeek
	doReserve
	doSettle
	doJoin
	doLeave
	doSet
)

// difference is the first result in which the subject differs from the model.
type difference struct {
	call      int
	got, want string
}

func (d *difference) String() string { return fmt.Sprintf("\twant %s\n\tgot  %s\n", d.want, d.got) }

// try makes the calls on a subject and on a model, until the results differ.
func (s Subject) try(w walk) (*difference, error) {
	clock := new(Clock)
	clock.Set(w.calls[0].at * int64(s.Tick))
	subject, err := s.Open(w.limit, clock)
	if err != nil {
		return nil, err
	}
	defer shut(subject)
	p := &pair{blind: s.Blind, tick: s.Tick, doubles: s.Latest > 0, clock: clock, limit: w.limit, subject: subject, models: map[string]*Model{}, made: map[int]made{}, lines: map[int]inLine{}}
	for i, c := range w.calls {
		if got, want := p.do(i, c); got != want {
			return &difference{i, got, want}, nil
		}
		if s.Latest > 0 && p.endless() {
			break
		}
	}
	return nil, nil
}

// endless reports whether a state is so far in debt that stores cap it, at the end of their clocks
// or their numbers.
func (p *pair) endless() bool {
	for _, m := range p.models {
		if m.algorithm.counted().BitLen() > 53 {
			return true
		}
		if m.Clone().Peek(p.now, 0).ResetAfter > 100*365*24*time.Hour {
			return true
		}
	}
	return false
}

// uncountable reports whether a store cannot represent how much of some state was used. After a
// change of the algorithm, it would count as the largest number.
func (p *pair) uncountable(now int64) bool {
	if !p.doubles {
		return false
	}
	for _, m := range p.models {
		if m.Touched() && m.algorithm.spent(now).BitLen() > 53 {
			return true
		}
	}
	return false
}

// pair is a subject with its models, one for each key.
type pair struct {
	blind   bool
	tick    time.Duration
	doubles bool // the subject counts in doubles, as stores do
	clock   *Clock
	limit   weir.Limit
	subject Taker
	models  map[string]*Model
	made    map[int]made
	lines   map[int]inLine
	now     int64 // the current reading
	high    int64 // the latest reading
	// the latest reading at which a state was idle: states may have been evicted then, so calls at
	// earlier times are left out
	free int64
}

// inLine is a place in the queue, on both sides.
type inLine struct {
	subject *weir.Place
	model   int
	key     string
}

// made is a reservation, on both sides.
type made struct {
	subject Reservation
	model   int
	key     string
}

func (p *pair) model(key string) *Model {
	m := p.models[key]
	if m == nil {
		m = newModel(p.limit, p.tick, p.blind)
		p.models[key] = m
		// permits are stored since the first contact of the key or of the limiter
		if anyPart(p.limit, isBursty) {
			p.subject.Take(key, 1)
			m.Take(p.now, 1)
		}
	}
	return m
}

func isBursty(l weir.Limit) bool { _, ok := l.(weir.SmoothBursty); return ok }

// move sets both clocks. Waiters whose turn comes on the way are served at exactly that time, as by
// timers.
func (p *pair) move(to int64) {
	for _, m := range p.models {
		for turn, ok := m.NextTurn(); ok && turn >= p.now && turn <= to; turn, ok = m.NextTurn() {
			m.Peek(turn, 0)
		}
	}
	p.now = to
	p.clock.Set(to * int64(p.tick))
}

// waiting returns who waits for a key, in the subject and in the model.
func (p *pair) waiting(key string) (got, want string) {
	for i, l := range p.lines {
		if l.key != key {
			continue
		}
		in := p.model(key).InLine(p.now, l.model)
		select {
		case <-l.subject.Ready():
			if in {
				return fmt.Sprintf("the one of line %d is let go", i), "it waits"
			}
			delete(p.lines, i)
		default:
			if !in {
				return fmt.Sprintf("the one of line %d waits", i), "it is let go"
			}
		}
	}
	return "", ""
}

// do makes a call on both sides, and also compares who waits.
func (p *pair) do(i int, c call) (got, want string) {
	if got, want = p.call(i, c); got != want {
		return got, want
	}
	return p.waiting(c.key)
}

// call makes a call on both sides. It leaves out a call that the subject does not support, or that
// would step back to before a state that may have been evicted. So any part of a walk is a valid
// walk.
func (p *pair) call(i int, c call) (got, want string) {
	if c.at < p.free {
		return "", ""
	}
	if c.at < p.high {
		for _, m := range p.models {
			if m.Clone().Peek(p.high, 0).ResetAfter == 0 {
				return "", ""
			}
		}
	}
	p.high = max(p.high, c.at)
	p.move(c.at)
	for _, m := range p.models {
		if m.Touched() && m.Clone().Peek(p.high, 0).ResetAfter == 0 {
			p.free = p.high
		}
	}
	// an idle state may be evicted, and then gets nothing back, even after a step back
	for of, m := range p.made {
		if p.model(m.key).Clone().Peek(p.high, 0).ResetAfter == 0 {
			delete(p.made, of)
		}
	}
	switch m := p.model(c.key); c.verb {
	case doTake:
		return p.text(p.subject.Take(c.key, c.cost)), p.text(m.Take(c.at, c.cost))
	case doPeek:
		if s, ok := p.subject.(Peeker); ok {
			return p.text(s.Peek(c.key, c.cost)), p.text(m.Peek(c.at, c.cost))
		}
	case doReserve:
		if s, ok := p.subject.(Reserver); ok {
			r, ok := s.Reserve(c.key, c.cost, time.Duration(c.within)*p.tick)
			id, delay, d := m.Reserve(c.at, c.cost, c.within)
			if ok && d.Allowed {
				p.made[i] = made{r, id, c.key}
			}
			return fmt.Sprint(p.text(r.Decision()), " delay ", r.Delay()), fmt.Sprint(p.text(d), " delay ", delay)
		}
	case doSettle:
		if m, ok := p.made[c.of]; ok {
			m.subject.Settle(c.cost)
			p.model(m.key).Settle(c.at, m.model, c.cost)
			delete(p.made, c.of)
		}
	case doJoin:
		if s, ok := p.subject.(Joiner); ok {
			place, d := s.Join(c.key, c.cost, time.Duration(c.within)*p.tick)
			id, delay, wanted := m.Join(c.at, c.cost, c.within)
			if place != nil && wanted.Allowed && delay > 0 {
				p.lines[i] = inLine{place, id, c.key}
				return fmt.Sprint(p.text(d), " delay ", place.Delay()), fmt.Sprint(p.text(wanted), " delay ", delay)
			}
			return fmt.Sprint(p.text(d), place != nil), fmt.Sprint(p.text(wanted), wanted.Allowed && delay > 0)
		}
	case doLeave:
		if l, ok := p.lines[c.of]; ok {
			delete(p.lines, c.of)
			return fmt.Sprint("left ", l.subject.Leave()), fmt.Sprint("left ", p.model(l.key).Leave(c.at, l.model))
		}
	case doSet:
		if s, ok := p.subject.(Setter); ok && !p.uncountable(c.at) {
			if err := s.SetLimit(c.limit); err != nil {
				return err.Error(), ""
			}
			for _, m := range p.models {
				m.SetLimit(c.at, c.limit)
			}
			p.limit = c.limit
			// what they give back now depends, by one clock unit, on whether an idle state was
			// evicted
			clear(p.made)
		}
	}
	return "", ""
}

// text returns the compared fields of a decision.
func (p *pair) text(d weir.Decision) string {
	_, part, named := strings.Cut(d.By, "/")
	switch {
	case partsOf(p.limit) == nil:
		d.By = "" // only a name
	case named:
		d.By = part
	}
	d.Source = 0
	return fmt.Sprintf("%+v", d)
}

// shorten removes calls and reduces costs while the results still differ.
func (s Subject) shorten(w walk, found *difference) (walk, *difference) {
	w.calls = w.calls[:found.call+1]
	for again := true; again; {
		again = false
		for i := len(w.calls) - 1; i >= 0 && len(w.calls) > 1; i-- {
			shorter := walk{w.limit, without(w.calls, i)}
			if d, err := s.try(shorter); err == nil && d != nil {
				w, found, again = walk{w.limit, shorter.calls[:d.call+1]}, d, true
				i = min(i, len(w.calls))
			}
		}
	}
	return w, found
}

// without removes one call, and all calls that refer to it.
func without(calls []call, left int) []call {
	var kept []call
	for i, c := range calls {
		switch {
		case i == left || (c.verb == doSettle || c.verb == doLeave) && c.of == left:
			continue
		case (c.verb == doSettle || c.verb == doLeave) && c.of > left:
			c.of--
		}
		kept = append(kept, c)
	}
	if len(kept) == 0 {
		return slices.Clone(calls)
	}
	return kept
}

// script writes a walk as a test script.
func (w walk) script(tick time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%T%+v\n", w.limit, w.limit)
	for i, c := range w.calls {
		fmt.Fprintf(&b, "%3d  at %v ", i, time.Duration(c.at)*tick)
		switch c.verb {
		case doTake:
			fmt.Fprintf(&b, "take %s %d\n", c.key, c.cost)
		case doPeek:
			fmt.Fprintf(&b, "peek %s %d\n", c.key, c.cost)
		case doReserve:
			fmt.Fprintf(&b, "reserve %s %d max=%v\n", c.key, c.cost, time.Duration(c.within)*tick)
		case doSettle:
			fmt.Fprintf(&b, "settle the one of line %d for %d\n", c.of, c.cost)
		case doJoin:
			fmt.Fprintf(&b, "join %s %d max=%v\n", c.key, c.cost, time.Duration(c.within)*tick)
		case doLeave:
			fmt.Fprintf(&b, "leave the one of line %d\n", c.of)
		case doSet:
			fmt.Fprintf(&b, "set %T%+v\n", c.limit, c.limit)
		}
	}
	return b.String()
}
