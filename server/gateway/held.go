package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/policy"
)

// held counts the requests of a route that wait in queues, and bounds them: of all clients, and of each.
type held struct {
	all     *weir.ConcurrencyLimiter
	clients *keyed.Concurrency[string] // nil for no bound
}

// defaultHeld is how many requests of a route may wait, unless the policy says. Each keeps a connection, or a stream of one.
const defaultHeld = 10000

// heldBy returns who is held of a route, nil where the state or the route is not there.
func (s *state) heldBy(match string) *held {
	if s == nil {
		return nil
	}
	for i, r := range s.file.Policy.Routes {
		if r.Match == match {
			return s.routes[i].held
		}
	}
	return nil
}

// newHeld bounds who is held; old goes on counting where it is there.
func newHeld(w policy.Waiting, old *held) *held {
	bound := weir.Concurrency{Limit: defaultHeld}
	if w.Max > 0 {
		bound.Limit = int64(w.Max)
	}
	h := &held{}
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

// holding is a request's place among those that are held.
type holding struct {
	all    weir.Hold
	client keyed.Hold[string]
	taken  bool
}

func (h *holding) release() {
	if !h.taken {
		return
	}
	h.all.Done(weir.OK)
	h.client.Done(weir.OK)
}

// take counts a request that is to wait, or refuses it where as many wait as may. delay is how long the wait would be, 0 where that is not known.
func (h *held) take(g *Gateway, client, limit string, delay time.Duration) (p holding, full *weir.LimitedError) {
	full = &weir.LimitedError{Decision: weir.Decision{RetryAfter: max(delay, time.Second), By: limit}}
	if h.clients != nil {
		hold, d := h.clients.TryEnter(client)
		if !d.Allowed {
			g.counts.turnedAway.Add(1)
			return p, full
		}
		p.client = hold
	}
	all, d := h.all.TryEnter()
	if !d.Allowed {
		p.client.Done(weir.OK)
		g.counts.turnedAway.Add(1)
		return p, full
	}
	p.all, p.taken = all, true
	return p, nil
}

// Held returns how many requests wait in queues now.
func (g *Gateway) Held() (n int) {
	for _, r := range g.state.Load().routes {
		n += int(r.held.all.Holding())
	}
	return n
}

// wait holds a request until its turn. It reports false where the request was answered instead.
func (g *Gateway) wait(w http.ResponseWriter, r *http.Request, s *state, v *policy.Verdict, client string) bool {
	place, err := s.routes[v.Route].held.take(g, client, v.Limit, v.Delay)
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

// enterHeld takes the places that limits of concurrency ask for; a request that waits for one is held meanwhile.
func (g *Gateway) enterHeld(r *http.Request, s *state, v *policy.Verdict, client string) error {
	var place holding
	ctx, stop := r.Context(), func() {}
	defer func() { stop(); place.release() }()
	return v.EnterQueued(ctx, func() (context.Context, error) {
		if place.taken {
			return ctx, nil
		}
		var full *weir.LimitedError
		if place, full = s.routes[v.Route].held.take(g, client, v.Limit, 0); full != nil {
			return ctx, full
		}
		ctx, stop = whileThere(ctx)
		return ctx, nil
	})
}
