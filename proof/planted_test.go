package proof

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
)

// TestPlantedRacesAreCaught: limiters with typical races are not linearizable, and the same check
// finds that. None has a data race: the mistake is to look, let other goroutines run, and act on
// what it saw.
func TestPlantedRacesAreCaught(t *testing.T) {
	for name, plant := range map[string]func(*racy, int64, int64) weir.Decision{
		"a charge is lost":       (*racy).writeBack,
		"two see the last token": (*racy).checkThenAct,
	} {
		t.Run(name, func(t *testing.T) {
			p, err := weir.Prepare(linearBuckets[0], 1)
			if err != nil {
				t.Fatal(err)
			}
			clock := new(sharedClock)
			s := &racy{clock: clock, p: p, take: plant}
			if linearizable(t, linearBuckets[0], calls(clock, s, linearBuckets, []string{""}, seeds.Of(t.Name()).Uint64(), []verb{take, take, take, peek})) != porcupine.Illegal {
				t.Error("it was not found")
			}
		})
	}
}

// TestPlantedLossesLeaveATrace: TestThreadsThatCancelLeaveNoTrace finds limiters that lose what is
// given back by two callers at the same time.
func TestPlantedLossesLeaveATrace(t *testing.T) {
	for fault, plant := range map[string]func(*crowded, int64) (func(int64), bool){
		"a refund is lost": (*crowded).loses,
		"a refund is made from a state that was read too early": (*crowded).overwrites,
	} {
		t.Run(fault, func(t *testing.T) {
			open := func(t *testing.T, l weir.Limit, clock *threadClock) sharedHolder {
				c := &crowded{l: threadLimiter(t, l, clock)}
				h := overLimiter(c.l)
				h.reserve = func(cost int64) (func(int64), bool) { return plant(c, cost) }
				return h
			}
			const patience = 1000
			for round := range patience {
				if traceOfThreads(t, open, threadsCancel["token bucket"], round) != "" {
					return
				}
			}
			t.Errorf("%d rounds did not find it", patience)
		})
	}
}

// crowded is a limiter with a fault where two callers give back at the same time.
type crowded struct {
	l       *weir.Limiter
	callers atomic.Int64
}

// loses gives nothing back while another caller gives back.
func (c *crowded) loses(cost int64) (func(int64), bool) {
	r, ok := c.l.Reserve(cost, 0)
	return func(actual int64) {
		defer c.callers.Add(-1)
		if c.callers.Add(1) > 1 {
			return
		}
		runtime.Gosched()
		r.Settle(actual)
	}, ok
}

// overwrites charges what another caller gives back meanwhile: as if it wrote a state back that it
// had read before.
func (c *crowded) overwrites(cost int64) (func(int64), bool) {
	r, ok := c.l.Reserve(cost, 0)
	return func(actual int64) {
		before := c.l.Peek(0).Remaining
		runtime.Gosched()
		meanwhile := c.l.Peek(0).Remaining - before
		r.Settle(actual)
		if meanwhile > 0 {
			c.l.Take(meanwhile)
		}
	}, ok
}

// racy is a limiter with a planted race in its take.
type racy struct {
	clock *sharedClock
	p     weir.Prepared
	take  func(r *racy, now, cost int64) weir.Decision

	mu    sync.Mutex
	state []int64
}

func (r *racy) do(_ string, c call, _ reservation) (o outcome, made reservation) {
	now := r.clock.read()
	if c.verb == take {
		o.d = r.take(r, now, c.cost)
	} else {
		o.d = r.p.Peek(r.load(), now, c.cost)
	}
	return o, nil
}

func (r *racy) load() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]int64(nil), r.state...)
}

func (r *racy) store(state []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = state
}

// writeBack works on a copy, and overwrites what others have written meanwhile.
func (r *racy) writeBack(now, cost int64) weir.Decision {
	next, d := r.p.Step(r.load(), now, cost)
	runtime.Gosched()
	if d.Allowed {
		r.store(next)
	}
	return d
}

// checkThenAct admits a cost that fitted a moment ago.
func (r *racy) checkThenAct(now, cost int64) weir.Decision {
	_, d := r.p.Step(r.load(), now, cost)
	runtime.Gosched()
	if d.Allowed {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.state, _ = r.p.Step(r.state, now, cost)
	}
	return d
}
