package weircaddy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// An App is what all handlers of a configuration share: stores, and limits that they name. It need
// not be configured: handlers can define their limits themselves.
type App struct {
	// Policy has the fields stores, limits, plans and headers of a policy file.
	Policy json.RawMessage `json:"policy,omitempty"`

	ctx    caddy.Context
	log    *zap.Logger
	shared *node // Policy

	mu      sync.Mutex
	defined map[string]*node // all limits, with those of handlers, by name
	names   []string         // of defined, in the order in which they came
	parts   map[string]*part // by the path of the policy file; the empty one is the configuration itself
}

// CaddyModule implements caddy.Module.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "weir", New: func() caddy.Module { return new(App) }}
}

// appFields are the fields of a policy that handlers can share. The rest of a policy file is for
// weir serve.
var appFields = []string{"stores", "limits", "plans", "headers"}

// Provision reads and checks what handlers share.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx, a.log = ctx, ctx.Logger()
	a.defined, a.parts = map[string]*node{}, map[string]*part{}
	a.shared = &node{kind: isMap}
	if len(a.Policy) > 0 {
		var err error
		if a.shared, err = fromJSON("", "", a.Policy); err != nil {
			return fmt.Errorf("weir: policy: %w", err)
		}
	}
	if err := checkApp(a.shared); err != nil {
		return err
	}
	for _, l := range a.shared.get("limits").all() {
		a.defined[l.name] = l
		a.names = append(a.names, l.name)
	}
	return nil
}

// all returns the fields of a map; nil for none.
func (n *node) all() []*node {
	if n == nil {
		return nil
	}
	return n.fields
}

// checkApp checks what handlers share, without the handlers.
func checkApp(shared *node) error {
	for _, f := range shared.fields {
		if !slices.Contains(appFields, f.name) {
			return fmt.Errorf("%s: weir has no %q here: it takes %s", f.from, f.name, strings.Join(appFields, ", "))
		}
	}
	if len(shared.fields) == 0 {
		return nil
	}
	return composed(shared, shared.get("limits").all(), nil).checkStores()
}

// define adds a handler's own limit. Handlers may define the same limit, as an imported snippet does,
// and share it then.
func (a *App) define(l *node) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.defined[l.name]
	if old == nil {
		a.defined[l.name] = l
		a.names = append(a.names, l.name)
		return nil
	}
	was, _ := old.MarshalJSON()
	is, _ := l.MarshalJSON()
	if !bytes.Equal(was, is) {
		return fmt.Errorf("the limit %q is defined in several places, and differently: give each a name of its own", l.name)
	}
	return nil
}

// limits returns all limits.
func (a *App) limits() (all []*node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range a.names {
		all = append(all, a.defined[name])
	}
	return all
}

// part returns what decides by a policy file, or, with an empty path, by the configuration.
func (a *App) part(path string) (*part, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.parts[path]; p != nil {
		return p, nil
	}
	value, _, err := processes.LoadOrNew(path, func() (caddy.Destructor, error) { return newProcess(), nil })
	if err != nil {
		return nil, err
	}
	p := &part{app: a, path: path, process: value.(*process)}
	a.parts[path] = p
	registry := a.ctx.GetMetricsRegistry()
	if registry == nil {
		return p, nil
	}
	return p, prometheus.WrapRegistererWith(prometheus.Labels{"policy": p.label()}, registry).Register(metrics{p.process})
}

// Start puts the limits in force.
func (a *App) Start() error {
	var errs []error
	all := a.every()
	for _, p := range all {
		errs = append(errs, p.activate())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, p := range all {
		p.process.settle()
	}
	return nil
}

func (a *App) every() (parts []*part) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.parts {
		parts = append(parts, p)
	}
	return parts
}

// Stop does nothing: requests may still be in flight until Cleanup.
func (a *App) Stop() error { return nil }

// Cleanup ends what this configuration uses. What the next configuration uses too goes on.
func (a *App) Cleanup() error {
	var errs []error
	for _, p := range a.every() {
		p.release()
		_, err := processes.Delete(p.path)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Interface guards.
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
