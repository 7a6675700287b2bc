package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"

	"github.com/weirflow/weir/policy"
)

// newRoute readies what the requests of a route get.
func newRoute(proxy *httputil.ReverseProxy, r policy.Route, p *policy.Policy, bodies map[string][]byte) route {
	c := route{proxy: proxy, refused: newRefusal(r.Refused, r.Limits, bodies)}
	for _, name := range r.Limits {
		for _, l := range p.Limits {
			if l.Name != name || l.Status == 0 {
				continue
			}
			apart := r.Refused
			apart.Status = l.Status
			if apart.Redirect != "" {
				apart = policy.Refused{Status: l.Status}
			}
			if c.apart == nil {
				c.apart = map[string]refusal{}
			}
			c.apart[name] = newRefusal(apart, r.Limits, bodies)
		}
	}
	return c
}

// enter takes the places that the limits of concurrency of a route ask for. It reports false where the request was answered instead.
func (g *Gateway) enter(w http.ResponseWriter, r *http.Request, s *state, v *policy.Verdict) bool {
	told := len(v.Events())
	err := v.Enter(r.Context())
	if events := v.Events(); len(events) > told {
		g.tell(events[told:])
	}
	if err != nil {
		g.leave(w, r, s, v, err)
	}
	return err == nil
}

// level is one of the log, by its name in a policy. A notice lies between info and warn.
func level(name string) slog.Level {
	switch name {
	case "error":
		return slog.LevelError
	case "warn":
		return slog.LevelWarn
	case "notice":
		return slog.LevelInfo + 2
	}
	return slog.LevelInfo
}

// tell writes a line for each of what limits did whose log asks for it: in nginx's words, and without the client.
func (g *Gateway) tell(events []policy.Event) {
	for _, e := range events {
		g.log.Log(context.Background(), level(e.Level), e.String(), "limit", e.Limit)
	}
}
