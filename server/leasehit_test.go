package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// untouched is a context whose Done fails the test: waiting for it, or deriving one with a timer,
// calls Done.
type untouched struct {
	context.Context
	t *testing.T
}

func (c untouched) Done() <-chan struct{} {
	c.t.Error("the context of a lease hit was waited for")
	return nil
}

// afar is a store that may be called only while near is true.
type afar struct {
	weir.Store
	near bool
}

func (s *afar) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if s.near {
		return errors.New("a lease hit came to the store")
	}
	return s.Store.Do(ctx, batch, out)
}

// TestLeaseHit: a decision from leased tokens is made in the caller's goroutine, without timer and
// allocation. Through an engine it allocates only the text of the key.
func TestLeaseHit(t *testing.T) {
	far := &afar{Store: weirtest.NewStore(nil)}
	leased, err := lease.New(far, lease.Options{Lifetime: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	store, err := failover.New(leased, failover.Options{Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	limit := weir.TokenBucket{Rate: weir.PerSecond(1_000_000_000), Burst: 1_000_000_000}
	p := policy.Policy{
		Stores: []policy.Store{{Name: "shared", Lease: policy.Lease{On: true}}},
		Limits: []policy.Limit{{Name: "hot", Key: []string{"client.ip"}, Limit: limit, Store: "shared"}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"hot"}}},
	}
	engine, err := policy.New(p, policy.Options{Stores: map[string]weir.Store{"shared": store}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { engine.Close(); store.Close(); far.near = false; leased.Close() }()

	var ctx context.Context = untouched{t.Context(), t}
	batch, out := []weir.Charge{{Name: "direct", Key: "k", Limit: limit, Cost: 1}}, make([]weir.Decision, 1)
	direct := func(ctx context.Context) {
		if err := store.Do(ctx, batch, out); err != nil || !out[0].Allowed {
			t.Errorf("%+v, %v", out[0], err)
		}
	}
	request := policy.Request{Method: "GET", Path: "/", Client: "10.0.0.1"}
	var verdict policy.Verdict
	through := func(ctx context.Context) {
		if verdict = engine.DecideContext(ctx, request); verdict.Outcome != policy.Allow {
			t.Errorf("%+v", verdict)
		}
	}
	for name, c := range map[string]struct {
		take   func(context.Context)
		source func() weir.Source
		allocs float64
	}{
		"failover over lease": {direct, func() weir.Source { return out[0].Source }, 0},
		"an engine":           {through, func() weir.Source { return verdict.Decision.Source }, 1},
	} {
		far.near = false
		for range 10_000 { // demand, so that the next lease is large enough for the rest of the test
			c.take(t.Context())
		}
		for stop := time.Now().Add(time.Minute); leased.Stats().Leased < 1<<15 && time.Now().Before(stop); {
			c.take(t.Context())
		}
		far.near = true
		n := testing.AllocsPerRun(100, func() { c.take(ctx) })
		if far.near = false; c.source() != weir.SourceLease || n > c.allocs {
			t.Errorf("%s: %v allocations, and the source is %v", name, n, c.source())
		}
	}
}
