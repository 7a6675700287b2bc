package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/plain"
	"github.com/weirflow/weir/server/upstream"
)

// queueOf returns the queue of a route, nil without the state or the route.
func (s *state) queueOf(match string) *policy.Queue {
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

// join counts a request that is about to wait, or refuses it if too many wait.
func (g *Gateway) join(to *route, client, limit string, delay time.Duration) (policy.QueuePlace, *weir.LimitedError) {
	place, full := to.queued.Join(client, limit, delay)
	if full != nil {
		g.counts.queueFull.Add(1)
	}
	return place, full
}

// Queued returns how many requests wait in queues.
func (g *Gateway) Queued() (n int) {
	for _, r := range g.state.Load().routes {
		n += r.queued.Len()
	}
	return n
}

// postpone has a request wait and be served after its handler has returned, where that is possible.
func (g *Gateway) postpone(w http.ResponseWriter, r *http.Request, s *state, x *exchange, client string) bool {
	x.postponed = plain.Later(r.Context(), func() {
		defer x.end()
		if g.wait(w, r, s, &x.verdict, client) {
			g.serve(w, r, s, x, client)
		}
	})
	return x.postponed
}

// wait queues a request until its turn. It reports false if the request was refused or has left.
func (g *Gateway) wait(w http.ResponseWriter, r *http.Request, s *state, v *policy.Verdict, client string) bool {
	place, err := g.join(&s.routes[v.Route], client, v.Limit, v.Delay)
	if err != nil {
		v.Cancel()
		g.refuse(w, r, s, v, err.Decision, nil)
		return false
	}
	defer place.Leave()
	g.counts.delayed.Add(1)
	ctx, stop := whileThere(r.Context())
	defer stop()
	if err := v.Wait(ctx); err != nil {
		g.leave(w, r, s, v, err)
		return false
	}
	return true
}

// enterQueued takes the places of concurrency limits, and unless that comes later, of adaptive limits. A request
// that waits for one counts as queued.
func (g *Gateway) enterQueued(r *http.Request, s *state, v *policy.Verdict, client string, later bool) (at *upstream.Place, err error) {
	switch {
	case !v.Holds(): // enterHolds allocates
		return nil, v.EnterUpstream(r.Context(), nil, nil)
	case later:
		return g.enterHolds(r, s, v, client, func(ctx context.Context, queued func() (context.Context, error), _ policy.EnterUpstream) error {
			return v.EnterPlaces(ctx, queued)
		})
	}
	return g.enterHolds(r, s, v, client, v.EnterUpstream)
}

// enterHolds takes places with a method of the verdict, whose parameters are those of EnterUpstream.
func (g *Gateway) enterHolds(r *http.Request, s *state, v *policy.Verdict, client string, enter func(context.Context, func() (context.Context, error), policy.EnterUpstream) error) (at *upstream.Place, err error) {
	var place policy.QueuePlace
	ctx, stop, end := r.Context(), func() {}, func() {}
	defer func() { end(); stop(); place.Leave() }()
	to := &s.routes[v.Route]
	err = enter(ctx, func() (context.Context, error) {
		if place.Taken() {
			return ctx, nil
		}
		var full *weir.LimitedError
		if place, full = g.join(to, client, v.Limit, 0); full != nil {
			return ctx, full
		}
		ctx, stop = whileThere(ctx)
		ctx, end = to.queued.Within(ctx)
		return ctx, nil
	}, func(ctx context.Context, as adaptive.Request, queued func() (context.Context, error)) (_ policy.UpstreamPlace, err error) {
		if at, err = to.placeAtUpstream(ctx, as, queued); at == nil {
			return nil, err
		}
		return at, nil
	})
	return at, err
}
