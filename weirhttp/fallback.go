package weirhttp

import (
	"context"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
)

// withFallback returns a limiter that decides also while the store of l is unavailable.
func withFallback(l *weir.Shared, o failover.Options) Limiter {
	for store := l.Store(); store != nil; {
		if _, ok := store.(*failover.Store); ok {
			return l // it has a fallback already
		}
		wrapper, ok := store.(interface{ Unwrap() weir.Store })
		if !ok {
			break
		}
		store = wrapper.Unwrap()
	}
	store, err := failover.New(withoutBeats(l.Store()), o)
	if err != nil {
		panic("weirhttp: Fallback: " + err.Error())
	}
	over, err := weir.NewShared(l.Limit(), store, weir.Named(l.Name()))
	if err != nil {
		panic("weirhttp: " + err.Error()) // l has the same limit and the same name
	}
	return guarded{from: l, over: over}
}

// guarded is a Shared over a store with a fallback. Its limit is that of the Shared that the user
// has, also after SetLimit.
type guarded struct{ from, over *weir.Shared }

func (g guarded) shared() *weir.Shared {
	if next := g.from.Limit(); !weir.Equal(next, g.over.Limit()) {
		_ = g.over.SetLimit(next) // from has accepted it
	}
	return g.over
}

func (g guarded) Take(ctx context.Context, key string, cost int64) (weir.Decision, error) {
	return g.shared().Take(ctx, key, cost)
}

func (g guarded) Wait(ctx context.Context, key string, cost int64) error {
	return g.shared().Wait(ctx, key, cost)
}

func (g guarded) Limit() weir.Limit { return g.from.Limit() }

// withoutBeats returns a store without heartbeats. These need a goroutine that ends with Close, and
// a middleware has no Close: so Options.Nodes says how many nodes there are.
func withoutBeats(store weir.Store) weir.Store {
	hidden := quiet{store}
	for {
		if can, ok := store.(failover.Pinger); ok {
			return pingable{hidden, can}
		}
		wrapper, ok := store.(interface{ Unwrap() weir.Store })
		if !ok {
			return hidden
		}
		store = wrapper.Unwrap()
	}
}

// pingable is a quiet store that can be probed.
type pingable struct {
	quiet
	failover.Pinger
}

// quiet is a store that cannot be unwrapped.
type quiet struct{ weir.Store }

// Close leaves the store open: it is the user's.
func (quiet) Close() error { return nil }

// TryNow decides by leased tokens, if the store has any.
func (q quiet) TryNow(c *weir.Charge, d *weir.Decision) bool {
	can, ok := q.Store.(failover.Instant)
	return ok && can.TryNow(c, d)
}
