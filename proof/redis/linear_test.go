package redis

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
)

const (
	threads   = 6
	perThread = 159
	perRound  = 3   // after so many calls each thread waits for the others, so that the checker has few orders to try
	step      = 400 // microseconds by which the clock advances at a time
	epoch     = 1_700_000_000_000_000
)

// us returns a number of microseconds.
func us(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// linearLimits are the limits whose histories are checked. One clock step brings less than a token.
var linearLimits = map[string]weir.Limit{
	"TokenBucket":  weir.TokenBucket{Rate: weir.Rate{N: 1, Per: us(1000)}, Burst: 6},
	"LeakyBucket":  weir.LeakyBucket{Rate: weir.Rate{N: 7, Per: us(9000)}, Queue: 5, DelayAfter: 2},
	"starts empty": weir.TokenBucket{Rate: weir.Rate{N: 3, Per: us(2000)}, Burst: 4, Initial: weir.InitialEmpty},
	"SmoothBursty": weir.SmoothBursty{Rate: weir.Rate{N: 1, Per: us(1000)}, MaxBurst: us(5000)},
	"Interval":     weir.IntervalBucket{Burst: 6, Refill: 2, Every: us(3000)},
	"FixedWindow":  weir.FixedWindow{Limit: 5, Window: us(6000)},
	"AlignFirst":   weir.FixedWindow{Limit: 5, Window: us(6000), Align: weir.AlignFirst},
	"Sliding":      weir.SlidingWindow{Limit: 6, Window: us(8000), Slots: 4, SlotLimit: 3},
	"Counter":      weir.SlidingCounter{Limit: 5, Window: us(6000)},
	"Log":          weir.SlidingLog{Limit: 5, Window: us(6000)},
	"WarmUp":       weir.WarmUp{Rate: weir.Rate{N: 1, Per: us(1000)}, Period: us(4000)},
	"All":          weir.All(weir.TokenBucket{Rate: weir.Rate{N: 1, Per: us(1000)}, Burst: 6}, weir.LeakyBucket{Rate: weir.Rate{N: 1, Per: us(700)}, Queue: 4, DelayAfter: 4}),
}

// An op is one call of a thread: of the store, or an advance of the clock.
type op struct {
	verb   string // take, peek, reserve, settle, or move
	key    string
	cost   int64 // for a settle, the actual cost
	within int64 // for a reserve, in microseconds
	id     int   // of this reservation, or of the one that is settled
}

// An outcome is what a thread saw of a call.
type outcome struct {
	d     weir.Decision
	ok    bool
	delay time.Duration
	now   int64 // of a move: the new reading
}

// A player makes calls to a limit, on a clock in the server.
type player struct {
	client rueidis.Client
	shared shared
	clock  string
}

// shared makes the calls of a history: on a weir.Shared, or on one with a planted race.
type shared interface {
	Take(ctx context.Context, key string, cost int64) (weir.Decision, error)
	Peek(ctx context.Context, key string, cost int64) (weir.Decision, error)
	Reserve(ctx context.Context, key string, cost int64, maxDelay time.Duration) (*weir.SharedReservation, bool, error)
}

// advance moves the clock on, in one step of the server's. The clock is kept as seconds and
// microseconds, and a test takes less than a second of it.
func (p *player) advance(ctx context.Context) int64 {
	now := must(p.client.Do(ctx, p.client.B().Hincrby().Key(p.clock).Field("us").Increment(step).Build()).AsInt64())
	return epoch + now
}

func (p *player) do(ctx context.Context, o op, held *weir.SharedReservation) (out outcome, made *weir.SharedReservation) {
	switch o.verb {
	case "take":
		out.d = must(p.shared.Take(ctx, o.key, o.cost))
	case "peek":
		out.d = must(p.shared.Peek(ctx, o.key, o.cost))
	case "reserve":
		r, ok, err := p.shared.Reserve(ctx, o.key, o.cost, us(o.within))
		made = must(r, err)
		out = outcome{d: made.Decision(), ok: ok, delay: made.Delay()}
	case "settle":
		must(0, held.Settle(ctx, o.cost))
	case "move":
		out.now = p.advance(ctx)
	}
	return out, made
}

// history has threads call concurrently, and returns the calls with their outcomes.
func (p *player) history(t *testing.T, seed uint64, keys, verbs []string) []porcupine.Operation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var tick atomic.Int64
	all := make([][]porcupine.Operation, threads)
	var wg sync.WaitGroup
	start := make(chan struct{})
	var rounds [perThread / perRound]sync.WaitGroup
	for i := range rounds {
		rounds[i].Add(threads)
	}
	for thread := range threads {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(thread)))
			type mine struct {
				r *weir.SharedReservation
				o op
			}
			var open []mine
			<-start
			for i := range perThread {
				o := op{verb: verbs[r.IntN(len(verbs))], key: keys[r.IntN(len(keys))], cost: 1 + r.Int64N(2), within: r.Int64N(8000), id: thread*perThread + i}
				var h mine
				if o.verb == "settle" && len(open) == 0 {
					o.verb = "reserve"
				} else if o.verb == "settle" {
					n := r.IntN(len(open))
					h = open[n]
					open = slices.Delete(open, n, n+1)
					o.key, o.id, o.cost = h.o.key, h.o.id, max(0, r.Int64N(6)-3)
				}
				called := tick.Add(1)
				out, made := p.do(ctx, o, h.r)
				returned := tick.Add(1)
				if out.ok {
					open = append(open, mine{made, o})
				}
				all[thread] = append(all[thread], porcupine.Operation{ClientId: thread, Input: o, Call: called, Output: out, Return: returned})
				if (i+1)%perRound == 0 {
					rounds[i/perRound].Done()
					rounds[i/perRound].Wait()
				}
			}
		})
	}
	close(start)
	wg.Wait()
	return slices.Concat(all...)
}
