package lease_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/weirtest"
)

// remote is a store with a latency, which counts its charges.
type remote struct {
	weir.Store
	way   time.Duration
	calls atomic.Int64
	mu    sync.Mutex
	asked [32]int             // by operation
	fail  func(n int64) error // the error of the n-th call; nil to carry it out
}

func (r *remote) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	n := r.calls.Add(1)
	r.mu.Lock()
	for _, c := range batch {
		r.asked[c.Op]++
	}
	fail := r.fail
	r.mu.Unlock()
	if r.way > 0 {
		select {
		case <-time.After(r.way):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if fail != nil {
		if err := fail(n); err != nil {
			return err
		}
	}
	return r.Store.Do(ctx, batch, out)
}

func (r *remote) count(op weir.Op) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[op]
}

// caller uses one key of a leased store.
type caller struct {
	t     *testing.T
	s     *lease.Store
	limit weir.Limit
	key   string
}

func (c caller) do(charge weir.Charge) (weir.Charge, weir.Decision, error) {
	charge.Name, charge.Key = "l", c.key
	if charge.Limit == nil {
		charge.Limit = c.limit
	}
	batch, out := []weir.Charge{charge}, make([]weir.Decision, 1)
	err := c.s.Do(c.t.Context(), batch, out)
	return batch[0], out[0], err
}

func (c caller) take(cost int64) weir.Decision {
	c.t.Helper()
	_, d, err := c.do(weir.Charge{Cost: cost})
	if err != nil {
		c.t.Errorf("take %d: %v", cost, err)
	}
	return d
}

// open returns a leased store over one in memory, in the bubble of a test.
func open(t *testing.T, l weir.Limit, o lease.Options, way time.Duration) (caller, *remote) {
	t.Helper()
	r := &remote{Store: weirtest.NewStore(nil), way: way}
	s, err := lease.New(r, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return caller{t, s, l, "k"}, r
}

// left returns what the store has left.
func (c caller) left(r *remote) int64 {
	c.t.Helper()
	out := make([]weir.Decision, 1)
	if err := r.Store.Do(context.Background(), []weir.Charge{{Name: "l", Key: c.key, Limit: c.limit, Op: weir.OpPeek}}, out); err != nil {
		c.t.Fatal(err)
	}
	return out[0].Remaining
}

var day = weir.FixedWindow{Limit: 1000, Window: 24 * time.Hour, Align: weir.AlignFirst}
