package weircaddy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/weirflow/weir/weirhttp"
)

// A RateLimit reads the configuration of mholt/caddy-ratelimit and decides as it does: each zone admits
// at most MaxEvents within any Window (an exact sliding log). Zones are evaluated one after another, the
// tightest first, and an earlier zone stays charged if a later one refuses.
type RateLimit struct {
	// RateLimits are the zones, by name.
	RateLimits map[string]*Zone `json:"rate_limits,omitempty"`

	// Distributed makes several instances share one count, exactly, in a store of the app weir.
	Distributed *Distributed `json:"distributed,omitempty"`

	// Jitter lengthens Retry-After by a random share of at most this, like 0.2.
	Jitter float64 `json:"jitter,omitempty"`

	// LogKey adds the key to the log line of a refused request.
	LogKey bool `json:"log_key,omitempty"`

	// SweepInterval and StorageRaw have no meaning here, and cause a warning.
	SweepInterval caddy.Duration  `json:"sweep_interval,omitempty"`
	StorageRaw    json.RawMessage `json:"storage,omitempty"`

	log   *zap.Logger
	zones []*zone
}

// A Zone limits the requests that it matches, by key.
type Zone struct {
	MatcherSetsRaw caddyhttp.RawMatcherSets `json:"match,omitempty" caddy:"namespace=http.matchers"`
	Key            string                   `json:"key,omitempty"`
	Window         caddy.Duration           `json:"window,omitempty"`
	MaxEvents      int                      `json:"max_events,omitempty"`

	// IPv4Prefix and IPv6Prefix cut keys that are addresses. default: 32 and 128
	IPv4Prefix int `json:"ipv4_prefix,omitempty"`
	IPv6Prefix int `json:"ipv6_prefix,omitempty"`
}

// Distributed says where instances share counts.
type Distributed struct {
	// Store is the name of a store of the app weir. Default: its only store.
	Store string `json:"store,omitempty"`

	// These have no meaning here, as each request is counted in the store, and cause a warning.
	ReadInterval  caddy.Duration `json:"read_interval,omitempty"`
	WriteInterval caddy.Duration `json:"write_interval,omitempty"`
	PurgeAge      caddy.Duration `json:"purge_age,omitempty"`
}

// zone is a Zone that was provisioned.
type zone struct {
	*Zone
	name     string
	matchers caddyhttp.MatcherSets
	guard    guard
}

// CaddyModule implements caddy.Module.
func (*RateLimit) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.rate_limit", New: func() caddy.Module { return new(RateLimit) }}
}

// Provision checks the zones. They are in force when all of the configuration is.
func (h *RateLimit) Provision(ctx caddy.Context) error {
	h.log = ctx.Logger()
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	if err := h.check(); err != nil {
		return err
	}
	store, err := h.store(app.shared)
	if err != nil {
		return err
	}
	h.warn()
	for _, name := range h.inOrder() {
		z := &zone{Zone: h.RateLimits[name], name: name}
		matchers, err := ctx.LoadModule(z.Zone, "MatcherSetsRaw")
		if err != nil {
			return fmt.Errorf("rate_limit: zone %s: %w", name, err)
		}
		if err := z.matchers.FromInterface(matchers); err != nil {
			return fmt.Errorf("rate_limit: zone %s: %w", name, err)
		}
		l := z.limit(store)
		if err := app.define(l); err != nil {
			return fmt.Errorf("rate_limit: %w", err)
		}
		z.guard.refused = h.refused(z)
		if err := z.guard.provision(ctx, app, []string{l.name}, []*node{l}, &node{kind: isMap}); err != nil {
			return fmt.Errorf("rate_limit: %w", err)
		}
		h.zones = append(h.zones, z)
	}
	return nil
}

// check returns what is wrong with the settings.
func (h *RateLimit) check() error {
	if len(h.RateLimits) == 0 {
		return fmt.Errorf("rate_limit: there is no zone: write zone NAME { key {http.request.remote.host}, window 1m, events 100 }, each on a line")
	}
	if h.Jitter < 0 || h.Jitter > 1 {
		return fmt.Errorf("rate_limit: jitter %v is no share: write one from 0 to 1, like 0.2", h.Jitter)
	}
	for name, z := range h.RateLimits {
		switch {
		case z == nil || z.Window <= 0:
			return fmt.Errorf("rate_limit: zone %s has no window: write one like window 1m", name)
		case z.MaxEvents <= 0:
			return fmt.Errorf("rate_limit: zone %s admits nothing: write events 100 (max_events in JSON), or answer with respond 429", name)
		case z.IPv4Prefix < 0 || z.IPv4Prefix > 32:
			return fmt.Errorf("rate_limit: zone %s: ipv4_prefix %d is not within 1 and 32", name, z.IPv4Prefix)
		case z.IPv6Prefix < 0 || z.IPv6Prefix > 128:
			return fmt.Errorf("rate_limit: zone %s: ipv6_prefix %d is not within 1 and 128", name, z.IPv6Prefix)
		}
		if _, err := placeholders(z.Key); err != nil {
			return fmt.Errorf("rate_limit: zone %s: key %w", name, err)
		}
		if _, err := checkPlaceholders(z.Key); err != nil {
			return fmt.Errorf("rate_limit: zone %s: key: %w", name, err)
		}
	}
	return nil
}

// warn names the settings that have no meaning here.
func (h *RateLimit) warn() {
	var without []string
	add := func(is bool, name string) {
		if is {
			without = append(without, name)
		}
	}
	add(h.SweepInterval != 0, "sweep_interval")
	add(len(h.StorageRaw) > 0, "storage")
	if d := h.Distributed; d != nil {
		add(d.ReadInterval != 0, "distributed.read_interval")
		add(d.WriteInterval != 0, "distributed.write_interval")
		add(d.PurgeAge != 0, "distributed.purge_age")
	}
	for _, name := range without {
		h.log.Warn("this setting of rate_limit has no meaning here and is ignored: "+ignored[name], zap.String("setting", name))
	}
	for name, z := range h.RateLimits {
		if warning, _ := checkPlaceholders(z.Key); warning != "" {
			h.log.Warn("key: "+warning, zap.String("zone", name))
		}
		names, _ := placeholders(z.Key)
		if z.IPv6Prefix == 0 && slices.ContainsFunc(names, isAddress) {
			h.log.Warn("each IPv6 address has a counter of its own, and one client usually has 2^64 of them: write ipv6_prefix 64", zap.String("zone", name))
		}
	}
}

// ignored says why a setting has no meaning.
var ignored = map[string]string{
	"sweep_interval":             "memory is bounded, and idle keys are evicted as they become idle",
	"storage":                    "counts are shared in a store of the global option weir",
	"distributed.read_interval":  "each request is counted in the store",
	"distributed.write_interval": "each request is counted in the store",
	"distributed.purge_age":      "keys in the store expire by themselves",
}

func isAddress(name string) bool {
	return name == "http.request.remote.host" || name == "http.vars.client_ip"
}

// store returns the name of the store that the zones are counted in; empty for the memory of this
// process.
func (h *RateLimit) store(shared *node) (string, error) {
	if h.Distributed == nil {
		return "", nil
	}
	stores := shared.get("stores").all()
	switch name := h.Distributed.Store; {
	case name != "" && shared.get("stores").get(name) == nil:
		return "", fmt.Errorf("rate_limit: there is no store %q: add it to the global option weir", name)
	case name != "":
		return name, nil
	case len(stores) == 1:
		return stores[0].name, nil
	case len(stores) > 1:
		return "", fmt.Errorf("rate_limit: distributed does not say which store: write distributed { store %s }", stores[0].name)
	}
	return "", fmt.Errorf("rate_limit: distributed needs a store: add these three lines to the global options:\nweir {\n\tstore shared redis://127.0.0.1:6379/0\n}")
}

// inOrder returns the names of the zones, the tightest first.
func (h *RateLimit) inOrder() []string {
	return slices.SortedFunc(maps.Keys(h.RateLimits), func(a, b string) int {
		x, y := h.RateLimits[a], h.RateLimits[b]
		return cmp.Or(cmp.Compare(float64(x.MaxEvents)/float64(x.Window), float64(y.MaxEvents)/float64(y.Window)), cmp.Compare(a, b))
	})
}

// limitName returns the name of a zone's limit. Names of limits have small letters only; other bytes are
// written as their hexadecimal digits, so that two zones never have one name.
func limitName(zone string) string {
	var b strings.Builder
	for i := range len(zone) {
		c := zone[i]
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if letter || i > 0 && (c == '-' || c == '.') {
			b.WriteByte(c)
			continue
		}
		if i == 0 {
			b.WriteByte('z')
		}
		if c == '_' && i > 0 && !looksEscaped(zone[i:]) {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "_%02x", c)
	}
	return b.String()
}

// looksEscaped reports whether a text begins like a byte that limitName has written.
func looksEscaped(s string) bool {
	return len(s) >= 3 && strings.Trim(s[1:3], "0123456789abcdef") == ""
}

// limit returns the zone as a limit of a policy.
func (z *zone) limit(store string) *node {
	from := "zone " + z.name
	number := func(name string, n int) *node {
		return &node{name: name, from: from, scalar: json.Number(strconv.Itoa(n))}
	}
	log := &node{name: "sliding_log", from: from, kind: isMap, fields: []*node{
		number("limit", z.MaxEvents), {name: "window", from: from, scalar: time.Duration(z.Window).String()},
	}}
	const remembered = 4096 // events that a log remembers by default: in memory it may be all
	if z.MaxEvents > remembered && store == "" {
		log.fields = append(log.fields, number("max_entries", min(z.MaxEvents, 1<<24)))
	}
	l := &node{name: limitName(z.name), from: from, kind: isMap}
	if key := z.key(); len(key.list) > 0 {
		l.fields = append(l.fields, key, &node{name: "on_missing", from: from, scalar: "key"})
	}
	l.fields = append(l.fields, log)
	if store != "" {
		l.fields = append(l.fields, &node{name: "store", from: from, scalar: store})
	}
	return l
}

// key returns the parts of the zone's key.
func (z *zone) key() *node {
	key := &node{name: "key", from: "zone " + z.name, kind: isList}
	names, _ := placeholders(z.Key)
	for _, name := range names {
		part := partOf(name)
		if isAddress(name) {
			part = addressPart(name, cmp.Or(z.IPv4Prefix, 32), cmp.Or(z.IPv6Prefix, 128))
		}
		key.list = append(key.list, &node{from: key.from, scalar: part})
	}
	return key
}

// refused is called when a zone has refused a request: it adds jitter to Retry-After, and logs a
// line.
func (h *RateLimit) refused(z *zone) func(http.ResponseWriter, *http.Request, weirhttp.Response) {
	return func(w http.ResponseWriter, r *http.Request, m weirhttp.Response) {
		wait := m.Decision.RetryAfter
		if h.Jitter > 0 && wait >= 0 {
			wait += time.Duration(float64(wait) * h.Jitter * rand.Float64()) //nolint:gosec // it spreads retries, and decides nothing
			w.Header().Set("Retry-After", retryAfter(wait))
		}
		if replacer, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
			replacer.Set("http.rate_limit.exceeded.name", z.name)
		}
		fields := []zap.Field{zap.String("zone", z.name), zap.Duration("wait", wait), zap.String("remote_ip", remoteIP(r))}
		if h.LogKey {
			fields = append(fields, zap.String("key", keyOf(r, z.Key)))
		}
		h.log.Info("rate limit exceeded", fields...)
	}
}

// keyOf returns a zone's key for a request, as a text.
func keyOf(r *http.Request, key string) string {
	replacer, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return ""
	}
	return replacer.ReplaceAll(key, "")
}

func remoteIP(r *http.Request) string {
	client, _ := clientOf(r)
	return client.String()
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *RateLimit) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return h.serve(0, w, r, next)
}

// serve evaluates the zones from one on.
func (h *RateLimit) serve(from int, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	for i := from; i < len(h.zones); i++ {
		match, err := h.zones[i].matchers.AnyMatchWithError(r)
		if err != nil {
			return err
		}
		if match {
			return h.zones[i].guard.serve(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
				return h.serve(i+1, w, r, next)
			}))
		}
	}
	return next.ServeHTTP(w, r)
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*RateLimit)(nil)
	_ caddyhttp.MiddlewareHandler = (*RateLimit)(nil)
)
