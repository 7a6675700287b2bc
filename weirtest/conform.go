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

// A Subject is an implementation of limits that Conform holds to the reference model: a limiter in process, or a store.
type Subject struct {
	// Tick is its clock unit; 0 means a nanosecond.
	Tick time.Duration
	// Latest is the latest reading of its clock, in clock units; 0 means the end of a nanosecond clock of 64 bits. Where it is given, as by a
	// store, no reading is below 0, nothing costs more than a double can count exactly, and what has to wait for over a century, or has
	// counted more than that in debt, is not looked at any further.
	Latest int64
	// Open returns a fresh Taker of a limit, on a clock that reads nanoseconds and stands still until it is set. What else it implements
	// of Peeker, Reserver, Joiner and Setter is held to the model too; what it does not is left out. One that implements io.Closer is closed. For
	// the scripts, which ask for a Holder, decisions carry the kind of the limit in By, as in token_bucket.
	Open func(l weir.Limit, c *Clock) (Taker, error)
	// Blind says that it has only the states, and does not know which reservations are outstanding: it may give back less.
	Blind bool
	// Limits are drawn for the random walks, each with numbers that random draws; nil means every kind that there is.
	Limits []func(random *rand.Rand) weir.Limit

	Seed  uint64 // of the random walks, which are the same each time for the same seed
	Walks int    // how many for each kind of limit; 0 means 200
	Steps int    // how many calls in each walk; 0 means 60
}

// A Taker decides for keys.
type Taker interface {
	Take(key string, cost int64) weir.Decision
}

// A Peeker answers as Take would, and charges nothing.
type Peeker interface {
	Peek(key string, cost int64) weir.Decision
}

// A Reserver charges ahead.
type Reserver interface {
	Reserve(key string, cost int64, maxDelay time.Duration) (Reservation, bool)
}

// A Joiner has lines to wait in.
type Joiner interface {
	Join(key string, cost int64, maxDelay time.Duration) (*weir.Place, weir.Decision)
}

// A Setter changes its limit.
type Setter interface {
	SetLimit(weir.Limit) error
}

// TB is what Conform asks of a *testing.T.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
}

//go:embed testdata
var testdata embed.FS

// Testdata holds the scripts of each limit (*.weir), and the vectors of other implementations.
func Testdata() fs.FS {
	sub, err := fs.Sub(testdata, "testdata")
	if err != nil {
		panic(err) // the name is a constant
	}
	return sub
}

// Conform holds a subject to the reference model, by random walks with clocks that step back and jump, any cost, and, where the subject
// knows them, reservations, lines and changes of the limit; to the scripts of this package, where it is a Holder, and to its vectors of other
// implementations. All fields of a decision count but Source, and but By where the limit is no All; after a slash, By is
// the limit of an All that decided. What fails is made as short as it can be, and told call by call.
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

// scripts runs the scripts of this package.
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

// shut closes what can be closed.
func shut(v any) {
	if c, ok := v.(interface{ Close() error }); ok {
		_ = c.Close() // a test's own
	}
}

// walk is a limit and calls.
type walk struct {
	limit weir.Limit
	calls []call
}

// call is one use of a verb.
type call struct {
	at     int64 // the reading, in clock units
	verb   verb
	key    string
	cost   int64 // of a settle, the actual one
	within int64 // of a reserve, in clock units
	of     int   // of a settle and a leave: which reserve or join of this walk, by its place among the calls
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

// difference is where a subject and the model part.
type difference struct {
	call      int
	got, want string
}

func (d *difference) String() string { return fmt.Sprintf("\twant %s\n\tgot  %s\n", d.want, d.got) }

// try makes the calls of a subject and of a model, until they differ.
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

// endless reports whether some state is so far in debt that stores count it as the end of their clocks, or of their numbers.
func (p *pair) endless() bool {
	for _, m := range p.models {
		if m.law.counted().BitLen() > 53 {
			return true
		}
		if m.Clone().Peek(p.now, 0).ResetAfter > 100*365*24*time.Hour {
			return true
		}
	}
	return false
}

// uncountable reports whether a store has no number for what some state has used: a change of kind would count it as the largest there is.
func (p *pair) uncountable(now int64) bool {
	if !p.doubles {
		return false
	}
	for _, m := range p.models {
		if m.Touched() && m.law.spent(now).BitLen() > 53 {
			return true
		}
	}
	return false
}

// pair is a subject beside its model: one for each key.
type pair struct {
	blind   bool
	tick    time.Duration
	doubles bool // the subject counts in doubles, as a store does
	clock   *Clock
	limit   weir.Limit
	subject Taker
	models  map[string]*Model
	made    map[int]made
	lines   map[int]inLine
	now     int64 // the reading
	high    int64 // the latest one
	free    int64 // the latest at which a state was free: what was let go then is not asked about earlier times
}

// inLine is a place in line, on both sides.
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
		if anyPart(p.limit, isBursty) { // permits are stored from the first contact on, which may be that of a key or a limiter
			p.subject.Take(key, 1)
			m.Take(p.now, 1)
		}
	}
	return m
}

func isBursty(l weir.Limit) bool { _, ok := l.(weir.SmoothBursty); return ok }

// move sets the clocks. Whose turn comes on the way is let go at that very time, as timers do it.
func (p *pair) move(to int64) {
	for _, m := range p.models {
		for turn, ok := m.NextTurn(); ok && turn >= p.now && turn <= to; turn, ok = m.NextTurn() {
			m.Peek(turn, 0)
		}
	}
	p.now = to
	p.clock.Set(to * int64(p.tick))
}

// waiting is who waits for a key, as the subject has it and as the model does.
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

// do makes a call on both sides, and looks at who waits.
func (p *pair) do(i int, c call) (got, want string) {
	if got, want = p.call(i, c); got != want {
		return got, want
	}
	return p.waiting(c.key)
}

// call makes a call on both sides. A call that the subject does not know, or that would step back behind a state that it may have let go, is
// left out, so that any part of a walk is a walk.
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
	for of, m := range p.made { // a state that is free may be let go, and then nothing is given back to it, even after a step back
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
			clear(p.made) // what they would give back now depends on whether a state that was free was let go, by a clock unit
		}
	}
	return "", ""
}

// text is what counts of a decision.
func (p *pair) text(d weir.Decision) string {
	_, part, named := strings.Cut(d.By, "/")
	switch {
	case joined(p.limit) == nil:
		d.By = "" // a name, if any
	case named:
		d.By = part
	}
	d.Source = 0
	return fmt.Sprintf("%+v", d)
}

// shorten leaves out calls, and makes costs small, while something still differs.
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

// without leaves one call out, and all that refer to it.
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

// script writes a walk as the language of scripts has it.
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
