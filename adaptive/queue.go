package adaptive

import (
	"context"
	"errors"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/list"
)

// A Queue says how requests wait that find no place. More important requests go first.
//
// A queue that never gets empty is no buffer: it adds latency and nothing else. So requests wait for
// Wait at most. If for as long as that, each request of a priority had to wait for more than a
// tenth of Wait, they wait for no longer than that until none waits any more (after CoDel, as
// Facebook uses it before servers). While there are less important requests, which are refused
// first, it takes ten times as long until that begins. A queue is for bursts, and short.
type Queue struct {
	Length int           // how many may wait, of each partition; 0: there is no queue
	Wait   time.Duration // for how long; default: 100 ms
	Order  Order         // who goes first, of the same priority
}

// An Order says which of the requests that wait goes first.
type Order uint8

// The orders.
const (
	FIFO Order = iota // the one that came first
	LIFO              // the one that came last: fewer wait for long, and some wait in vain

	// AdaptiveLIFO is FIFO, and LIFO while requests wait for long: those that came last still have a
	// client that waits.
	AdaptiveLIFO
)

const (
	defaultWait  = 100 * time.Millisecond
	overloadPart = 10 // of Wait is what a request may wait while all wait for long
	burst        = 10 // times as long may requests wait for long that are not of the lowest level: those are refused first
)

// complete completes and checks a queue.
func (q *Queue) complete() error {
	fail := func(field, text string) error {
		return &weir.FieldError{Limit: "adaptive.Options", Field: "Queue." + field, Err: errors.New(text)}
	}
	switch {
	case q.Length < 0:
		return fail("Length", "it is below 0: 0 is no queue")
	case q.Wait < 0:
		return fail("Wait", "it is below 0: 0 is the default, 100ms")
	case q.Order > AdaptiveLIFO:
		return fail("Order", "it is unknown: use FIFO, LIFO or AdaptiveLIFO")
	}
	if q.Wait == 0 {
		q.Wait = defaultWait
	}
	return nil
}

// A line has the requests of one level that wait, in the order in which they came.
type line = list.List[waiter]

// A waiter is a request that waits. The lock of the gate guards it until ready gets a value.
type waiter struct {
	node        list.Node[waiter]
	part, level int
	since       int64
	hold        Hold
	why         reason // also what it is if it waits for too long
	ready       chan struct{}
}

// enter takes a place, or waits for one.
func (g *gate) enter(ctx context.Context, r Request) (Hold, error) {
	g.mu.Lock()
	i, why := g.arrive(r)
	if why == admitted {
		defer g.unlock()
		return g.occupy(i), nil
	}
	p, level := &g.parts[i], r.Priority.level()
	if g.queue.Length == 0 || why == otherUsers {
		defer g.mu.Unlock()
		g.refuse(i, level, why)
		return Hold{}, g.l.refusal()
	}
	if p.n >= g.queue.Length && !g.yield(p, level) {
		defer g.mu.Unlock()
		g.refuse(i, level, queueFull)
		return Hold{}, g.l.refusal()
	}
	w, wait := g.join(i, level)
	g.mu.Unlock()
	return g.wait(ctx, w, wait)
}

// join adds a request to the queue, under the lock. It returns how long it may wait.
func (g *gate) join(i, level int) (*waiter, time.Duration) {
	now := g.l.now()
	p := &g.parts[i]
	if p.lines[level].Len() == 0 {
		p.calm[level], p.late[level] = now, false
	}
	w := &waiter{part: i, level: level, since: now, why: tooLong, ready: make(chan struct{}, 1)}
	wait := g.queue.Wait
	if p.overloaded(level, now, wait) {
		wait /= overloadPart
		w.why = codel
	}
	p.lines[level].PushBack(&w.node, w)
	p.n++
	p.wish(float64(p.held)+float64(p.n), g.places)
	g.waiting++
	g.l.waited.Add(1)
	return w, wait
}

// overloaded reports whether the requests of a level wait for long: for a time, each that got a place
// had waited for more than a part of it. It remains so until none waits.
func (p *part) overloaded(level int, now int64, wait time.Duration) bool {
	if p.lines[level].Len() == 0 {
		return false
	}
	if p.above(level) {
		wait *= burst
	}
	p.late[level] = p.late[level] || now-p.calm[level] >= int64(wait)
	return p.late[level]
}

// yield refuses one that waits and is less important than a level, for its place in the queue. It
// reports whether there was one.
func (g *gate) yield(p *part, level int) bool {
	for lower := range level {
		if w := p.lines[lower].Last(); w != nil {
			g.remove(w)
			g.dismiss(w, queueFull)
			return true
		}
	}
	return false
}

// remove takes a waiter out of the queue, under the lock.
func (g *gate) remove(w *waiter) {
	p := &g.parts[w.part]
	p.lines[w.level].Remove(&w.node)
	g.waiting--
	p.n--
}

// dismiss tells a waiter that it is refused.
func (g *gate) dismiss(w *waiter, why reason) {
	g.refuse(w.part, w.level, why)
	w.why = why
	w.ready <- struct{}{}
}

// wait waits for what becomes of a waiter.
func (g *gate) wait(ctx context.Context, w *waiter, wait time.Duration) (Hold, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var ended error
	late := false
	select {
	case <-w.ready:
	case <-ctx.Done():
		ended = ctx.Err()
	case <-timer.C:
		late = true
	}
	if late || ended != nil {
		switch listed := g.giveUp(w, late); {
		case !listed:
			<-w.ready // it was decided meanwhile
		case late:
			return Hold{}, g.l.refusal()
		default:
			return Hold{}, ended
		}
	}
	switch err := ctx.Err(); {
	case w.why != admitted:
		return Hold{}, g.l.refusal()
	case err != nil:
		w.hold.Done(weir.Ignore)
		return Hold{}, err
	}
	return w.hold, nil
}

// giveUp removes a waiter that is late, or whose context has ended. It reports false if it was decided
// before.
func (g *gate) giveUp(w *waiter, late bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !w.node.Listed() {
		return false
	}
	g.remove(w)
	if late {
		g.refuse(w.part, w.level, w.why)
	}
	return true
}

// serve gives free places to those that wait, under the lock.
func (g *gate) serve() {
	for g.waiting > 0 {
		g.publish()
		w := g.next()
		if w == nil {
			return
		}
		g.remove(w)
		p := &g.parts[w.part]
		p.admitted++
		if now := g.l.now(); now-w.since <= int64(g.queue.Wait/overloadPart) {
			p.calm[w.level] = now
		}
		w.hold, w.why = g.occupy(w.part), admitted
		w.ready <- struct{}{}
	}
}

// next returns the waiter that has the next place, or nil.
func (g *gate) next() (first *waiter) {
	var best float64
	for i := range g.parts {
		p := &g.parts[i]
		if p.n == 0 {
			continue
		}
		free := g.free(i)
		w := g.head(p)
		if w == nil || g.check(p, w.level, rankCount, free) != admitted {
			continue
		}
		// who is within its share goes first, then who is more important, then who holds less
		held := float64(p.held) / max(p.share*float64(g.places), 1e-9)
		merit := float64(w.level) - min(held/1e6, 0.5)
		if float64(p.held) < p.share*float64(g.places) {
			merit += levelCount
		}
		if first == nil || merit > best {
			first, best = w, merit
		}
	}
	return first
}

// head returns the waiter of a part that goes first. Those that have waited for too long are
// refused: another that comes can still be served in time.
func (g *gate) head(p *part) *waiter {
	now := int64(0)
	if p.n > 0 {
		now = g.l.now()
	}
	for level := levelCount - 1; level >= 0; level-- {
		line := &p.lines[level]
		for line.Len() > 0 {
			late := p.overloaded(level, now, g.queue.Wait)
			if g.queue.Order == LIFO || g.queue.Order == AdaptiveLIFO && late {
				return line.Last()
			}
			w := line.First()
			if !late || now-w.since <= int64(g.queue.Wait/overloadPart) {
				return w
			}
			g.remove(w)
			g.dismiss(w, codel)
		}
	}
	return nil
}
