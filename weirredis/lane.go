package weirredis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// lanes are where asks wait for a trip. All share one, so that what comes together is sent together; but where slots of a cluster are not
// answered, each has one of its own for a while: who waits for one node, or for a slot that moves, holds up nobody else for long.
type lanes struct {
	mu     sync.Mutex
	shared lane
	apart  map[uint16]*lane // by slot, while somebody asks
	parts  [parts]part
	closed bool
}

// parts are as many as keep the slots of different nodes apart, mostly, as nodes have ranges of slots; and as few as are soon all known not to
// be answered where a node is not.
const parts = 64

// A part is some slots.
type part struct {
	clock    clock        // of the node that has them
	failures atomic.Int32 // calls without an answer, since one had it
	quiet    atomic.Int64 // until when it is apart, in nanoseconds on our clock since its start
}

// part is that of a slot. On a single server there is one.
func (all *lanes) part(slot uint16) *part { return &all.parts[slot/(slots/parts)] }

// tell says how a call went. One without an answer may be an accident.
func (p *part) tell(answered bool) {
	if answered {
		p.failures.Store(0)
	} else if p.failures.Add(1) > 1 {
		p.quiet.Store(int64(time.Since(p.clock.start) + quiet))
	}
}

// quiet is how long slots are apart after a call that was not answered.
const quiet = 5 * time.Second

func (p *part) isQuiet() bool {
	until := p.quiet.Load()
	return until > 0 && int64(time.Since(p.clock.start)) < until
}

// lane is where an ask is to wait.
func (all *lanes) lane(s *Store, slot uint16) *lane {
	if !s.opts.Cluster || !all.part(slot).isQuiet() {
		return &all.shared
	}
	l := all.apart[slot]
	if l == nil {
		if all.apart == nil {
			all.apart = map[uint16]*lane{}
		}
		l = &lane{slot: slot}
		all.apart[slot] = l
	}
	return l
}

// A lane has a few flights at a time; each takes all that wait, up to a bound.
type lane struct {
	slot    uint16 // where it is of one
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
	l := all.lane(s, a.slot)
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

// gone lets go of a lane apart in which nobody is any more. The caller has the lock.
func (all *lanes) gone(l *lane) {
	if l.flights == 0 && len(l.waiting) == 0 && l != &all.shared {
		delete(all.apart, l.slot)
	}
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
	all.gone(l)
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

// trip carries out asks: one call for each slot.
func (s *Store) trip(l *lane, asks []*ask) {
	flights := s.flights(asks)
	ctx, cancel := context.WithDeadline(s.ctx, latestOf(flights))
	defer cancel()
	s.carry(ctx, flights, s.opts.Cluster && l == &s.lanes.shared)
}

// latestOf is when the last caller of some flights leaves.
func latestOf(flights []*flight) time.Time {
	end := flights[0].end
	for _, f := range flights {
		if f.end.After(end) {
			end = f.end
		}
	}
	return end
}

// carry makes attempts until all is answered, or the context ends. Flights that share a trip with others are repeated apart from them.
func (s *Store) carry(ctx context.Context, flights []*flight, shared bool) {
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
		if shared {
			flights = s.part(under)
		}
	}
}

// part sends flights that failed on a way of their own, and returns the others.
func (s *Store) part(flights []*flight) (rest []*flight) {
	var failed []*flight
	for _, f := range flights {
		if f.failure != nil {
			failed = append(failed, f)
		} else {
			rest = append(rest, f)
		}
	}
	if failed != nil {
		for _, f := range failed {
			f.asks = slices.Clone(f.asks) // theirs are the next trip's to overwrite
		}
		s.flying.Add(1)
		go func() {
			defer s.flying.Done()
			ctx, cancel := context.WithDeadline(s.ctx, latestOf(failed))
			defer cancel()
			s.carry(ctx, failed, false)
		}()
	}
	return rest
}

// flights parts asks into calls: by their slots, and by whether they can go the short way.
func (s *Store) flights(asks []*ask) (flights []*flight) {
	type way struct {
		slot  uint16
		short bool
	}
	alike := true
	for _, a := range asks {
		alike = alike && a.slot == asks[0].slot && a.short == asks[0].short
	}
	if alike {
		return append(flights, newFlight(s, asks))
	}
	by := map[way]int{}
	var parts [][]*ask
	for _, a := range asks {
		w := way{a.slot, a.short}
		i, ok := by[w]
		if !ok {
			i = len(parts)
			by[w], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], a)
	}
	for _, p := range parts {
		flights = append(flights, newFlight(s, p))
	}
	return flights
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
