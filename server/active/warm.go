package active

import (
	"context"
	"time"

	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/stores/product"
)

// warming is how long the start, or a reload, waits for the stores to have what a policy needs: so that its first requests find it there. Where
// it takes longer, those requests bring it.
const warming = time.Second

// warm readies those stores of a policy that answer.
func (s *storeSet) warm(ctx context.Context, p policy.Policy, open map[string]*store) {
	ctx, cancel := context.WithTimeout(ctx, warming)
	defer cancel()
	for _, def := range p.Stores {
		o := open[def.Name]
		warmer, ok := o.store.(product.Warmer)
		if !ok || !o.store.Connected() || o.fail.State() != failover.Closed {
			continue
		}
		if err := warmer.Warm(ctx, p.Calls(def.Name)...); err != nil && ctx.Err() == nil {
			s.log.Warn("store is connected, but does not do what limits need", "store", def.Name, "error", err)
		}
	}
}

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
