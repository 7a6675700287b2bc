package weirredis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirflow/weir"
)

// lanes are where asks wait for a trip: a lane for each slot of a cluster that is asked about, and one on a single server. So who waits for one
// node, or for a slot that moves, holds up nobody who asks about another one. There are never more than a cluster has slots.
type lanes struct {
	mu     sync.Mutex
	bySlot map[uint16]*lane
	closed bool
}

// A lane has a few flights at a time; each takes all that wait, up to a bound.
type lane struct {
	clock   clock // of the node that has the slot
	waiting []*ask
	sweep   int // at so many that wait, those whose time is up are removed: while no trip ends, others take that for who left
	flights int
}

// minSweep is how many may always wait.
const minSweep = 256

// maxIdle is how much room a lane keeps while nobody waits.
const maxIdle = 64

// maxCharges is how many charges a call carries, unless one batch has more: so that no script holds up the server for long.
const maxCharges = 128

// errLate is for an ask whose time is up, and which was not carried out.
var errLate = fmt.Errorf("weirredis: no answer in time; nothing was charged: %w", context.DeadlineExceeded)

// add hands an ask in. It reports false after the end.
func (all *lanes) add(s *Store, a *ask) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return false
	}
	l := all.of(s, a.slot)
	if len(l.waiting) >= max(l.sweep, minSweep) {
		now := time.Now()
		l.waiting = slices.DeleteFunc(l.waiting, func(a *ask) bool { return a.late(now) })
		l.sweep = 2 * len(l.waiting)
	}
	l.waiting = append(l.waiting, a)
	if l.flights < s.opts.Flights {
		l.flights++
		s.flying.Add(1)
		go s.fly(l)
	}
	return true
}

// of is the lane of a slot.
func (all *lanes) of(s *Store, slot uint16) *lane {
	l := all.bySlot[slot]
	if l == nil {
		if all.bySlot == nil {
			all.bySlot = map[uint16]*lane{}
		}
		l = &lane{clock: clock{start: s.clock.start, others: &s.clock}}
		all.bySlot[slot] = l
	}
	return l
}

func (all *lanes) close() {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.closed = true
}

// next is what the next flight of a lane takes; nothing means that it ends. Who asked what is late by now has gone: it is not sent.
func (all *lanes) next(l *lane, into []*ask) []*ask {
	all.mu.Lock()
	defer all.mu.Unlock()
	into = into[:0]
	now, n, charges := time.Now(), 0, 0
	for ; n < len(l.waiting); n++ {
		a := l.waiting[n]
		if len(into) > 0 && charges+len(a.questions) > maxCharges {
			break
		}
		if !a.late(now) {
			into = append(into, a)
			charges += len(a.questions)
		}
	}
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	if len(into) > 0 {
		return into
	}
	l.flights--
	if cap(l.waiting) > maxIdle {
		l.waiting = nil
	}
	return nil
}

// late ends an ask whose time is up, and reports whether it did.
func (a *ask) late(now time.Time) bool {
	if a.end.After(now) {
		return false
	}
	a.finish(errLate)
	return true
}

// finish lets the caller see the answers, or what went wrong.
func (a *ask) finish(err error) {
	a.err = err
	close(a.done)
}

// latestEnd is when the last of the callers leaves.
func latestEnd(asks []*ask) time.Time {
	end := asks[0].end
	for _, a := range asks {
		if a.end.After(end) {
			end = a.end
		}
	}
	return end
}

// fly makes trips while somebody waits.
func (s *Store) fly(l *lane) {
	defer s.flying.Done()
	var asks []*ask
	for asks = s.lanes.next(l, asks); asks != nil; asks = s.lanes.next(l, asks) {
		s.trip(l, asks)
	}
}

// trip carries out asks about a slot: those that can go the short way in one call, and the others in another one.
func (s *Store) trip(l *lane, asks []*ask) {
	ctx, cancel := context.WithDeadline(s.ctx, latestEnd(asks))
	defer cancel()
	s.carry(ctx, l, asks)
}

// carry makes attempts until all is answered, or the context ends.
func (s *Store) carry(ctx context.Context, l *lane, asks []*ask) {
	flights := s.flights(l, asks)
	for {
		var calls []Call
		var under []*flight
		for _, f := range flights {
			if f.again(ctx) {
				calls, under = append(calls, f.call()), append(under, f)
			}
		}
		if len(under) == 0 {
			return
		}
		replies := s.evaluate(ctx, calls)
		for i, f := range under {
			f.landed(replies[i])
		}
	}
}

// flights parts asks by whether they can go the short way.
func (s *Store) flights(l *lane, asks []*ask) (flights []*flight) {
	long := func(a *ask) bool { return !a.short }
	if !slices.ContainsFunc(asks, long) || !slices.ContainsFunc(asks, func(a *ask) bool { return a.short }) {
		return append(flights, newFlight(s, &l.clock, asks))
	}
	var parts [2][]*ask
	for _, a := range asks {
		if long(a) {
			parts[1] = append(parts[1], a)
		} else {
			parts[0] = append(parts[0], a)
		}
	}
	return append(flights, newFlight(s, &l.clock, parts[0]), newFlight(s, &l.clock, parts[1]))
}

// evaluate sends calls once. It does not wait for longer than Timeout: a connection may be dead, with nobody there to say so.
func (s *Store) evaluate(ctx context.Context, calls []Call) []Reply {
	if end, _ := ctx.Deadline(); time.Until(end) > s.opts.Timeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.opts.Timeout)
		defer cancel()
	}
	replies := make([]Reply, len(calls))
	if len(calls) == 1 {
		replies[0].Text, replies[0].Err = s.evaler.Eval(ctx, calls[0])
	} else {
		s.evaler.EvalAll(ctx, calls, replies)
	}
	return replies
}

// alone returns the lane of a slot where nobody else is, and begins a flight there, which byOneself ends. It returns nil where there is somebody,
// and where what is asked is to go on after the caller has left.
func (s *Store) alone(ctx context.Context, end time.Time, slot uint16) *lane {
	if latest, ok := ctx.Deadline(); !ok || end.After(latest) {
		return nil
	}
	all := &s.lanes
	all.mu.Lock()
	defer all.mu.Unlock()
	l := all.of(s, slot)
	if all.closed || l.flights > 0 {
		return nil
	}
	l.flights++
	s.flying.Add(1)
	return l
}

// byOneself makes the trip in the caller's own goroutine, which is soonest. Who comes meanwhile has the next trip to himself.
func (s *Store) byOneself(ctx context.Context, end time.Time, l *lane, a *ask, batch []weir.Charge, out []weir.Decision) error {
	defer s.left(l)
	a.end, a.done = end, make(chan struct{})
	one := [1]*ask{a}
	s.carry(ctx, l, one[:])
	if ended := ctx.Err(); ended != nil && a.err != nil {
		return ended
	}
	return a.answer(batch, out)
}

// left ends the flight of someone who was alone. Who came meanwhile goes on with it.
func (s *Store) left(l *lane) {
	s.lanes.mu.Lock()
	onward := len(l.waiting) > 0
	if !onward {
		l.flights--
	}
	s.lanes.mu.Unlock()
	if onward {
		go s.fly(l)
		return
	}
	s.flying.Done()
}
