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

// warm prepares the stores of a policy that are available.
func (s *storeSet) warm(ctx context.Context, p policy.Policy, open map[string]*store) {
	ctx, cancel := context.WithTimeout(ctx, warmTime)
	defer cancel()
	for _, def := range p.Stores {
		o := open[def.Name]
		warmer, ok := o.store.(product.Warmer)
		if !ok || !o.store.Connected() || isDown(o.fail.Stats()) {
			continue
		}
		if err := warmer.Warm(ctx, p.Calls(def.Name)...); err != nil && ctx.Err() == nil {
			s.log.Warn("store is connected, but cannot prepare the limits", "store", def.Name, "error", err)
		}
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
