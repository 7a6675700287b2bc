// Package httpapi is the limit service over HTTP: limits by name and key in JSON, and hooks for proxies
// that ask before they forward a request.
package httpapi

import (
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/endpoint"
	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/guard"
	"github.com/weirflow/weir/server/hook"
	"github.com/weirflow/weir/server/outstanding"
	"github.com/weirflow/weir/server/policyfile"
)

// name is the word of this face below listen.
const name = "http"

//go:embed openapi.json
var openAPI []byte

// Bounds of requests.
const (
	maxBody  = 1 << 20
	waitTime = time.Minute // the longest delay of a request that a proxy asks about
)

// Kind is the limit service over HTTP as a face.
func Kind() face.Kind { return face.Kind{Name: name, Open: open, Check: Check} }

// A Face answers requests about limits. It is a part of the active policy, which names the file with
// the tokens.
type Face struct {
	*face.HTTP

	policy       *active.Policy
	log          *slog.Logger
	endpoint     *endpoint.Endpoint
	guard        *guard.Guard
	hook         *hook.Decider
	warned       atomic.Int64 // when a misconfigured proxy was logged last
	reservations *outstanding.Table
	places       *outstanding.Places
	clients      *clientLimits
	replays      *replays
	tokens       atomic.Pointer[tokens] // nil within for none
	answers      *prometheus.CounterVec
}

// Check returns what keeps the service from being served.
func Check(file *policyfile.File) []policyfile.Problem {
	wrong := endpoint.Check(file, name)
	o, ok := file.Policy.Listen.Endpoint(name)
	wrong = append(wrong, checkClientLimits(file, o.HTTP.ClientLimits)...)
	if !ok || file.Untrusted || o.Tokens == "" {
		return wrong
	}
	if _, err := readTokens(file.Beside(o.Tokens), &file.Policy); err != nil {
		wrong = append(wrong, file.Wrong("listen.http.tokens: "+err.Error(), tokensFix, "listen", name, "tokens"))
	}
	return wrong
}

// checkClientLimits returns what is wrong with where the limits of clients are kept.
func checkClientLimits(file *policyfile.File, o policy.ClientLimits) (wrong []policyfile.Problem) {
	if o.Store == "" {
		return nil
	}
	switch i := slices.IndexFunc(file.Policy.Stores, func(s policy.Store) bool { return s.Name == o.Store }); {
	case i >= 0 && file.Policy.Stores[i].Regions != nil:
		wrong = append(wrong, file.Wrong("the store \""+o.Store+"\" has regions, and the limits of clients are not divided between regions", "name a store without regions, or take store out", "listen", name, "client_limits", "store"))
	case i < 0:
		wrong = append(wrong, file.Wrong("there is no store \""+o.Store+"\"", "name one of stores, or take store out", "listen", name, "client_limits", "store"))
	}
	if o.MaxKeys != 0 || o.WhenFull != "" {
		wrong = append(wrong, file.Wrong("max_keys and when_full are about keys in memory, and store keeps them elsewhere", "take them out, or store", "listen", name, "client_limits"))
	}
	return wrong
}

func open(ctx context.Context, h face.Host) (face.Face, error) {
	f := &Face{policy: h.Policy, log: h.Log, hook: hook.NewDecider(h.Log, waitTime), reservations: outstanding.New(outstanding.Options{}), places: outstanding.NewPlaces(outstanding.Options{}), replays: newReplays(time.Now), answers: newAnswers()}
	o, _ := h.Policy.File().Policy.Listen.Endpoint(name)
	f.guard = guard.New(o.Address)
	f.clients = newClientLimits(o.HTTP.ClientLimits, h.Clock)
	if err := h.Policy.Join(ctx, f); err != nil {
		return nil, err
	}
	var err error
	if f.endpoint, err = endpoint.Open(ctx, h, name); err != nil {
		return nil, err
	}
	f.guard.ListensOn(f.endpoint.Address())
	f.endpoint.UseLoops()
	if l, config := f.endpoint.Listener(), f.endpoint.TLS("h2", "http/1.1"); config != nil {
		f.HTTP = face.NewHTTP(tls.NewListener(l, config), f, h.Log)
	} else {
		f.HTTP = face.NewPlainHTTP(l, f, h.Log)
	}
	metrics := []prometheus.Collector{f.answers, reservations(f.reservations), placesHeld(f.places)}
	if f.clients.memory != nil {
		metrics = append(metrics, clientMetrics(f.clients.memory)...)
	}
	for _, m := range metrics {
		err = errors.Join(err, h.Metrics.Register(m))
	}
	return f, err
}

func newAnswers() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_http_answers_total", Help: "Answers of listen.http, by operation and status."}, []string{"operation", "status"})
}

func reservations(t *outstanding.Table) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_http_reservations_open", Help: "Reservations that clients of listen.http have neither settled nor cancelled."},
		func() float64 { return float64(t.Len()) })
}

func placesHeld(p *outstanding.Places) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_http_places_held", Help: "Requests that clients of listen.http have entered and not left."},
		func() float64 { return float64(p.Len()) })
}

// Prepare reads the tokens of the next policy.
func (f *Face) Prepare(_ context.Context, _ *active.Snapshot, next active.Candidate) (active.Change, error) {
	o, _ := next.File.Policy.Listen.Endpoint(name)
	if o.Tokens == "" {
		return &change{f, nil}, nil
	}
	t, err := readTokens(next.File.Beside(o.Tokens), &next.File.Policy)
	if err != nil {
		return nil, &policyfile.InvalidError{Problems: []policyfile.Problem{next.File.Wrong("listen.http.tokens: "+err.Error(), tokensFix, "listen", name, "tokens")}}
	}
	return &change{f, t}, nil
}

// change is a face that is prepared for another policy.
type change struct {
	face   *Face
	tokens *tokens
}

// Commit puts the tokens in force.
func (c *change) Commit(*active.Snapshot) { c.face.tokens.Store(c.tokens) }

// Discard has nothing to give back.
func (c *change) Discard() {}

// Tick reads certificates and tokens again whose files have changed, and ends expired reservations and places.
func (f *Face) Tick() {
	f.endpoint.Tick()
	f.reservations.Sweep()
	f.places.Sweep()
	f.replays.sweep()
	file := f.policy.File()
	o, _ := file.Policy.Listen.Endpoint(name)
	old := f.tokens.Load()
	if o.Tokens == "" || old == nil {
		return
	}
	switch t, err := readTokens(file.Beside(o.Tokens), &file.Policy); {
	case err != nil && old.failed != err.Error():
		f.log.Error("tokens not reloaded: the old ones stay valid", "listen", name, "error", err)
		again := *old
		again.failed = err.Error()
		f.tokens.CompareAndSwap(old, &again)
	case err == nil && t.sum != old.sum && f.tokens.CompareAndSwap(old, t):
		f.log.Info("tokens reloaded", "listen", name, "tokens", len(t.byHash))
	}
}

// Leave has clients send their next requests to the new process, which serves at the same address.
func (f *Face) Leave(replaced bool) {
	if replaced {
		f.Retire()
	}
}

// Shutdown lets requests in flight end, and what they have left to do in the background.
func (f *Face) Shutdown(ctx context.Context) error {
	err := f.HTTP.Shutdown(ctx)
	f.places.Close()
	f.reservations.Close(ctx)
	return err
}

// Close ends all at once.
func (f *Face) Close() error {
	err := f.HTTP.Close()
	f.places.Close()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	f.reservations.Close(ended)
	return err
}

// operation is a call of the API, with the scope that it needs.
type operation struct {
	method, scope string
	serve         func(*Face, *call) (any, error)
}

// operationOf returns the operation with a path; false for none.
func operationOf(path string) (operation, bool) {
	post, get := http.MethodPost, http.MethodGet
	switch path {
	case "/v1/take":
		return operation{post, "take", (*Face).take}, true
	case "/v1/peek":
		return operation{post, "peek", (*Face).peek}, true
	case "/v1/reserve":
		return operation{post, "reserve", (*Face).reserve}, true
	case "/v1/settle":
		return operation{post, "reserve", (*Face).settle}, true
	case "/v1/cancel":
		return operation{post, "reserve", (*Face).cancel}, true
	case "/v1/enter":
		return operation{post, "enter", (*Face).enter}, true
	case "/v1/leave":
		return operation{post, "enter", (*Face).leave}, true
	case "/v1/charge":
		return operation{post, "charge", (*Face).charge}, true
	case "/v1/batch":
		return operation{post, "", (*Face).batch}, true // each call in it needs its own scope
	case "/v1/usage":
		return operation{get, "usage", (*Face).usage}, true
	case "/v1/explain":
		return operation{get, "usage", (*Face).explain}, true
	}
	return operation{}, false
}

// Values of header fields, which nobody changes.
var noSniff, noStore, typeText = []string{"nosniff"}[:1:1], []string{"no-store"}[:1:1], []string{"text/plain; charset=utf-8"}[:1:1]

// ServeHTTP answers one request.
func (f *Face) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["X-Content-Type-Options"], h["Cache-Control"] = noSniff, noStore
	if kind, target := hookOf(r); kind != hookNone {
		f.serveHook(w, r, kind, target)
		return
	}
	switch r.URL.Path {
	case "/openapi.json":
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openAPI)
		return
	case "/healthz":
		h["Content-Type"] = typeText
		_, _ = w.Write([]byte("ok\n"))
		return
	}
	op, ok := operationOf(r.URL.Path)
	if !ok || r.Method != op.method {
		f.noOperation(w, r)
		return
	}
	c := &call{face: f, r: r, engine: f.policy.Engine()}
	status, body := f.perform(c, w, op.scope, op.serve)
	f.answers.WithLabelValues(strings.TrimPrefix(r.URL.Path, "/v1/"), statusText(status)).Inc()
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have left
}

// noOperation answers a request to another path, or with another method.
func (f *Face) noOperation(w http.ResponseWriter, r *http.Request) {
	p := &problem{Status: http.StatusNotFound, Detail: "there is nothing here: the operations are in /openapi.json"}
	if op, ok := operationOf(r.URL.Path); ok {
		w.Header().Set("Allow", op.method)
		p = &problem{Status: http.StatusMethodNotAllowed, Detail: "send it with " + op.method}
	}
	status, body := p.encode(w.Header())
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
