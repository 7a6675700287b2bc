// Package gateway is a reverse proxy with limits. It decides about every request by the active
// policy, forwards the requests that the limits admit, queues those that have to wait, and refuses
// the rest as the policy says. It translates between HTTP and package policy, and contains no
// arithmetic about limits.
package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/refusal"
	"github.com/weirflow/weir/internal/tally"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/accesslog"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/server/upstream"
	"github.com/weirflow/weir/weirhttp"
)

// A Gateway is an http.Handler, and a part of the active policy.
type Gateway struct {
	policy    *active.Policy
	log       *slog.Logger
	upstreams *upstream.Set
	bodies    policy.BodyShares // of the upstreams' memory, for bodies that limits read
	answers   *staleResponses   // the last good ones, for refusals and failures
	errorLog  *weir.Limiter     // an upstream that is down must not fill the log
	counts    counts
	leaving   atomic.Bool
	accessLog atomic.Pointer[accesslog.Log] // nil for none

	state atomic.Pointer[state]
}

// state is all that is made of a policy. An update replaces it as a whole.
type state struct {
	file   *policyfile.File
	engine *policy.Engine
	routes []route
	tells  func(http.Header, []policy.Evaluated) // sets the header fields about limits
	rooms  waitingRooms
	// some limit exempts by a header field, which is believed from trusted proxies alone
	asksHop bool
	fields  *fieldRules
	// by name: those with adaptive limits
	adaptive map[string]*upstream.Upstream

	unidentified refusal.Response
}

// route is what happens to the requests of a route.
type route struct {
	forward *forwarder
	refused fallbackResponse
	apart   map[string]*fallbackResponse // by limit, for limits with a status of their own
	failed  *fallbackResponse            // for requests whose upstream failed; nil for the defaults
	queued  *policy.Queue
	maxBody int64         // bytes; 0 is no bound
	hold    time.Duration // how long a request goes on after its client has left; 0 is cut off at once
	respond *response
	// the path that the upstream gets, decoded; nil where it is the request's
	target func(path string) string
	fields []policy.AddHeader // of responses
}

// Counts counts requests by outcome.
type Counts struct {
	Allowed, Delayed, Limited, NoRoute, Invalid, Canceled, UpstreamFailed uint64

	Waiting   uint64 // handled by a waiting room
	QueueFull uint64 // among the limited: refused because too many were waiting
	Stale     uint64 // stored responses sent again, in place of a refusal or a failure
	Exhausted uint64 // not sent: this process had no descriptors, ports or memory left

	// header fields that upstreams may take for others: dropped, and requests refused for one
	AliasesDropped, AliasesRefused uint64

	Overloaded uint64 // refused by an adaptive limit; not among the limited

	UnknownCustomer uint64 // refused with 401: without valid credentials
	// refused with 503: whether the API key is valid could not be found out
	UnverifiedCustomer uint64

	Ambiguous uint64 // refused: upstreams may read the path as one of a route that protects more

	// refused for the size of their body; failed because of the body after they were admitted
	TooLarge, BadBody uint64
}

// counts are the counters behind Counts.
type counts struct {
	allowed, delayed, limited tally.Counter // the frequent ones

	noRoute, invalid, canceled, upstreamFailed, queueFull, stale, waiting, exhausted, aliasesDropped, aliasesRefused, ambiguous, tooLarge, badBody, overloaded, unknownCustomer, unverifiedCustomer atomic.Uint64
}

// New returns a gateway that serves the active policy, and every one that becomes active later.
func New(ctx context.Context, p *active.Policy, log *slog.Logger) (*Gateway, error) {
	limiter, err := weir.New(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10})
	if err != nil {
		return nil, err
	}
	g := &Gateway{policy: p, log: log, upstreams: upstream.NewSet(upstream.Options{Log: log, Signals: p.Signals()}), answers: newStaleResponses(), errorLog: limiter}
	if err := p.Join(ctx, g); err != nil {
		g.upstreams.Close()
		return nil, err
	}
	return g, nil
}

// Prepare readies the upstreams and the waiting rooms of the next policy.
func (g *Gateway) Prepare(_ context.Context, _ *active.Snapshot, next active.Candidate) (active.Change, error) {
	if wrong := withoutUpstream(next.File); len(wrong) > 0 {
		return nil, &policyfile.InvalidError{Problems: wrong}
	}
	upstreams, err := g.upstreams.Prepare(specs(next.File))
	if err != nil {
		return nil, err
	}
	c := &change{gateway: g, upstreams: upstreams}
	if old := g.state.Load(); old != nil {
		c.oldRooms = old.rooms
	}
	c.rooms, err = g.openRooms(next.File, next.Stores, c.oldRooms)
	return c, err
}

// change is a gateway that is prepared for another policy.
type change struct {
	gateway         *Gateway
	upstreams       *upstream.Change
	rooms, oldRooms waitingRooms
}

// Commit puts the policy in force. Requests in flight finish with the engine and the stores that
// they began with.
func (c *change) Commit(next *active.Snapshot) {
	g := c.gateway
	c.upstreams.Commit()
	s := g.compile(next, g.state.Load())
	s.rooms = c.rooms
	used := c.rooms.use()
	g.state.Store(s)
	if err := errors.Join(used, c.oldRooms.leave(c.rooms)); err != nil {
		g.log.Error("waiting rooms were not updated in full", "error", err)
	}
}

// Discard closes the waiting rooms that were opened.
func (c *change) Discard() {
	if err := c.rooms.leave(c.oldRooms); err != nil {
		c.gateway.log.Warn("waiting rooms of a policy that was refused were not closed", "error", err)
	}
}

// Close closes the upstreams and the waiting rooms. No request may be in flight.
func (g *Gateway) Close() error {
	g.upstreams.Close()
	return g.state.Load().rooms.leave(nil)
}

// Upstreams returns the counters of the upstreams and their targets, in no order.
func (g *Gateway) Upstreams() []upstream.Stats { return g.upstreams.Stats() }

// Buffers returns what the buffers of request bodies use.
func (g *Gateway) Buffers() upstream.BufferStats { return g.upstreams.Buffers() }

// Counts returns the counters.
func (g *Gateway) Counts() Counts {
	c := &g.counts
	return Counts{
		Allowed: c.allowed.Load(), Delayed: c.delayed.Load(), Limited: c.limited.Load(), NoRoute: c.noRoute.Load(),
		Invalid: c.invalid.Load(), Canceled: c.canceled.Load(), UpstreamFailed: c.upstreamFailed.Load(),
		QueueFull: c.queueFull.Load(), Stale: c.stale.Load(), Waiting: c.waiting.Load(),
		Exhausted: c.exhausted.Load(), AliasesDropped: c.aliasesDropped.Load(), AliasesRefused: c.aliasesRefused.Load(), Ambiguous: c.ambiguous.Load(), TooLarge: c.tooLarge.Load(), BadBody: c.badBody.Load(), Overloaded: c.overloaded.Load(),
		UnknownCustomer: c.unknownCustomer.Load(), UnverifiedCustomer: c.unverifiedCustomer.Load(),
	}
}

// compile makes a state from a policy whose upstreams are there. Queues of routes that stay keep
// the requests that wait in them.
func (g *Gateway) compile(next *active.Snapshot, old *state) *state {
	file := next.File
	s := &state{file: file, engine: next.Engine, tells: limitHeaders(&file.Policy), asksHop: file.Policy.AsksHop(),
		fields: newFieldRules(&file.Policy), unidentified: refusal.Unidentified(file.Policy.Plans.Bearer())}
	s.adaptive = map[string]*upstream.Upstream{}
	for _, u := range file.Policy.Upstreams {
		if u.Adaptive.On {
			s.adaptive[u.Name] = g.upstreams.Get(u.Name)
		}
	}
	for i := range file.Policy.Routes {
		c := g.newRoute(file, &file.Policy.Routes[i], old)
		if file.Policy.Routes[i].UpstreamPath != "" {
			c.target = func(path string) string { return next.Engine.UpstreamTarget(i, path) }
		}
		s.routes = append(s.routes, c)
	}
	s.boundBodies()
	return s
}

// limitHeaders returns what sets the header fields about limits that a policy asks for.
func limitHeaders(p *policy.Policy) func(http.Header, []policy.Evaluated) {
	tells := weirhttp.SetRateLimit
	if p.Headers != nil {
		tells = weirhttp.SetHeaders(p.Headers...)
	}
	if p.Warns() && (p.Headers == nil || len(p.Headers) > 0) {
		return weirhttp.WithWarnings(tells)
	}
	return tells
}

// matchOf returns the match of a route; empty for none.
func (s *state) matchOf(route int) string {
	if route < 0 {
		return ""
	}
	return s.file.Policy.Routes[route].Match
}

// ServeHTTP decides about a request, and forwards, queues or refuses it.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := g.state.Load()
	client, clientKey := s.client(r)
	mayAlias := s.distrust(r)
	var rec *record
	if g.accessLog.Load() != nil {
		rec = newRecord(w, r, client, g)
		w = rec
	}
	x := exchanges.Get().(*exchange)
	x.record = rec
	defer x.endTurn(r)
	if r.Method == http.MethodConnect {
		answer(w, http.StatusMethodNotAllowed, "this is a gateway, not a forward proxy")
		return
	}
	x.find(r, s, client, clientKey)
	m, v := &x.match, &x.verdict
	if mayAlias && !g.withoutAliases(w, r, s, m.Route) {
		rec.decided(policy.Invalid.String(), "", 0)
		return
	}
	if m.Ambiguous {
		rec.decided(ambiguous, "", 0)
		g.counts.ambiguous.Add(1)
		g.closeIfLeaving(w.Header())
		s.engine.DecideInto(r.Context(), m, v)
		answer(w, http.StatusBadRequest, v.InvalidReason())
		return
	}
	if s.tooLarge(m.Route, r.ContentLength) {
		rec.decided(tooLarge, "", 0)
		g.refuseBody(w, r)
		return
	}
	w, ok := g.throughRoom(w, r, s, m.Route, clientKey)
	if !ok {
		return
	}
	var err error
	if x.free, err = g.decide(r, s, m, v, clientKey); err != nil {
		rec.decided(policy.Invalid.String(), "", 0)
		g.failUnread(w, r, err)
		return
	}
	rec.decided(v.Outcome.String(), v.Limit, v.Delay)
	seen := g.policy.See(m.Request(), v, s.matchOf(v.Route))
	w, r = s.onItsWay(w, r, v.Route)
	switch v.Outcome {
	case policy.NoRoute:
		g.counts.noRoute.Add(1)
		g.closeIfLeaving(w.Header())
		answer(w, http.StatusNotFound, "no route matches this request")
		return
	case policy.Invalid:
		g.counts.invalid.Add(1)
		g.closeIfLeaving(w.Header())
		answer(w, http.StatusBadRequest, v.InvalidReason())
		return
	case policy.UnknownCustomer:
		g.counts.unknownCustomer.Add(1)
		g.closeIfLeaving(w.Header())
		s.unidentified.WriteUnidentified(w, r)
		return
	case policy.UnverifiedCustomer:
		g.counts.unverifiedCustomer.Add(1)
		g.closeIfLeaving(w.Header())
		refusal.WriteUnverified(w, r)
		return
	case policy.Deny:
		g.logEvents(v.Events())
		x.simple = g.refuse(w, r, s, v, v.Decision, x.evaluated[:0]) && !seen && v.IsOver()
		return
	case policy.Left:
		g.leave(w, r, s, v, v.Err)
		return
	case policy.Delay:
		g.logEvents(v.Events())
		if g.postpone(w, r, s, x, clientKey) || !g.wait(w, r, s, v, clientKey) {
			return
		}
	default:
		g.logEvents(v.Events())
	}
	g.serve(w, r, s, x, clientKey)
}

// serve serves a request that no limit refuses, once it may begin.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, s *state, x *exchange, client string) {
	v := &x.verdict
	to := &s.routes[v.Route]
	later := v.Measured() && r.ContentLength != 0 && to.forward != nil
	place, ok := g.enter(w, r, s, v, client, later)
	if !ok {
		return
	}
	answering := &x.response
	*answering = responseWriter{ResponseWriter: w, gateway: g, tells: s.tells, verdict: v, meter: meterOf(v, r), route: to, request: r, place: place}
	if later {
		answering.enter = g.laterEntry(answering, s, client)
	}
	r = answering.watchClient(r)
	defer func() {
		answering.drain(r)
		answering.settle()
		v.SkipAdaptive()
		outcome := answering.outcome(r)
		answering.waits.End()
		answering.leaveAdaptive(outcome)
		v.Done(outcome)
	}()
	if !later {
		g.admitted(v)
		s.tells(w.Header(), v.AppendEvaluated(x.evaluated[:0]))
	}
	s.boundBody(w, r, v.Route)
	if own := s.routes[v.Route].respond; own != nil {
		own.write(answering, r)
		answering.complete, answering.whole = true, true
		return
	}
	if !later {
		x.record.passed(to.forward.name)
	}
	if to.hold > 0 {
		g.passHeld(answering, r, to.forward, v, to.hold)
	} else {
		g.pass(answering, r, to.forward, v)
	}
	answering.complete = true
}

// admitted counts a request that no limit has refused.
func (g *Gateway) admitted(v *policy.Verdict) {
	if v.Outcome != policy.Delay {
		g.counts.allowed.Add(1)
	}
}

// pass forwards a request to its upstream.
func (g *Gateway) pass(w *responseWriter, r *http.Request, to *forwarder, v *policy.Verdict) {
	if v.CountsBytes() && r.Body != nil {
		body := &countingBody{ReadCloser: r.Body}
		r.Body = body
		defer func() { v.SettleBytes(body.n.Load()) }()
	}
	to.serve(w, r)
	w.whole = true
}

// countingBody counts the bytes of a body without a Content-Length.
type countingBody struct {
	io.ReadCloser
	n atomic.Int64
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}

// leave ends a request whose wait ended early: its client has left, or an update made its cost
// impossible.
func (g *Gateway) leave(w http.ResponseWriter, r *http.Request, s *state, v *policy.Verdict, err error) {
	var limited *weir.LimitedError
	if errors.As(err, &limited) {
		g.refuse(w, r, s, v, limited.Decision, nil)
		return
	}
	g.counts.canceled.Add(1)
	if errors.Is(err, context.Canceled) {
		if rec := recordOf(w); rec != nil {
			rec.entry.Decision = policy.Left.String()
		}
		abandon(r) // no client is left to respond to
		return
	}
	answer(w, http.StatusServiceUnavailable, "the wait was ended")
}

// refuse answers a request that a limit refused. room is for what was evaluated; nil allocates. It reports whether
// nothing has kept a part of the request.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, s *state, v *policy.Verdict, d weir.Decision, room []policy.Evaluated) (simple bool) {
	if v.Overloaded() {
		g.counts.overloaded.Add(1)
	} else {
		g.counts.limited.Add(1)
	}
	if rec := recordOf(w); rec != nil {
		rec.decided(policy.Deny.String(), v.Limit, 0) // a queued request can still be refused
	}
	h := w.Header()
	g.closeIfLeaving(h)
	s.tells(h, v.AppendEvaluated(room))
	weirhttp.SetRetryAfter(h, d)
	route := &s.routes[v.Route]
	refused := &route.refused
	if apart := route.apart[v.Limit]; apart != nil {
		refused = apart
	}
	if refused.stale == 0 && refused.other == nil {
		refused.Write(w, r, v.Limit)
		return true
	}
	fallback := func(w http.ResponseWriter) { refused.Write(w, r, v.Limit) }
	if !g.sendFallback(w, r, refused, "refused", fallback) {
		fallback(w)
	}
	return false
}

// answer writes a response of the gateway's own.
func answer(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	text += "\n"
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	io.WriteString(w, text)
}
