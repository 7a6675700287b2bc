package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir/internal/duration"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/guard"
	"github.com/weirflow/weir/server/policyfile"
)

// api is the part of the admin pages that changes a running server.
type api struct {
	*Admin
	tags    *tags
	changes *prometheus.CounterVec
	// held by the preview that is being made
	previewing sync.Mutex
	calls      map[string]map[string]call // by path and method
}

// call answers a request, or returns what is wrong with it.
type call func(w http.ResponseWriter, r *http.Request) error

const (
	// bytes: one more than a policy file may have, so that the error is that of a file
	maxPolicy  = 1<<20 + 1
	maxRequest = 64 << 10
)

// addAPI adds the API to the pages.
func (a *Admin) addAPI() error {
	p := &api{Admin: a, tags: newTags(), changes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_admin_changes_total", Help: "Changes requested through the API, by kind and result.",
	}, []string{"change", "result"})}
	for _, change := range []string{"policy", "reload", "ban", "grant", "lift", "reset", "promote"} {
		for _, result := range []string{"ok", "failed"} {
			p.changes.WithLabelValues(change, result)
		}
	}
	p.calls = map[string]map[string]call{
		"/v1/status":    {"GET": p.status},
		"/v1/policy":    {"GET": p.show, "PUT": p.put},
		"/v1/reload":    {"POST": p.reload},
		"/v1/overrides": {"GET": p.overrides},
		"/v1/ban":       {"POST": p.except("ban")},
		"/v1/grant":     {"POST": p.except("grant")},
		"/v1/lift":      {"POST": p.lift},
		"/v1/usage":     {"GET": p.usage},
		"/v1/decisions": {"GET": p.watch},
		"/v1/candidate": {"GET": p.showCandidate},
		"/v1/promote":   {"POST": p.promote},
		"/v1/live":      {"GET": p.live},
		"/v1/keys":      {"GET": p.keys},
		"/v1/explain":   {"GET": p.explain},
		"/v1/reset":     {"POST": p.reset},
		"/v1/rooms":     {"GET": p.rooms},

		"/v1/usage/export":   {"GET": p.exportUsage},
		"/v1/policy/preview": {"POST": p.preview},
		"/v1/rooms/preview":  {"POST": p.previewRoom},
	}
	a.mux.Handle("/v1/", p)
	return errors.Join(a.registry.Register(p.changes), a.registry.Register(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "weir_overrides", Help: "Bans and grants in force."},
		func() float64 { return float64(len(a.policy.Engine().Overrides())) })))
}

// ServeHTTP answers a request whom the guard has let in.
func (p *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	methods, ok := p.calls[r.URL.Path]
	do := methods[strings.Replace(r.Method, "HEAD", "GET", 1)]
	var err error
	switch {
	case !ok:
		err = &problem{Status: http.StatusNotFound, Detail: "there is no such page: see docs/admin.md"}
	case do == nil:
		var allowed []string
		for m := range methods {
			allowed = append(allowed, m)
		}
		slices.Sort(allowed)
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		err = &problem{Status: http.StatusMethodNotAllowed, Detail: "ask with " + strings.Join(allowed, " or ")}
	default:
		err = do(w, r)
	}
	if err != nil {
		problemOf(err).write(w)
	}
}

func (p *api) status(w http.ResponseWriter, _ *http.Request) error {
	now := p.policy.Status()
	from := "file"
	if now.FromAPI {
		from = "api"
	}
	stores := []storeJSON{}
	for _, s := range p.policy.StoreStats() {
		stores = append(stores, storeOf(s))
	}
	answer(w, http.StatusOK, "application/json", map[string]any{
		"stores": stores,
		"file":   now.File.Path, "from": from, "since": now.Since.UTC().Format(time.RFC3339), "etag": p.tags.of(now.File.Data),
		"limits": len(now.File.Policy.Limits), "routes": len(now.File.Policy.Routes), "overrides": len(p.policy.Engine().Overrides()),
	})
	return nil
}

// storeOf is a store as the API tells it.
func storeOf(s active.Store) storeJSON {
	one := storeJSON{Name: s.Name, Connected: s.Connected, Shards: s.Shards, Unavailable: s.Unavailable()}
	if s.Shards > 1 {
		for i, name := range s.Down[:min(len(s.Down), mostDown)] {
			one.Down = append(one.Down, shardJSON{name, errorText(s.Causes[i])})
		}
	}
	one.Error = errorText(s.Cause)
	return one
}

// storeJSON is a store of the active policy.
type storeJSON struct {
	Name        string      `json:"name"`
	Connected   bool        `json:"connected"` // since it was opened
	Shards      int         `json:"shards"`
	Unavailable int         `json:"unavailable"`     // how many of them
	Down        []shardJSON `json:"down,omitempty"`  // the first of them, where the store has several
	Error       string      `json:"error,omitempty"` // why they are unavailable: the latest error
}

// shardJSON is a shard that is unavailable.
type shardJSON struct {
	Shard string `json:"shard"`
	Error string `json:"error,omitempty"` // the latest of a call or a probe
}

// Bounds on what a response says of stores that are down.
const (
	mostDown  = 32  // shards
	longError = 600 // bytes of one error
)

// errorText returns an error, cut if it is long; "" for none.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	text := strings.ToValidUTF8(err.Error(), "?")
	if len(text) > longError {
		text = strings.ToValidUTF8(text[:longError], "") + "..."
	}
	return text
}

func (p *api) show(w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get("Accept") == "application/yaml" {
		if sent, err := p.source(w); sent || err != nil {
			return err
		}
	}
	now := p.policy.Status()
	text, err := now.File.Published()
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("ETag", p.tags.of(now.File.Data))
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(text)
	return nil
}

// put takes a policy.
func (p *api) put(w http.ResponseWriter, r *http.Request) error {
	dry, err := flag(r, "dry_run")
	if err != nil {
		return err
	}
	save, err := flag(r, "save")
	if err != nil {
		return err
	}
	if !guard.IsTyped(r, "application/yaml", "application/json") {
		return &problem{Status: http.StatusUnsupportedMediaType, Detail: "a policy is sent as Content-Type: application/yaml, or application/json"}
	}
	check := p.ifMatch(r, "another policy is in force than the one in If-Match: look at what has changed, and begin with that")
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPolicy))
	if err != nil {
		return bodyError(err)
	}
	if dry {
		if err := check(p.policy.Status().File.Data); err != nil {
			return err
		}
		plan, err := p.policy.PlanFor(data, p.hasToken())
		return p.tell(w, plan, err, false, false)
	}
	if r.Header.Get("If-Match") == "" {
		return &problem{Status: http.StatusPreconditionRequired, Detail: "say which policy is to be replaced: If-Match with the ETag of GET /v1/policy, or *"}
	}
	plan, err := p.apply(r.Context(), data, save, check)
	p.changed("policy", strings.Join(append([]string{"policy"}, texts(plan)...), "; "), err)
	return p.tell(w, plan, err, true, save)
}

// ifMatch returns what refuses a policy that the If-Match of a request, if it has one, does not name.
func (p *api) ifMatch(r *http.Request, detail string) func(data []byte) error {
	match := r.Header.Get("If-Match")
	return func(data []byte) error {
		if match != "" && match != "*" && !slices.Contains(strings.Split(strings.ReplaceAll(match, " ", ""), ","), p.tags.of(data)) {
			return &problem{Status: http.StatusPreconditionFailed, Detail: detail}
		}
		return nil
	}
}

// apply makes a policy active that was sent. A policy can have files of this machine read, and
// requests sent to wherever it says: so only a caller with a token may send one, also from this
// machine.
func (p *api) apply(ctx context.Context, data []byte, save bool, check func([]byte) error) (active.Plan, error) {
	if !p.hasToken() {
		return active.Plan{}, &problem{Status: http.StatusForbidden,
			Detail: "a policy is taken only with a token: set admin.token_file in the policy file; or change that file, and POST /v1/reload"}
	}
	return p.policy.Apply(ctx, data, save, check)
}

// audit logs what was changed through the API: neither by whom nor whose key.
func (p *api) audit(what string, err error) {
	if err != nil {
		var invalid *policyfile.InvalidError
		if errors.As(err, &invalid) {
			err = fmt.Errorf("the policy is not valid: %d problems", len(invalid.Problems))
		}
		p.log.Warn("admin: not changed", "what", what, "error", err)
		return
	}
	p.log.Info("admin: changed", "what", what)
}

// reload reads the file again.
func (p *api) reload(w http.ResponseWriter, r *http.Request) error {
	dry, err := flag(r, "dry_run")
	if err != nil {
		return err
	}
	if !guard.IsTyped(r, "application/json") {
		return &problem{Status: http.StatusUnsupportedMediaType, Detail: "send Content-Type: application/json, also without a body"}
	}
	if dry {
		plan, err := p.policy.Plan(p.hasToken())
		return p.tell(w, plan, p.ofFile(err), false, false)
	}
	plan, err := p.policy.Reload(r.Context(), "asked to by the API")
	p.changed("reload", strings.Join(append([]string{"reload"}, texts(plan)...), "; "), err)
	if err != nil && !p.hasToken() {
		err = p.withoutFiles(err)
	}
	return p.tell(w, plan, p.ofFile(err), true, false)
}

// ofFile adds the name of the policy file to an error about it. GET /v1/status names it, too.
func (p *api) ofFile(err error) error {
	if err == nil {
		return nil
	}
	of := problemOf(err)
	of.File = p.policy.Status().File.Path
	return of
}

// withoutFiles returns what a caller without a token may know of why a reload failed: what is wrong
// with the policy file itself, and nothing of the files that it names.
func (p *api) withoutFiles(err error) error {
	if _, wrong := p.policy.Plan(false); wrong != nil || errors.Is(err, active.ErrConflict) {
		return cmp.Or(wrong, err)
	}
	return &problem{Status: http.StatusUnprocessableEntity,
		Detail: "the policy cannot be served: the running policy stays active. The log of the server says why; with admin.token_file set, so does this response"}
}

// texts are changes for a line of the log, the first of them.
func texts(p active.Plan) (all []string) {
	const most = 20
	for i, c := range p.Changes {
		if i == most {
			return append(all, fmt.Sprintf("and %d more", len(p.Changes)-most))
		}
		all = append(all, c.String())
	}
	return all
}

func (p *api) tell(w http.ResponseWriter, of active.Plan, err error, applied, saved bool) error {
	if err != nil {
		return err
	}
	out := planOf(of)
	out.Applied, out.Saved, out.ETag = applied, saved, p.tags.of(p.policy.Status().File.Data)
	w.Header().Set("ETag", out.ETag)
	answer(w, http.StatusOK, "application/json", out)
	return nil
}

// changed counts a change and writes it down.
func (p *api) changed(change, what string, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	p.changes.WithLabelValues(change, result).Inc()
	p.audit(what, err)
}

func (p *api) overrides(w http.ResponseWriter, _ *http.Request) error {
	all, now := []override{}, time.Now()
	for _, ex := range p.policy.Engine().Overrides() {
		all = append(all, overrideOf(ex, now))
	}
	answer(w, http.StatusOK, "application/json", map[string]any{"overrides": all})
	return nil
}

// except bans a key, or lets it pass.
func (p *api) except(kind string) call {
	return func(w http.ResponseWriter, r *http.Request) error {
		var in override
		if err := read(w, r, &in); err != nil {
			return err
		}
		d, err := duration.Parse(in.For)
		switch {
		case err != nil:
			return &problem{Status: http.StatusUnprocessableEntity, Detail: fmt.Sprintf("for: %q is not how long it is to hold: write it like 1h or 7d", in.For)}
		case in.Kind != "" || in.Until != "":
			return &problem{Status: http.StatusUnprocessableEntity, Detail: "the path says what it is, and for how long it holds: take kind and until out"}
		}
		ex := policy.Override{Limit: in.Limit, Key: in.Key, Ban: kind == "ban", Set: in.Set, For: d}
		if err := p.policy.Engine().Override(ex); err != nil {
			// what was sent may hold a key
			p.changed(kind, kind+" at a limit", errors.New("refused"))
			return err
		}
		err = p.policy.Keep()
		p.changed(kind, ex.String(), err)
		if err != nil {
			return notKept(err)
		}
		answer(w, http.StatusOK, "application/json", overrideOf(ex, time.Now()))
		return nil
	}
}

func (p *api) lift(w http.ResponseWriter, r *http.Request) error {
	var in override
	if err := read(w, r, &in); err != nil {
		return err
	}
	lifted, err := p.policy.Engine().Lift(in.Limit, in.Key)
	switch {
	case err != nil:
		return err
	case !lifted:
		return &problem{Status: http.StatusNotFound, Detail: "there is neither a ban nor a grant for this key"}
	}
	err = p.policy.Keep()
	p.changed("lift", fmt.Sprintf("a ban or a grant at the limit %q lifted", in.Limit), err)
	if err != nil {
		return notKept(err)
	}
	answer(w, http.StatusOK, "application/json", map[string]any{"lifted": true})
	return nil
}

func notKept(err error) error {
	return &problem{Status: http.StatusInternalServerError, Detail: "it is in force, but would not survive a restart: " + err.Error()}
}

// read reads a request's JSON, all of which has to be known.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	if !guard.IsTyped(r, "application/json") {
		return &problem{Status: http.StatusUnsupportedMediaType, Detail: "send JSON, as Content-Type: application/json"}
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return bodyError(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return bodyError(errors.New("there is text after the JSON"))
	}
	return nil
}

// bodyError is for a body that cannot be read.
func bodyError(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return err
	}
	return &problem{Status: http.StatusBadRequest, Detail: "the body cannot be read: " + strings.TrimPrefix(err.Error(), "json: ")}
}

// flag reads a parameter that is 1 or not there.
func flag(r *http.Request, name string) (bool, error) {
	switch values := r.URL.Query()[name]; {
	case len(values) == 0, len(values) == 1 && (values[0] == "0" || values[0] == "false"):
		return false, nil
	case len(values) == 1 && (values[0] == "1" || values[0] == "true"):
		return true, nil
	}
	return false, &problem{Status: http.StatusBadRequest, Detail: name + " is 1, or is not there"}
}
