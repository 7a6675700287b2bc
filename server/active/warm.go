package active

import (
	"context"
	"time"

	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/stores/product"
)

// warmTime is how long a start or an update waits for the stores to load what a policy needs. Where
// that takes longer, the first requests load it.
const warmTime = time.Second

// warm prepares the stores of a policy that are available. A store that is not connected yet is
// prepared when it is, and one that is down when it is back: a Warm that fails is repeated by the Ping
// that finds it back.
func (s *storeSet) warm(ctx context.Context, p policy.Policy, open map[string]*store) {
	ctx, cancel := context.WithTimeout(ctx, warmTime)
	defer cancel()
	for _, def := range p.Stores {
		o := open[def.Name]
		calls := p.Calls(def.Name)
		o.calls.Store(&calls) // before the look at Connected: see awaitLate
		switch {
		case !o.store.Connected():
		case isDown(o.fail.Stats()):
			o.tasks.Go(func() { s.warmOne(o.life, o) })
		default:
			s.warmOne(ctx, o)
		}
	}
}

// warmOne prepares a store for the calls of the latest policy.
func (s *storeSet) warmOne(ctx context.Context, o *store) {
	warmer, ok := o.store.(product.Warmer)
	calls := o.calls.Load()
	if !ok || calls == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, warmTime)
	defer cancel()
	if err := warmer.Warm(ctx, *calls...); err != nil && ctx.Err() == nil && !isDown(o.fail.Stats()) {
		s.log.Warn("store is connected, but cannot prepare the limits", "store", o.def.Name, "error", err)
	}
}

// isDown reports whether all of a store is down.
func isDown(s failover.Stats) bool { return len(s.Down) == s.Shards }

// tagsOf are the tags of the limits of a store, by the names of the limits.
func tagsOf(p policy.Policy, store string) map[string]string {
	all := map[string]string{}
	for _, l := range p.Limits {
		if l.Store == store && l.Tag != "" && !l.Shadow {
			all[l.StateName()] = l.Tag
		}
	}
	return all
}
