// Package admin is what operators and their tools see of a server: whether it lives, whether it is
// ready, its metrics, a dashboard, and an API that changes it.
package admin

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/dashboard"
	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/policymetrics"
)

// An Admin answers /healthz, /readyz and /metrics, the API below /v1/, and the dashboard at /. Everything
// else is 404.
// It is a part of the active policy, which names the files of its token and its certificate.
type Admin struct {
	policy   *active.Policy
	log      *slog.Logger
	mux      *http.ServeMux
	ready    func() bool
	registry *prometheus.Registry
	access   *access
	pages    *dashboard.Pages
	previews previews
	secrets  atomic.Pointer[secrets]
	replaced atomic.Bool   // another process serves the address
	ending   chan struct{} // closed when the server shuts down: streams end
}

// Kind is the admin pages and the API as a face.
func Kind() face.Kind { return face.Kind{Name: "admin", Open: open, Check: Check} }

func open(ctx context.Context, h face.Host) (face.Face, error) {
	address := h.Policy.File().Policy.Listen.Admin
	a, err := newAdmin(ctx, h, address)
	if err != nil {
		return nil, err
	}
	l, err := h.Listen(address)
	if err != nil {
		return nil, err
	}
	return &pages{HTTP: face.NewHTTP(a.secured(l), a, h.Log), admin: a}, nil
}

// pages is the face of an Admin: a shutdown ends the streams of clients that would never leave.
type pages struct {
	*face.HTTP
	admin *Admin
	once  sync.Once
}

// Leave ends the streams. Where the process was replaced, clients send their next requests to the new one; what they
// want changed, this one no longer changes.
func (p *pages) Leave(replaced bool) {
	p.end()
	if replaced {
		p.admin.replaced.Store(true)
		p.Retire()
	}
}

// Shutdown ends the streams, too: not every shutdown begins with Leave.
func (p *pages) Shutdown(ctx context.Context) error {
	p.end()
	return p.HTTP.Shutdown(ctx)
}

func (p *pages) end() { p.once.Do(func() { close(p.admin.ending) }) }

// newAdmin returns the admin pages for an address as the policy writes it. A store that is
// unavailable makes the server no less ready: limits go on without it, as the policy says.
func newAdmin(ctx context.Context, h face.Host, address string) (*Admin, error) {
	a := &Admin{policy: h.Policy, log: h.Log, mux: http.NewServeMux(), ready: h.Ready, registry: h.Metrics, access: newAccess(address), ending: make(chan struct{})}
	var err error
	if a.pages, err = dashboard.New(); err != nil {
		return nil, err
	}
	if err := h.Policy.Join(ctx, a); err != nil {
		return nil, err
	}
	for _, c := range []prometheus.Collector{
		policymetrics.Collector{Policy: h.Policy}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo(),
	} {
		if err := a.registry.Register(c); err != nil {
			return nil, err
		}
	}
	a.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	a.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !a.ready() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
		for _, s := range a.policy.StoreStats() { // which make the server no less ready
			switch down := s.Unavailable(); {
			case down == 0:
			case s.Shards == 1:
				fmt.Fprintf(w, "store %s: unavailable\n", s.Name)
			default:
				fmt.Fprintf(w, "store %s: %d of %d shards unavailable\n", s.Name, down, s.Shards)
			}
			if !s.SteppedAt.IsZero() {
				fmt.Fprintf(w, "store %s: its clock stepped back, last seen %v ago\n", s.Name, time.Since(s.SteppedAt).Round(time.Second))
			}
		}
	})
	a.mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}))
	return a, a.addAPI()
}

// ServeHTTP serves a page. Everybody may know whether the server lives. Every other page is kept from
// web pages of other origins, and all but /readyz want the token, where there is one. The files of the
// dashboard are sent without it, as they hold nothing of the server: the page asks for the token. But
// who sends a wrong one gets nothing. A preview of a page needs none either: its address is a secret.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var p *problem
	isPage := a.pages.Has(r.URL.Path)
	switch {
	case r.URL.Path == "/healthz":
	case r.URL.Path == "/readyz", isPage && r.Header["Authorization"] == nil:
		p = a.access.foreign(r)
	case strings.HasPrefix(r.URL.Path, previewPrefix) && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		if one := a.previews.of(r.URL.Path); one != nil {
			if p = a.access.foreign(r); p == nil {
				one.serve(w)
				return
			}
			break
		}
		p = a.access.refuse(r)
	default:
		p = a.access.refuse(r)
	}
	if l := a.secrets.Load().audit; l != nil && isAudited(r) {
		a.audit(l, w, r, p == nil, func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, p, isPage) })
		return
	}
	a.serve(w, r, p, isPage)
}

// serve serves a request, or refuses it because of a problem.
func (a *Admin) serve(w http.ResponseWriter, r *http.Request, p *problem, isPage bool) {
	if p != nil {
		p.write(w)
		return
	}
	if a.replaced.Load() && r.Method != http.MethodGet && r.Method != http.MethodHead {
		(&problem{Title: "replaced", Status: http.StatusServiceUnavailable, Detail: "another process has taken over: send the request again"}).write(w)
		return
	}
	if isPage {
		a.pages.ServeHTTP(w, r)
		return
	}
	a.mux.ServeHTTP(w, r)
}
