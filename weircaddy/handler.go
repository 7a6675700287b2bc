package weircaddy

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/weirflow/weir/weirhttp"
)

// A Handler applies limits to the requests that reach it: all of them are charged, or none.
type Handler struct {
	// PolicyFile is a policy file, whose routes apply to the requests that reach the handler, and which
	// is read again when it changes. Default: the limits of this configuration.
	PolicyFile string `json:"policy_file,omitempty"`

	// Limits are the names of the limits that apply. Default: those of Define, in the order of their names.
	Limits []string `json:"limits,omitempty"`

	// Define has limits by name, as a policy file has them. Keys may have placeholders.
	Define map[string]json.RawMessage `json:"define,omitempty"`

	// Refused and Waiting are those of a route of a policy file. Default: refused requests are an error of
	// status 429 for handle_errors, as they are for routes of PolicyFile without refused.
	Refused json.RawMessage `json:"refused,omitempty"`
	Waiting json.RawMessage `json:"waiting,omitempty"`

	guard guard
}

// CaddyModule implements caddy.Module.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.weir", New: func() caddy.Module { return new(Handler) }}
}

// Provision checks the limits. They are in force when all of the configuration is.
func (h *Handler) Provision(ctx caddy.Context) error {
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	if h.PolicyFile != "" {
		return h.provisionFile(ctx, app)
	}
	own, err := h.own()
	if err != nil {
		return err
	}
	if h.Limits == nil {
		for _, l := range own {
			h.Limits = append(h.Limits, l.name)
		}
	}
	limits, err := resolve(h.Limits, own, app.shared)
	if err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	for _, l := range own {
		if err := app.define(l); err != nil {
			return err
		}
	}
	settings, err := h.settings()
	if err != nil {
		return err
	}
	return h.guard.provision(ctx, app, h.Limits, limits, settings)
}

// own returns the limits that the handler defines, in the order of their names.
func (h *Handler) own() (limits []*node, err error) {
	for _, name := range slices.Sorted(maps.Keys(h.Define)) {
		l, err := fromJSON(name, "define."+name, h.Define[name])
		if err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// appOf returns the app, which need not be configured.
func appOf(ctx caddy.Context) (*App, error) {
	app, err := ctx.App("weir")
	if err != nil {
		return nil, err
	}
	return app.(*App), nil
}

// settings returns what the handler says as a route of a policy says it.
func (h *Handler) settings() (*node, error) {
	route := &node{kind: isMap}
	for _, f := range []struct {
		name string
		data json.RawMessage
	}{{"refused", h.Refused}, {"waiting", h.Waiting}} {
		if len(f.data) == 0 {
			continue
		}
		n, err := fromJSON(f.name, f.name, f.data)
		if err != nil {
			return nil, err
		}
		route.fields = append(route.fields, n)
	}
	return route, nil
}

// provisionFile is Provision for a policy file.
func (h *Handler) provisionFile(ctx caddy.Context, app *App) error {
	if len(h.Define) > 0 || len(h.Limits) > 0 || len(h.Refused) > 0 || len(h.Waiting) > 0 {
		return fmt.Errorf("weir: with a policy file, its routes say which limits apply: write limits, refused and waiting there")
	}
	path, err := filepath.Abs(h.PolicyFile)
	if err != nil {
		return err
	}
	file, err := loadFile(path)
	if err != nil {
		return err
	}
	h.guard.log, h.guard.raises = ctx.Logger(), true
	h.guard.place.options = h.guard.options
	if err := weirhttp.CheckPolicy(&file.Policy, h.guard.options(-1)...); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return h.guard.join(app, path)
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return h.guard.serve(w, r, next)
}

// A guard is a place in the chain of handlers where limits apply.
type guard struct {
	part    *part
	place   place
	log     *zap.Logger
	raises  bool // refused requests are errors for handle_errors, unless a route says how to respond
	refused func(w http.ResponseWriter, r *http.Request, m weirhttp.Response)
}

// provision checks limits of the configuration, and joins its part.
func (g *guard) provision(ctx caddy.Context, app *App, names []string, limits []*node, settings *node) error {
	if len(names) == 0 {
		return fmt.Errorf("weir: no limit applies here: name one, or define it")
	}
	g.log, g.raises = ctx.Logger(), settings.get("refused") == nil
	g.place.route, g.place.options = routeOf(names, settings), g.options
	t := composed(app.shared, limits, []*node{g.place.route})
	file, err := t.parse()
	if err != nil {
		return err
	}
	for _, warning := range t.warnings(file) {
		g.log.Warn(warning)
	}
	if err := weirhttp.CheckPolicy(&file.Policy, g.options(0)...); err != nil {
		return err
	}
	return g.join(app, "")
}

func (g *guard) join(app *App, path string) (err error) {
	if g.part, err = app.part(path); err != nil {
		return err
	}
	g.part.add(&g.place)
	return nil
}

// options are those of the middleware: requests are seen as Caddy sees them. route is below 0 for the
// routes of a policy file.
func (g *guard) options(route int) []weirhttp.Option {
	options := []weirhttp.Option{weirhttp.Client(clientOf), weirhttp.Values(valuesOf), weirhttp.Log(zapped(g.log)), weirhttp.PassUnmatched()}
	if route >= 0 {
		options = append(options, weirhttp.Route(route))
	}
	if g.raises {
		options = append(options, weirhttp.RefusedByDefault(http.HandlerFunc(refuse)))
	}
	return options
}

// refusedVar is where refuse leaves the decision about a request.
const refusedVar = "weir.refused"

// refuse leaves the decision for serve, which turns it into an error.
func refuse(_ http.ResponseWriter, r *http.Request) {
	m, _ := weirhttp.ResponseFrom(r.Context())
	caddyhttp.SetVar(r.Context(), refusedVar, &m)
}

// serve evaluates the limits.
func (g *guard) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	g.part.process.begin()
	defer g.part.process.end()
	limit := g.place.limit.Load()
	if limit == nil {
		if err := g.part.activate(); err != nil {
			return caddyhttp.Error(http.StatusInternalServerError, err)
		}
		limit = g.place.limit.Load()
	}
	var err error
	passed := false
	(*limit)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		passed = true
		err = next.ServeHTTP(w, r)
	})).ServeHTTP(w, r)
	if passed || !g.raises {
		return err
	}
	m, ok := caddyhttp.GetVar(r.Context(), refusedVar).(*weirhttp.Response)
	if !ok || m == nil {
		return err // another response was written, such as 400 for a cost that is no number
	}
	caddyhttp.SetVar(r.Context(), refusedVar, nil)
	return g.raise(w, r, m)
}

// raise returns the error for a refused request. Placeholders say more of it.
func (g *guard) raise(w http.ResponseWriter, r *http.Request, m *weirhttp.Response) error {
	if replacer, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		replacer.Set("http.weir.limit", m.Limit)
		replacer.Set("http.weir.retry_after", retryAfter(m.Decision.RetryAfter))
	}
	if g.refused != nil {
		g.refused(w, r, *m)
	}
	status := http.StatusTooManyRequests
	if s, ok := (*g.place.status.Load())[m.Limit]; ok {
		status = s
	}
	return caddyhttp.Error(status, fmt.Errorf("the limit %s refused the request", m.Limit))
}

// retryAfter returns a time in whole seconds, rounded up; empty for never.
func retryAfter(d time.Duration) string {
	if d < 0 {
		return ""
	}
	return strconv.FormatInt(int64((max(d, time.Nanosecond)+time.Second-1)/time.Second), 10)
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
