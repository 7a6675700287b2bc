package gateway

import (
	"context"
	"net/http"

	"github.com/weirflow/weir/internal/refusal"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/server/upstream"
)

// newRoute compiles a route.
func (g *Gateway) newRoute(file *policyfile.File, r *policy.Route, old *state) route {
	c := route{
		fields:  r.AddHeaders,
		refused: g.newRefusal(file, r, r.Refused),
		queued:  policy.NewQueue(r.Waiting, old.queueOf(r.Match)),
		hold:    holdTime(file, r),
	}
	if r.Respond.IsSet() {
		c.respond = newResponse(r.Respond, file.Bodies)
	} else {
		c.forward = g.newForwarder(file, r, r.Upstream, max(r.Refused.Stale, r.Failed.Stale))
	}
	if r.Failed != (policy.Refused{}) {
		failed := g.newRefusal(file, r, r.Failed)
		c.failed = &failed
	}
	c.apart = map[string]*fallbackResponse{}
	for name, refused := range file.Policy.RefusedBy(r) {
		own := g.newRefusal(file, r, refused)
		c.apart[name] = &own
	}
	return c
}

// newRefusal compiles the response to refused requests, or to those whose upstream failed.
func (g *Gateway) newRefusal(file *policyfile.File, route *policy.Route, r policy.Refused) fallbackResponse {
	f := fallbackResponse{
		Response: refusal.Of(r, route.Limits, file.Bodies),
		stale:    r.Stale,
		upstream: route.Upstream,
		own:      r.Status == 0 && r.Redirect == "",
		plain:    r.Body == "" && r.File == "" && r.Redirect == "",
	}
	if r.Upstream != "" {
		f.other = g.newForwarder(file, route, r.Upstream, 0)
	}
	return f
}

// enter takes the places of the concurrency limits of a route, and unless that comes later, of adaptive limits.
// It reports false if the request was refused. place is that at the upstream; nil for none.
func (g *Gateway) enter(w http.ResponseWriter, r *http.Request, s *state, v *policy.Verdict, client string, later bool) (place *upstream.Place, ok bool) {
	logged := len(v.Events())
	place, err := g.enterQueued(r, s, v, client, later)
	g.logEventsFrom(v, logged)
	if err != nil {
		g.leave(w, r, s, v, err)
	}
	return place, err == nil
}

// logEventsFrom logs what limits did since there were so many events.
func (g *Gateway) logEventsFrom(v *policy.Verdict, logged int) {
	if events := v.Events(); len(events) > logged {
		g.logEvents(events[logged:])
	}
}

// logEvents logs what limits did whose `log` asks for it: in nginx's words, and without the client.
func (g *Gateway) logEvents(events []policy.Event) {
	for _, e := range events {
		g.log.Log(context.Background(), e.LogLevel(), e.String(), "limit", e.Limit)
	}
}
