package proof

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

// A call is one use of a verb, as data: so that the same calls can be made on several holders, and
// repeated.
type call struct {
	now    int64 // the reading
	verb   verb
	cost   int64 // for a settle, the actual cost
	within int64 // for a reserve and a join, in clock units
	ref    int   // index of the reservation that is settled, or of the place that is left
	limit  weir.Limit
}

type verb uint8

const (
	take verb = iota
	peek
	reserve
	settle
	join
	leave
	set
	keep    // join with a place that is kept after its turn
	release // settle a kept place
)

func (v verb) String() string {
	return [...]string{"take", "peek", "reserve", "settle", "join", "leave", "set", "keep", "release"}[v]
}

func (c call) String() string {
	switch s := fmt.Sprintf("at %d %v", c.now, c.verb); c.verb {
	case take, peek:
		return fmt.Sprintf("%s %d", s, c.cost)
	case reserve, join:
		return fmt.Sprintf("%s %d within %d", s, c.cost, c.within)
	case keep:
		return fmt.Sprintf("%s %d", s, c.cost)
	case settle, release:
		return fmt.Sprintf("%s #%d for %d", s, c.ref, c.cost)
	case leave:
		return fmt.Sprintf("%s #%d", s, c.ref)
	default:
		return fmt.Sprintf("%s %+v", s, c.limit)
	}
}

// An outcome is all that a caller sees of a call.
type outcome struct {
	d     weir.Decision
	ok    bool          // reserved, or left in time
	place bool          // queued
	delay time.Duration // of a reservation, or of a place in the queue
}

// A world holds the state of a limit and has a clock of its own.
type world interface {
	do(call) outcome
	waits(place int) bool
}

// A holder is one of the ways in which this code base holds a state.
type holder struct {
	name  string
	tick  time.Duration
	books bool // it has reservations and queues, and not only Take, Peek and SetLimit
	// remembers: it never evicts a state. Evicting one admits what the clock steps back by after
	// that, up to a burst.
	remembers bool
	// open makes a world with an untouched state. With punctual false, timers never fire.
	open func(l weir.Limit, punctual bool) world
}

var holders = []holder{
	{"Step,1ns", 1, false, true, func(l weir.Limit, _ bool) world { return &steps{limit: l, tick: 1, pure: true} }},
	{"Step,1us", 1000, false, true, func(l weir.Limit, _ bool) world { return &steps{limit: l, tick: 1000, pure: true} }},
	{"Prepared,1ns", 1, false, true, func(l weir.Limit, _ bool) world { return &steps{limit: l, tick: 1} }},
	{"Prepared,1us", 1000, false, true, func(l weir.Limit, _ bool) world { return &steps{limit: l, tick: 1000} }},
	{"Limiter", 1, true, true, func(l weir.Limit, punctual bool) world {
		w := newLive(punctual)
		lim, err := weir.New(l, weir.WithClock(w.clock.Now), weir.WithTimers(w.timers))
		w.limiter = one{lim}
		return w.must(err)
	}},
	{"keyed", 1, true, false, func(l weir.Limit, punctual bool) world {
		w := newLive(punctual)
		k, err := keyed.New[string](l, keyed.Options{MaxKeys: 8, Clock: w.clock.Now, Timers: w.timers})
		w.limiter, w.keyed = ofKey{k, "a"}, k
		return w.must(err)
	}},
}

// booking has the holders with reservations.
var booking = slices.DeleteFunc(slices.Clone(holders), func(h holder) bool { return !h.books })

// each runs a property for every algorithm and every holder.
func each(t *testing.T, holders []holder, property func(*testing.T, kind, holder)) {
	eachOf(t, kinds, holders, property)
}

func eachOf(t *testing.T, kinds []kind, holders []holder, property func(*testing.T, kind, holder)) {
	for _, k := range kinds {
		for _, h := range holders {
			t.Run(k.name+"/"+h.name, func(t *testing.T) { property(t, k, h) })
		}
	}
}

// replay makes the same calls in a new world.
func (h holder) replay(l weir.Limit, calls []call) world {
	w := h.open(l, true)
	for _, c := range calls {
		w.do(c)
	}
	return w
}

// steps is a slice of words, used with the pure function.
type steps struct {
	limit weir.Limit
	tick  time.Duration
	pure  bool // Step; otherwise Prepared.Step
	state []int64
}

func (s *steps) prepared(l weir.Limit) weir.Prepared {
	p, err := weir.Prepare(l, s.tick)
	if err != nil {
		panic(err)
	}
	return p
}

func (s *steps) do(c call) (o outcome) {
	switch {
	case c.verb == take && s.pure:
		s.state, o.d = weir.Step(s.limit, s.state, c.now, c.cost, s.tick)
	case c.verb == take:
		s.state, o.d = s.prepared(s.limit).Step(s.state, c.now, c.cost)
	case c.verb == peek:
		o.d = s.prepared(s.limit).Peek(s.state, c.now, c.cost)
	case c.verb == set:
		s.state = s.prepared(s.limit).Convert(s.state, c.now, s.prepared(c.limit), c.now)
		s.limit = c.limit
	default:
		panic("proof: Step knows no " + c.verb.String())
	}
	return o
}

func (s *steps) waits(int) bool { return false }

// limiter is what weir.Limiter, and keyed.Limiter for one key, have in common.
type limiter interface {
	Take(cost int64) weir.Decision
	Peek(cost int64) weir.Decision
	SetLimit(weir.Limit) error
	Join(cost int64, maxDelay time.Duration) (*weir.Place, weir.Decision)
	reserve(cost int64, maxDelay time.Duration) (reservation, bool)
	// joinKept joins the queue with a charge that can be given back after its turn. ready is closed
	// at the turn.
	joinKept(cost int64) (settle func(actual int64), ready <-chan struct{}, ok bool)
}

type reservation interface {
	Delay() time.Duration
	Decision() weir.Decision
	Settle(actual int64)
	Cancel()
}

// one is a weir.Limiter.
type one struct{ *weir.Limiter }

func (l one) reserve(cost int64, maxDelay time.Duration) (reservation, bool) {
	return l.Reserve(cost, maxDelay)
}

func (l one) joinKept(cost int64) (func(int64), <-chan struct{}, bool) {
	p, d := l.JoinKept(cost, -1)
	if !d.Allowed {
		return nil, nil, false
	}
	return p.Settle, p.Ready(), true
}

// ofKey is one key of a keyed.Limiter.
type ofKey struct {
	*keyed.Limiter[string]
	key string
}

func (l ofKey) Take(cost int64) weir.Decision { return l.Limiter.Take(l.key, cost) }
func (l ofKey) Peek(cost int64) weir.Decision { return l.Limiter.Peek(l.key, cost) }
func (l ofKey) Join(cost int64, maxDelay time.Duration) (*weir.Place, weir.Decision) {
	return l.Limiter.Join(l.key, cost, maxDelay)
}
func (l ofKey) reserve(cost int64, maxDelay time.Duration) (reservation, bool) {
	return l.Limiter.Reserve(l.key, cost, maxDelay)
}

func (l ofKey) joinKept(cost int64) (func(int64), <-chan struct{}, bool) {
	g, err := keyed.NewGroup(l.Limiter)
	if err != nil {
		panic(err)
	}
	charges := []keyed.Charge[string]{{Key: l.key, Cost: cost, Wait: true, Keep: true}}
	if d, err := g.Take(charges); err != nil || !d.Allowed {
		return nil, nil, false
	}
	settle := func(actual int64) {
		if err := charges[0].Settle(actual); err != nil {
			panic(err)
		}
	}
	if p := charges[0].Place; p != nil {
		return settle, p.Ready(), true
	}
	at := make(chan struct{})
	close(at)
	return settle, at, true
}

// live is a limiter on a virtual clock.
type live struct {
	limiter
	keyed        *keyed.Limiter[string] // if it is one
	clock        weirtest.Clock
	timers       func(time.Duration, func()) weir.Timer
	reservations []reservation
	places       []*weir.Place
	kept         []keptPlace
	watch        func() // called after every timer and every call
}

// A keptPlace is a place that can be settled after its turn.
type keptPlace struct {
	settle func(actual int64)
	ready  <-chan struct{}
}

func (p keptPlace) waits() bool {
	select {
	case <-p.ready:
		return false
	default:
		return true
	}
}

func newLive(punctual bool) *live {
	w := new(live)
	w.timers = w.clock.AfterFunc
	if !punctual {
		w.timers = new(weirtest.Clock).AfterFunc
	}
	return w
}

func (w *live) must(err error) *live {
	if err != nil {
		panic(err)
	}
	return w
}

// move sets the clock, and stops whenever a timer fires.
func (w *live) move(now int64) {
	for {
		at, ok := w.clock.Next()
		if !ok || at > now || at <= w.clock.Now() {
			break
		}
		w.clock.Set(at)
		w.watched()
	}
	w.clock.Set(now)
	w.watched()
}

func (w *live) watched() {
	if w.watch != nil {
		w.watch()
	}
}

func (w *live) do(c call) (o outcome) {
	w.move(c.now)
	defer w.watched()
	switch c.verb {
	case take:
		o.d = w.Take(c.cost)
	case peek:
		o.d = w.Peek(c.cost)
	case reserve:
		r, ok := w.reserve(c.cost, time.Duration(c.within))
		o.d, o.ok = r.Decision(), ok
		if o.delay = r.Delay(); ok {
			w.reservations = append(w.reservations, r)
		}
	case settle:
		w.reservations[c.ref].Settle(c.cost)
	case join:
		p, d := w.Join(c.cost, time.Duration(c.within))
		if o.d = d; p != nil {
			w.places = append(w.places, p)
			o.place, o.delay = true, p.Delay()
		}
	case leave:
		o.ok = w.places[c.ref].Leave()
	case keep:
		var p keptPlace
		if p.settle, p.ready, o.ok = w.joinKept(c.cost); o.ok {
			w.kept = append(w.kept, p)
		}
	case release:
		w.kept[c.ref].settle(c.cost)
	case set:
		if err := w.SetLimit(c.limit); err != nil {
			panic(err)
		}
	}
	return o
}

func (w *live) waits(place int) bool {
	if place >= len(w.places) {
		return false
	}
	select {
	case <-w.places[place].Ready():
		return false
	default:
		return true
	}
}

// waiting reports whether any caller waits.
func (w *live) waiting() bool {
	for i := range w.places {
		if w.waits(i) {
			return true
		}
	}
	return false
}

// model is the reference model.
type model struct {
	m            *weirtest.Model
	limit        weir.Limit
	tick         time.Duration
	punctual     bool
	now          int64
	reservations []modelled
	places       []int
}

// modelled is a reservation of the model. If its state was evicted meanwhile, it has no id.
type modelled struct {
	id      int
	cost    int64
	settled bool
}

func newModel(l weir.Limit, tick time.Duration, punctual bool) *model {
	return &model{m: weirtest.NewModel(l, tick), limit: l, tick: tick, punctual: punctual}
}

// move serves the waiters whose turn comes up to now, at their times, as timers would.
func (w *model) move(now int64) {
	for w.punctual {
		turn, ok := w.m.NextTurn()
		if !ok || turn > now || turn < w.now {
			break
		}
		w.m.Peek(turn, 0)
	}
	w.now = now
}

// drop makes the state an untouched one.
func (w *model) drop() {
	w.m = weirtest.NewModel(w.limit, w.tick)
	for i := range w.reservations {
		w.reservations[i].id = 0
	}
	clear(w.places) // no caller waits
}

func (w *model) do(c call) (o outcome) {
	w.move(c.now)
	switch c.verb {
	case take:
		o.d = w.m.Take(c.now, c.cost)
	case peek:
		o.d = w.m.Peek(c.now, c.cost)
	case reserve:
		var id int
		id, o.delay, o.d = w.m.Reserve(c.now, c.cost, c.within)
		if o.ok = o.d.Allowed; o.ok {
			w.reservations = append(w.reservations, modelled{id: id, cost: c.cost})
		}
	case settle:
		w.settle(c)
	case join:
		id, delay, d := w.m.Join(c.now, c.cost, c.within)
		if o.d = d; d.Allowed && delay > 0 {
			w.places = append(w.places, id)
			o.place, o.delay = true, delay
		}
	case leave:
		o.ok = w.m.Leave(c.now, w.places[c.ref])
	case set:
		w.m.SetLimit(c.now, c.limit)
		w.limit = c.limit
	}
	return o
}

func (w *model) settle(c call) {
	r := &w.reservations[c.ref]
	switch {
	case r.settled || c.cost < 0:
		return
	case r.id != 0:
		w.m.Settle(c.now, r.id, c.cost)
	case c.cost > r.cost: // nothing is left to give back, but there is something to charge
		id, _, _ := w.m.Reserve(c.now, 0, 0)
		w.m.Settle(c.now, id, c.cost-r.cost)
	}
	r.settled = true
}

func (w *model) waits(place int) bool { return w.m.Waits(w.now, w.places[place]) }
