package weirhttp

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/weirflow/weir"
)

// Settled is for costs that are known only afterwards: Cost becomes an estimate, which is charged
// before the handler runs, and the handler calls Settle with what the request did cost. Without that
// call, and if the handler panics, the estimate stays charged.
//
// It is an option of Limit with One or Keyed of a single limiter, or a *weir.Shared. Requests do not wait
// for such a limit.
func Settled() Option { return option("Settled", func(s *settings) { s.settled = true }) }

// Settle replaces the estimated cost of a request by the actual one, in each limit with Settled that
// the request has passed. What was estimated too high can be used at once; what was estimated too low
// is charged in full, into debt if need be. 0 gives back the whole estimate.
//
// Call it with the context of the request, before the handler returns. It reports whether any charge
// was replaced: the first call wins, an actual cost below 0 changes nothing, and there is none without
// Settled or for a shadow limit that refused. A store gets a second for it.
func Settle(ctx context.Context, actual int64) bool {
	replaced := false
	for c, _ := ctx.Value(openChargeKey{}).(*openCharge); c != nil; c = c.outer {
		if actual >= 0 && c.settle != nil && c.ended.CompareAndSwap(false, true) {
			c.settle(actual)
			replaced = true
		}
	}
	return replaced
}

type openChargeKey struct{}

// openCharge is a charge that a handler can replace.
type openCharge struct {
	settle func(actual int64) // nil if nothing was charged
	ended  atomic.Bool
	outer  *openCharge // of the middleware around this one
}

// settling is a Limiter whose charges can be replaced.
type settling interface {
	reserve(ctx context.Context, key string, cost int64) reserved
}

// reserved is the decision about an estimate.
type reserved struct {
	settle   func(actual int64) // nil if nothing was charged
	decision weir.Decision
	err      error
}

func (o one) reserve(_ context.Context, _ string, cost int64) reserved {
	res, ok := o.l.Reserve(cost, 0)
	if !ok {
		return reserved{decision: res.Decision()}
	}
	return reserved{settle: res.Settle, decision: res.Decision()}
}

func (p perKey) reserve(_ context.Context, key string, cost int64) reserved {
	res, ok := p.l.Reserve(key, cost, 0)
	if !ok {
		return reserved{decision: res.Decision()}
	}
	return reserved{settle: res.Settle, decision: res.Decision()}
}

func (g guarded) reserve(ctx context.Context, key string, cost int64) reserved {
	res, ok, err := g.f.Shared().Reserve(ctx, key, cost, 0)
	if !ok {
		return reserved{decision: res.Decision(), err: err}
	}
	settle := func(actual int64) {
		// The client may have left; what is not given back stays charged until the limit has refilled.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
		defer cancel()
		_ = res.Settle(ctx, actual)
	}
	return reserved{settle: settle, decision: res.Decision()}
}

// serveSettled passes a request on with a charge that its handler can replace.
func (h *limitedHandler) serveSettled(w http.ResponseWriter, r *http.Request, key string, cost int64) {
	res := h.settler.reserve(r.Context(), key, cost)
	m := h.conclude(r.Context(), key, cost, res.decision, res.err)
	c := &openCharge{settle: res.settle}
	defer func() {
		if res.settle != nil && c.ended.CompareAndSwap(false, true) {
			res.settle(cost) // nothing of it is given back any more
		}
	}()
	if h.report(m); !h.mayPass(w, r, m) {
		return
	}
	if h.context {
		r = m.with(r)
	}
	c.outer, _ = r.Context().Value(openChargeKey{}).(*openCharge)
	h.next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), openChargeKey{}, c)))
}

// checkSettled panics where Settled does not fit.
func (h *limiting) checkSettled() {
	if !h.settled {
		return
	}
	var ok bool
	if h.settler, ok = h.limiter.(settling); !ok {
		panic("weirhttp: Settled: use One or Keyed with a single limiter, or a *weir.Shared")
	}
	if h.waits && h.settings.wait > 0 {
		panic("weirhttp: Settled and Wait: requests cannot wait for a limit whose costs are settled; take one of the options out")
	}
	h.wait, h.queue = 0, nil
}
