package weirhttp

import (
	"context"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
)

// withFallback returns a limiter that decides also while the store of l is unavailable.
func withFallback(l *weir.Shared, o failover.Options) Limiter {
	f, err := failover.ForShared(l, o)
	if err != nil {
		panic("weirhttp: Fallback: " + err.Error())
	}
	return guarded{f}
}

// guarded is a Shared with its fallback.
type guarded struct{ f *failover.SharedFallback }

func (g guarded) Take(ctx context.Context, key string, cost int64) (weir.Decision, error) {
	return g.f.Shared().Take(ctx, key, cost)
}

func (g guarded) Wait(ctx context.Context, key string, cost int64) error {
	return g.f.Shared().Wait(ctx, key, cost)
}

func (g guarded) Limit() weir.Limit { return g.f.Shared().Limit() }
