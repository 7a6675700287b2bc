package weirhttp

import (
	"context"
	"maps"
	"reflect"
	"strconv"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/internal/attached"
)

// withFallback returns a limiter that decides also while the store of l is unavailable: one for all
// middlewares of l. If each had its own, each would admit the whole share of this process.
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
	g := attached.Of(l.Attached(), func() *guarded { return newGuarded(l, o) })
	if !sameOptions(g.options, o) {
		panic("weirhttp: Fallback: another middleware of the limit " + strconv.Quote(l.Name()) + " has another fallback: pass the same Fallback to both, or make a weir.Shared with another name")
	}
	return g
}

// sameOptions reports whether two fallbacks are the same. Of OnTransition only the code can be
// compared, and not the variables that it uses.
func sameOptions(a, b failover.Options) bool {
	if !maps.Equal(a.ByName, b.ByName) || reflect.ValueOf(a.OnTransition).Pointer() != reflect.ValueOf(b.OnTransition).Pointer() {
		return false
	}
	a.ByName, a.OnTransition, b.ByName, b.OnTransition = nil, nil, nil, nil
	return reflect.DeepEqual(a, b)
}

func newGuarded(l *weir.Shared, o failover.Options) *guarded {
	store, err := failover.New(withoutBeats(l.Store()), o)
	if err != nil {
		panic("weirhttp: Fallback: " + err.Error())
	}
	over, err := weir.NewShared(l.Limit(), store, weir.Named(l.Name()))
	if err != nil {
		panic("weirhttp: " + err.Error()) // l has the same limit and the same name
	}
	o.ByName = maps.Clone(o.ByName) // the caller may change it
	return &guarded{from: l, over: over, options: o}
}

// guarded is a Shared over a store with a fallback. Its limit is that of the Shared that the user
// has, also after SetLimit.
type guarded struct {
	from, over *weir.Shared
	options    failover.Options // as they were given
}

func (g *guarded) shared() *weir.Shared {
	if next := g.from.Limit(); !weir.Equal(next, g.over.Limit()) {
		_ = g.over.SetLimit(next) // from has accepted it
	}
	return g.over
}

func (g *guarded) Take(ctx context.Context, key string, cost int64) (weir.Decision, error) {
	return g.shared().Take(ctx, key, cost)
}

func (g *guarded) Wait(ctx context.Context, key string, cost int64) error {
	return g.shared().Wait(ctx, key, cost)
}

func (g *guarded) Limit() weir.Limit { return g.from.Limit() }

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
