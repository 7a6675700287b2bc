package proof

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

// A gate is a ConcurrencyLimiter on a virtual clock, and its model.
type gate struct {
	l     *weir.ConcurrencyLimiter
	m     *places
	clock weirtest.Clock
	known []*entry
	fence int64 // the largest so far
}

// An entry is a caller that has entered or waits, on both sides.
type entry struct {
	*held
	hold    weir.Hold
	result  chan entered // the result of Enter, of a caller that waits
	cancel  context.CancelFunc
	waiting bool
	fence   int64
}

type entered struct {
	hold weir.Hold
	err  error
}

func drawConcurrency(t *rapid.T) weir.Concurrency {
	return weir.Concurrency{
		Limit:   rapid.SampledFrom([]int64{1, 2, 3, 5, 8, 40}).Draw(t, "limit"),
		Queue:   rapid.Int64Range(0, 5).Draw(t, "queue"),
		MaxHold: time.Duration(rapid.SampledFrom([]int64{0, 0, 1, 50, 1000, 1000}).Draw(t, "max_hold")),
	}
}

func openGate(t *rapid.T) *gate {
	g := &gate{m: &places{limit: drawConcurrency(t)}}
	l, err := weir.NewConcurrency(g.m.limit, weir.WithClock(g.clock.Now), weir.WithTimers(g.clock.AfterFunc))
	if err != nil {
		t.Fatal(err)
	}
	g.l = l
	return g
}

// cost draws a cost, mostly one that fits.
func (g *gate) cost(t *rapid.T) int64 {
	return rapid.SampledFrom([]int64{1, 1, 1, 1, 2, 3, 0, -1, g.m.limit.Limit, g.m.limit.Limit + 1}).Draw(t, "cost")
}

// move sets the clock, and stops whenever a hold expires while callers wait. The callers that enter
// for it do so at that time, without any other call.
func (g *gate) move(t *rapid.T, to int64) {
	for len(g.m.queue) > 0 {
		at := g.m.nextExpiry()
		if at <= g.clock.Now() || at > to {
			break
		}
		g.clock.Set(at)
		g.m.at(at)
		g.letIn(t)
	}
	g.clock.Set(to)
}

// letIn records the callers that the model admitted, in the order in which they came, which is that
// of the fences.
func (g *gate) letIn(t *rapid.T) {
	for _, e := range g.known {
		if !e.waiting || slices.Contains(g.m.queue, e.held) {
			continue
		}
		r := g.wait(t, e)
		if r.err != nil {
			t.Fatalf("#%d was to be let in, and got %v", e.id, r.err)
		}
		g.got(t, e, r.hold)
	}
}

// any draws a current or former holder.
func (g *gate) any(t *rapid.T, waiting bool) *entry {
	some := slices.DeleteFunc(slices.Clone(g.known), func(e *entry) bool { return e.waiting != waiting })
	if len(some) == 0 {
		t.Skip("nobody")
	}
	return some[len(some)-1-rapid.IntRange(0, len(some)-1).Draw(t, "who")]
}

// got records a hold.
func (g *gate) got(t *rapid.T, e *entry, h weir.Hold) {
	e.hold, e.waiting = h, false
	if e.expiry > 0 {
		g.fenced(t, e)
	}
}

// fenced checks a hold's fence: larger than each before it, and always the same.
func (g *gate) fenced(t *rapid.T, e *entry) {
	f := e.hold.Fence()
	switch {
	case e.fence != 0 && f != e.fence && (e.expiry > 0 || !e.over), e.fence == 0 && e.over && e.expiry == 0 && f != 0:
		t.Fatalf("the fence was %d and is %d", e.fence, f)
	case f == e.fence || f == 0:
		return
	case f <= g.fence || f < g.m.high/1000:
		t.Fatalf("fence %d after %d, at %d", f, g.fence, g.m.high)
	}
	e.fence, g.fence = f, f
}

// check compares both sides, and records the callers that the model has admitted meanwhile.
func (g *gate) check(t *rapid.T) {
	now := g.clock.Now()
	g.m.at(now)
	if got, want := g.l.Waiting(), len(g.m.queue); got != want {
		t.Fatalf("%d wait, want %d", got, want)
	}
	g.letIn(t)
	if got, want := g.l.Holding(), g.m.holding(); got != want {
		t.Fatalf("%d are held, want %d", got, want)
	}
	if got := g.l.Outcomes(); got != g.m.ended {
		t.Fatalf("%+v, want %+v", got, g.m.ended)
	}
	for _, e := range g.known {
		if e.waiting {
			select {
			case r := <-e.result:
				t.Fatalf("#%d waits, and got %v", e.id, r)
			default:
			}
		}
	}
}

// wait returns the result of Enter.
func (g *gate) wait(t *rapid.T, e *entry) entered {
	select {
	case r := <-e.result:
		return r
	case <-time.After(time.Minute):
		t.Fatalf("#%d was not admitted", e.id)
		panic("unreachable")
	}
}

// checkRetryAfter checks RetryAfter by letting time pass without other calls: after it there is a place, and
// Never is returned only if no place becomes free by itself.
func (g *gate) checkRetryAfter(t *rapid.T, cost int64, d weir.Decision) {
	m := g.m
	want := weir.Decision{Allowed: m.fits(cost), Limit: m.limit.Limit}
	if len(m.queue) == 0 {
		want.Remaining = max(m.free(), 0)
	}
	if d.Allowed != want.Allowed || d.Limit != want.Limit || d.Remaining != want.Remaining {
		t.Fatalf("cost %d: %+v, want %+v", cost, d, want)
	}
	switch after := m.clone(); {
	case d.Allowed && d.RetryAfter != 0:
		t.Fatalf("%+v", d)
	case d.Allowed:
	case d.RetryAfter == weir.Never:
		if len(m.queue) == 0 && cost > 0 && cost <= m.limit.Limit && cost <= m.free()+m.expiring() {
			t.Fatalf("cost %d: %+v, though holds expire", cost, d)
		}
	default:
		if after.pass(m.high + int64(d.RetryAfter)); d.RetryAfter <= 0 || !after.fits(cost) {
			t.Fatalf("cost %d: after %v there is no place", cost, d.RetryAfter)
		}
	}
	switch after := m.clone(); {
	case (d.ResetAfter == 0) != (m.holding() == 0):
		t.Fatalf("%d are held: %+v", m.holding(), d)
	case d.ResetAfter > 0:
		if after.pass(m.high + int64(d.ResetAfter)); after.holding() != 0 {
			t.Fatalf("after ResetAfter %d are held: %+v", after.holding(), d)
		}
	}
}

// try calls TryEnterCost on both sides.
func (g *gate) try(t *rapid.T, cost int64) {
	g.m.at(g.clock.Now())
	before := g.m.clone()
	h, d := g.l.TryEnterCost(cost)
	if d.Allowed != before.fits(cost) {
		t.Fatalf("cost %d: %+v", cost, d)
	}
	if !d.Allowed || cost == 0 {
		g.checkRetryAfter(t, cost, d)
		return
	}
	if cost > 0 {
		e := &entry{held: &held{id: len(g.known), cost: cost}}
		g.m.hold(e.held)
		g.known = append(g.known, e)
		g.got(t, e, h)
	}
	if d.Remaining != max(g.m.free(), 0) || d.Limit != g.m.limit.Limit {
		t.Fatalf("cost %d: %+v, %d are free", cost, d, g.m.free())
	}
}

// enter calls EnterCost on both sides. It returns when the caller has a place, is refused, or
// waits.
func (g *gate) enter(t *rapid.T, cost int64) {
	g.m.at(g.clock.Now())
	ctx, cancel := context.WithCancel(context.Background())
	e := &entry{held: &held{id: len(g.known), cost: cost}, result: make(chan entered, 1), cancel: cancel}
	fits := g.m.fits(cost)
	waits := !fits && cost > 0 && cost <= g.m.limit.Limit && int64(len(g.m.queue)) < g.m.limit.Queue
	go func() {
		h, err := g.l.EnterCost(ctx, cost)
		e.result <- entered{h, err}
	}()
	if waits {
		for g.l.Waiting() == len(g.m.queue) {
			select {
			case r := <-e.result:
				t.Fatalf("cost %d: it was to wait, and got %v", cost, r)
			default:
				runtime.Gosched()
			}
		}
		e.waiting = true
		g.known, g.m.queue = append(g.known, e), append(g.m.queue, e.held)
		return
	}
	r := g.wait(t, e)
	var limited *weir.LimitedError
	switch {
	case fits && r.err != nil, !fits && r.err == nil:
		t.Fatalf("cost %d: %v", cost, r.err)
	case fits && cost > 0:
		g.m.hold(e.held)
		g.known = append(g.known, e)
		g.got(t, e, r.hold)
	case fits:
	case cost < 0:
		if !errors.Is(r.err, weir.ErrCost) {
			t.Fatal(r.err)
		}
	case !errors.As(r.err, &limited):
		t.Fatal(r.err)
	case limited.Decision.RetryAfter > 0: // after RetryAfter there is room in the queue
		after := g.m.clone()
		after.pass(g.m.high + int64(limited.Decision.RetryAfter))
		if !after.fits(cost) && int64(len(after.queue)) >= after.limit.Queue {
			t.Fatalf("after %v there is no room", limited.Decision.RetryAfter)
		}
	case len(g.m.queue) > 0 && int64(len(g.m.queue)) == g.m.limit.Queue && cost <= g.m.limit.Limit && g.m.queue[0].cost <= g.m.free()+g.m.expiring():
		t.Fatalf("cost %d: %+v, though holds expire", cost, limited.Decision)
	}
}

// TestConcurrencyIsItsModel makes the same calls on a limiter and its model: entering with and
// without a queue, leaving once and twice, expiry, heartbeats, fences, callers that give up,
// changes of the limit, and a clock that also steps back. After every call both have the same holds
// and the same queue, and RetryAfter is exact.
func TestConcurrencyIsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := openGate(t)
		defer func() {
			for _, e := range g.known {
				if e.waiting {
					e.cancel()
				}
			}
		}()
		t.Repeat(map[string]func(*rapid.T){
			"try":  func(t *rapid.T) { g.try(t, g.cost(t)) },
			"try'": func(t *rapid.T) { g.try(t, 1) },
			"many": func(t *rapid.T) {
				for range 25 { // more than there are slots
					g.try(t, 1)
				}
			},
			"enter":  func(t *rapid.T) { g.enter(t, g.cost(t)) },
			"enter'": func(t *rapid.T) { g.enter(t, 1) },
			"peek": func(t *rapid.T) {
				g.m.at(g.clock.Now())
				cost := g.cost(t)
				g.checkRetryAfter(t, cost, g.l.Peek(cost))
			},
			"done": func(t *rapid.T) {
				e, o := g.any(t, false), rapid.SampledFrom([]weir.Outcome{weir.OK, weir.OK, weir.Ignore, weir.Dropped}).Draw(t, "outcome")
				g.m.at(g.clock.Now())
				e.hold.Done(o)
				g.m.done(e.held, o)
			},
			"extend": func(t *rapid.T) {
				e := g.any(t, false)
				g.m.at(g.clock.Now())
				if got, want := e.hold.Extend(), g.m.extend(e.held); got != want {
					t.Fatalf("#%d: extended %v, want %v", e.id, got, want)
				}
			},
			"fence": func(t *rapid.T) {
				e := g.any(t, false)
				if e.fence == 0 && !e.over {
					g.m.high = max(g.m.high, g.clock.Now()) // the limiter takes it from its clock
				}
				g.fenced(t, e)
			},
			"give up": func(t *rapid.T) {
				e := g.any(t, true)
				g.m.at(g.clock.Now())
				e.cancel()
				if r := g.wait(t, e); !errors.Is(r.err, context.Canceled) {
					t.Fatalf("#%d gave up, and got %v", e.id, r.err)
				}
				e.waiting = false
				e.over = true
				g.m.queue = slices.DeleteFunc(g.m.queue, func(h *held) bool { return h == e.held })
				g.m.admit()
			},
			"set": func(t *rapid.T) {
				next := drawConcurrency(t)
				g.m.at(g.clock.Now())
				if err := g.l.SetLimit(next); err != nil {
					t.Fatal(err)
				}
				for _, h := range g.m.set(g.clock.Now(), next) {
					e := g.known[slices.IndexFunc(g.known, func(e *entry) bool { return e.held == h })]
					if r := g.wait(t, e); !errors.Is(r.err, weir.ErrLimited) {
						t.Fatalf("#%d fits no more, and got %v", e.id, r.err)
					}
					e.waiting, e.over = false, true
					g.m.high = max(g.m.high, g.clock.Now()) // RetryAfter is by the limiter's clock
				}
			},
			"later": func(t *rapid.T) { g.move(t, g.clock.Now()+rapid.Int64Range(0, 1200).Draw(t, "by")) },
			"a bit": func(t *rapid.T) { g.move(t, g.clock.Now()+rapid.Int64Range(0, 40).Draw(t, "by")) },
			"back":  func(t *rapid.T) { g.move(t, max(0, g.clock.Now()-rapid.Int64Range(1, 1200).Draw(t, "by"))) },
			"":      g.check,
		})
	})
}
