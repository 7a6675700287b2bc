package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/policy"
)

// queueBounds counts the requests of a route that wait in queues, and bounds them: in total, and
// per client.
type queueBounds struct {
	all     *weir.ConcurrencyLimiter
	clients *keyed.Concurrency[string] // nil for no bound
}

// defaultQueued is how many requests of a route may wait if the policy does not say. Each keeps a
// connection, or a stream of one.
const defaultQueued = 10000

// boundsOf returns the queue bounds of a route, nil without the state or the route.
func (s *state) boundsOf(match string) *queueBounds {
	if s == nil {
		return nil
	}
	for i, r := range s.file.Policy.Routes {
		if r.Match == match {
			return s.routes[i].queued
		}
	}
	return nil
}

// newQueueBounds returns the queue bounds of a route; those of the old policy keep their counts.
func newQueueBounds(w policy.Waiting, old *queueBounds) *queueBounds {
	bound := weir.Concurrency{Limit: defaultQueued}
	if w.Max > 0 {
		bound.Limit = int64(w.Max)
	}
	h := &queueBounds{}
	if old != nil && old.all.SetLimit(bound) == nil {
		h.all = old.all
	} else {
		h.all, _ = weir.NewConcurrency(bound) // the bound is at least 1: there is no other error
	}
	if w.PerClient == 0 {
		return h
	}
	each := weir.Concurrency{Limit: int64(w.PerClient)}
	if old != nil && old.clients != nil && old.clients.SetLimit(each) == nil {
		h.clients = old.clients
	} else {
		h.clients, _ = keyed.NewConcurrency[string](each, keyed.Options{MaxKeys: max(int(bound.Limit), 1)})
	}
	return h
}

// queuePlace is the place of a request among those that wait.
type queuePlace struct {
	all    weir.Hold
	client keyed.Hold[string]
	taken  bool
}

func (h *queuePlace) release() {
	if !h.taken {
		return
	}
	h.all.Done(weir.OK)
	h.client.Done(weir.OK)
}

// take counts a request that is about to wait, or refuses it if too many wait. delay is the
// expected wait, 0 if unknown.
func (h *queueBounds) take(g *Gateway, client, limit string, delay time.Duration) (p queuePlace, full *weir.LimitedError) {
	full = &weir.LimitedError{Decision: weir.Decision{RetryAfter: max(delay, time.Second), By: limit}}
	if h.clients != nil {
		hold, d := h.clients.TryEnter(client)
		if !d.Allowed {
			g.counts.queueFull.Add(1)
			return p, full
		}
		p.client = hold
	}
	all, d := h.all.TryEnter()
	if !d.Allowed {
		p.client.Done(weir.OK)
		g.counts.queueFull.Add(1)
		return p, full
	}
	p.all, p.taken = all, true
	return p, nil
}

// Queued returns how many requests wait in queues.
func (g *Gateway) Queued() (n int) {
	for _, r := range g.state.Load().routes {
		n += int(r.queued.all.Holding())
	}
	return n
}

// wait queues a request until its turn. It reports false if the request was refused or has left.
func (g *Gateway) wait(w http.ResponseWriter, r *http.Request, s *state, v *policy.Verdict, client string) bool {
	place, err := s.routes[v.Route].queued.take(g, client, v.Limit, v.Delay)
	if err != nil {
		v.Cancel()
		g.refuse(w, r, s, v, err.Decision)
		return false
	}
	defer place.release()
	ctx, stop := whileThere(r.Context())
	defer stop()
	if err := v.Wait(ctx); err != nil {
		g.leave(w, r, s, v, err)
		return false
	}
	return true
}

// enterQueued takes the places of concurrency limits. A request that waits for one counts as
// queued.
func (g *Gateway) enterQueued(r *http.Request, s *state, v *policy.Verdict, client string) error {
	var place queuePlace
	ctx, stop := r.Context(), func() {}
	defer func() { stop(); place.release() }()
	return v.EnterQueued(ctx, func() (context.Context, error) {
		if place.taken {
			return ctx, nil
		}
		var full *weir.LimitedError
		if place, full = s.routes[v.Route].queued.take(g, client, v.Limit, 0); full != nil {
			return ctx, full
		}
		ctx, stop = whileThere(ctx)
		return ctx, nil
	})
}
