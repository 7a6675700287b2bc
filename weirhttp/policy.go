package weirhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/refusal"
	"github.com/weirflow/weir/policy"
)

// Policy returns a middleware that evaluates the routes and limits of a policy, as the gateway does:
// all limits of a route are charged or none, requests wait in the queues of limits, and hold their
// places of concurrency until the handler has returned or panicked.
//
// The handler takes the place of the upstream. A policy with a setting that a handler cannot carry
// out, such as an upstream, a waiting room or the address of a listener, is an error that names all
// of them. A request that no route matches gets 404, unless PassUnmatched is given. Put the
// middleware in front of routers that change the path.
//
// It takes the options Refused, RefusedByDefault, Observe, InContext, Log, PassUnmatched, Client, Values and Route; the
// policy says the rest.
// Stores are those of policy.Options.Stores. Wrap each with package failover: otherwise, the limits
// of an unavailable store refuse, or with on_failure allow admit.
func Policy(engine *policy.Engine, options ...Option) (func(http.Handler) http.Handler, error) {
	m, err := newPolicing(engine, newSettings(options))
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("weirhttp: Policy of a handler that is nil")
		}
		return &policedHandler{policing: m, next: next}
	}, nil
}

// policing is what the handlers of one middleware share.
type policing struct {
	settings
	engine   *policy.Engine
	routes   []policedRoute
	tells    func(http.Header, []policy.Evaluated)
	trusted  []netip.Prefix
	clientIn string // the header field with the client's address
	// header fields of proxies that the policy reads, which count from trusted proxies alone
	proxied      []string
	unidentified refusal.Response
	bodies       bodyMemory
	shares       policy.BodyShares
	asksHop      bool // some limit exempts by a header field, which only trusted proxies may send
}

// policedRoute is what happens to the requests of a route.
type policedRoute struct {
	refused refusal.Response
	apart   map[string]refusal.Response // by limit, for limits with a status of their own
	own     bool                        // the policy says how to respond
	queue   *policy.Queue
	maxBody int64 // bytes; 0 is no bound
}

// policedHandler is a handler behind a policy.
type policedHandler struct {
	*policing
	next http.Handler
}

func newPolicing(engine *policy.Engine, s settings) (*policing, error) {
	if engine == nil {
		return nil, errors.New("weirhttp: Policy without an engine: make one with policy.New")
	}
	p := engine.Policy()
	if err := errors.Join(slices.Concat(wrongOptions(s), notForHandlers(&p, &s), notInMemory(engine))...); err != nil {
		return nil, err
	}
	if s.routed && (s.route < 0 || s.route >= len(p.Routes)) {
		return nil, fmt.Errorf("weirhttp: Route(%d): the policy has %d routes, counted from 0", s.route, len(p.Routes))
	}
	m := &policing{settings: s, engine: engine, tells: SetRateLimit, trusted: p.TrustedProxies, asksHop: p.AsksHop(), unidentified: refusal.Unidentified(p.Plans.Bearer()),
		clientIn: http.CanonicalHeaderKey(cmp.Or(p.ClientHeader, "X-Forwarded-For"))}
	for _, name := range p.ReadsHeaders() {
		if name == m.clientIn || name == http.CanonicalHeaderKey(p.Priorities.Header) || policy.IsProxyHeader(name) {
			m.proxied = append(m.proxied, name)
		}
	}
	if p.Headers != nil {
		m.tells = SetHeaders(p.Headers...)
	}
	if p.Warns() && (p.Headers == nil || len(p.Headers) > 0) {
		m.tells = WithWarnings(m.tells)
	}
	for i := range p.Routes {
		m.routes = append(m.routes, newPolicedRoute(&p, &p.Routes[i]))
	}
	return m, nil
}

func newPolicedRoute(p *policy.Policy, r *policy.Route) policedRoute {
	c := policedRoute{refused: refusal.Of(r.Refused, r.Limits, nil), own: r.Refused != policy.Refused{}, apart: map[string]refusal.Response{}, queue: policy.NewQueue(r.Waiting, nil), maxBody: max(r.MaxBody, 0)}
	for name, refused := range p.RefusedBy(r) {
		c.apart[name] = refusal.Of(refused, r.Limits, nil)
	}
	return c
}

// ServeHTTP evaluates the limits of a request's route, and passes the request on or refuses it.
func (h *policedHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := h.requestOf(r)
	m := h.match(request)
	if m.Route < 0 && h.unmatched {
		h.next.ServeHTTP(w, r)
		return
	}
	if m.Route >= 0 && h.routes[m.Route].maxBody > 0 && r.ContentLength > h.routes[m.Route].maxBody {
		w.Header().Set("Connection", "close")
		http.Error(w, "the body of this request is too large", http.StatusRequestEntityTooLarge)
		return
	}
	v, r, free, ok := h.decide(w, r, &m, request.Client)
	defer free()
	if !ok {
		return
	}
	outcome := weir.Ignore // nothing is said about the handler until it is called
	defer func() { v.Done(outcome) }()
	h.write(v.Events())
	began := time.Time{}
	switch v.Outcome {
	case policy.NoRoute:
		http.Error(w, "no route matches this request", http.StatusNotFound)
		return
	case policy.Invalid:
		http.Error(w, v.InvalidReason(), http.StatusBadRequest)
		return
	case policy.UnknownCustomer:
		h.report(h.responseTo(&v, v.Decision))
		h.unidentified.WriteUnidentified(w, r)
		return
	case policy.UnverifiedCustomer:
		h.report(h.responseTo(&v, v.Decision))
		refusal.WriteUnverified(w, r)
		return
	case policy.Deny:
		h.refuse(w, r, &v, v.Decision)
		return
	case policy.Left:
		h.end(w, r, &v, v.Err)
		return
	case policy.Delay:
		began = time.Now()
		if err := h.wait(r, &v, request.Client); err != nil {
			h.end(w, r, &v, err)
			return
		}
	}
	if err := h.enter(r, &v, request.Client); err != nil {
		h.end(w, r, &v, err)
		return
	}
	h.pass(w, r, &v, began, &outcome)
}

// requestOf returns what limits see of a request.
func (h *policing) requestOf(r *http.Request) policy.Request {
	client, key, trusted := h.clientOf(r)
	request := policy.Request{
		Method: r.Method, Host: r.Host, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery,
		Client: key, Addr: client, Header: h.believed(r, trusted), Length: r.ContentLength, Trusted: h.asksHop && trusted,
	}
	if h.values != nil {
		request.Values = h.values(r)
	}
	return request
}

// clientOf returns the client's address with its key, and whether a trusted proxy sent the request.
func (h *policing) clientOf(r *http.Request) (client netip.Addr, key string, trusted bool) {
	if h.client != nil {
		client, trusted = h.client(r)
		return client, policy.ClientKey(client), trusted
	}
	client, key = ClientKeyFrom(r, h.trusted, h.clientIn)
	return client, key, (h.asksHop || len(h.proxied) > 0) && Trusted(r, h.trusted)
}

// match finds the route of a request, unless all requests have the same one.
func (h *policing) match(request policy.Request) policy.Match {
	if h.routed {
		return h.engine.MatchRoute(h.route, request)
	}
	return h.engine.Match(request)
}

// decide decides about a request. Before that, it reads the body if limits need it, unless the request
// is refused without: for its credentials, or by a limit that does not depend on the body. It reports
// false if it has responded. The request that it returns has the whole body; free must be called once
// it has ended.
func (h *policedHandler) decide(w http.ResponseWriter, r *http.Request, m *policy.Match, client string) (v policy.Verdict, whole *http.Request, free func(), ok bool) {
	free = func() {}
	if m.ReadsBody(r) && h.engine.Identify(r.Context(), m) {
		if v, refused := h.engine.RefuseUnread(r.Context(), m); refused {
			return v, r, free, true
		}
		next := *r
		r = &next
		var err error
		if free, err = m.ReadBody(r, h.shares.Of(client, &h.bodies)); err != nil {
			w.Header().Set("Connection", "close")
			if errors.Is(err, policy.ErrBodyMemory) {
				w.Header().Set("Retry-After", "1")
				http.Error(w, "there is no memory left for the body of this request", http.StatusServiceUnavailable)
			} else {
				http.Error(w, "the body of this request did not come", http.StatusBadRequest)
			}
			return v, r, free, false
		}
	}
	return h.engine.DecideMatch(r.Context(), m), r, free, true
}

// believed returns the header of a request for its limits: without the fields that only proxies may
// send, if the connection comes from nobody that is trusted.
func (h *policing) believed(r *http.Request, trusted bool) http.Header {
	if trusted || !slices.ContainsFunc(h.proxied, func(name string) bool { return len(r.Header[name]) > 0 }) {
		return r.Header
	}
	next := maps.Clone(r.Header)
	for _, name := range h.proxied {
		delete(next, name)
	}
	return next
}

// wait queues a request until its turn.
func (h *policing) wait(r *http.Request, v *policy.Verdict, client string) error {
	place, full := h.routes[v.Route].queue.Join(client, v.Limit, v.Delay)
	if full != nil {
		v.Cancel()
		return full
	}
	defer place.Leave()
	return v.Wait(r.Context())
}

// enter takes the places of concurrency limits. A request that waits for one counts as queued.
func (h *policing) enter(r *http.Request, v *policy.Verdict, client string) error {
	var place policy.QueuePlace
	ctx, end := r.Context(), func() {}
	defer func() { end(); place.Leave() }()
	known := len(v.Events())
	err := v.EnterQueued(ctx, func() (context.Context, error) {
		if place.Taken() {
			return ctx, nil
		}
		queue := h.routes[v.Route].queue
		var full *weir.LimitedError
		if place, full = queue.Join(client, v.Limit, 0); full != nil {
			return ctx, full
		}
		ctx, end = queue.Within(ctx)
		return ctx, nil
	})
	h.write(v.Events()[known:])
	return err
}

// pass passes a request on that may go on, and sets how it ended.
func (h *policedHandler) pass(w http.ResponseWriter, r *http.Request, v *policy.Verdict, began time.Time, outcome *weir.Outcome) {
	h.tells(w.Header(), v.Evaluated())
	m := h.responseTo(v, v.Decision)
	if m.Outcome = policy.Allow; !began.IsZero() {
		m.Waited = time.Since(began)
	}
	h.report(m)
	if h.context {
		r = m.with(r)
	}
	r, settle := h.withBody(w, r, v)
	defer settle()
	w, r, leave := judged(w, r, v)
	defer func() { leave(*outcome) }()
	w, r, end := metered(w, r, v)
	defer func() { end(*outcome) }()
	passOn(h.next, w, r, outcome)
}

// withBody bounds and counts the body of a request where its route asks for it. settle corrects the
// charges of limits with a cost in bytes by what was read.
func (h *policing) withBody(w http.ResponseWriter, r *http.Request, v *policy.Verdict) (_ *http.Request, settle func()) {
	settle = func() {}
	bound := h.routes[v.Route].maxBody
	counts := v.CountsBytes()
	if r.Body == nil || !counts && (bound == 0 || r.ContentLength >= 0) {
		return r, settle
	}
	next := *r
	if bound > 0 {
		next.Body = http.MaxBytesReader(w, next.Body, bound)
	}
	if counts {
		body := &countedBody{ReadCloser: next.Body}
		next.Body, settle = body, func() { v.SettleBytes(body.n.Load()) }
	}
	return &next, settle
}

// countedBody counts the bytes of a body without a Content-Length.
type countedBody struct {
	io.ReadCloser
	n atomic.Int64
}

// Read reads a part of the body.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}

// end responds to a request that did not get its turn.
func (h *policing) end(w http.ResponseWriter, r *http.Request, v *policy.Verdict, err error) {
	var limited *weir.LimitedError
	if errors.As(err, &limited) {
		h.refuse(w, r, v, limited.Decision)
		return
	}
	m := h.responseTo(v, v.Decision)
	m.Outcome, m.Err = policy.Left, err
	h.report(m)
	http.Error(w, "the wait was ended", http.StatusServiceUnavailable)
}

// refuse responds to a request that a limit refused.
func (h *policing) refuse(w http.ResponseWriter, r *http.Request, v *policy.Verdict, d weir.Decision) {
	m := h.responseTo(v, d)
	m.Outcome = policy.Deny
	h.report(m)
	h.tells(w.Header(), v.Evaluated())
	response, ok := h.routes[v.Route].apart[v.Limit]
	if !ok {
		response = h.routes[v.Route].refused
	}
	if h.plainOnly && h.routes[v.Route].own {
		SetRetryAfter(w.Header(), m.Decision)
		response.Write(w, r, m.Limit)
		return
	}
	h.refuseWith(w, r, m, &response)
}

// responseTo makes a Response of a verdict.
func (h *policing) responseTo(v *policy.Verdict, d weir.Decision) Response {
	return Response{Limit: cmp.Or(v.Limit, d.By), Key: v.Key, Decision: d, Err: v.Err, Outcome: v.Outcome, Route: v.Route}
}

// write logs what limits did whose Log asks for it: in nginx's words, and without the client.
func (h *policing) write(events []policy.Event) {
	for _, e := range events {
		h.log.Log(context.Background(), e.LogLevel(), e.String(), "limit", e.Limit)
	}
}
