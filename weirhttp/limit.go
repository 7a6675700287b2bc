package weirhttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/internal/refusal"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/policy"
)

// Limit returns a middleware that evaluates one limit for each request:
//
//	handler = weirhttp.Limit(weirhttp.Keyed(perClient), weirhttp.ByIP(trusted...))(handler)
//
// The key is required: a limit without one would count all clients together, which Global says
// openly. A refused request never reaches the handler and is not charged.
//
// Limit panics if an argument is invalid, like a limiter that is nil: that is a mistake of the
// program, and shows when it starts. All handlers that one middleware wraps share the limit. For
// several limits of different keys, all or nothing, use Policy.
//
// With Headers() and without InContext, Observe and Cost, a request that a limit in memory admits
// costs no allocation, or with ByIP one for the text of an IPv6 prefix. The handler gets the
// ResponseWriter and the Request as they are.
func Limit(l Limiter, key KeyFunc, options ...Option) func(http.Handler) http.Handler {
	m := newLimit(l, key, newSettings(options))
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("weirhttp: Limit of a handler that is nil")
		}
		return &limitedHandler{limiting: m, next: next}
	}
}

func newLimit(l Limiter, key KeyFunc, s settings) *limiting {
	switch v := reflect.ValueOf(l); {
	case !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil():
		panic("weirhttp: Limit without a limiter: pass One, Keyed, InFlight or a *weir.Shared")
	case key == nil:
		panic("weirhttp: Limit without a key: pass ByIP(), ByHeader(\"X-Api-Key\") or another KeyFunc, or Global() for all requests together")
	case s.unmatched || s.log != nil:
		panic("weirhttp: PassUnmatched and Log are options of Policy")
	case s.actual != nil || s.usage != nil:
		panic("weirhttp: Actual and ActualFrom are options of Pace")
	}
	m := &limiting{settings: s, key: key, name: cmp.Or(s.name, "default")}
	_, local := l.(interface{ local() })
	if shared, ok := l.(*weir.Shared); ok {
		l = withFallback(shared, s.failure)
	}
	m.limiter, m.background = l, s.shadow && !local
	m.limit, _ = l.(described)
	m.places, m.enters = l.(inFlight)
	m.waiter, _ = l.(waiter)
	m.readyToWait()
	m.checkSettled()
	if s.shadow {
		m.shadows = make(chan struct{}, mostShadows)
	}
	if !m.enters && !s.shadow { // places have no quota to tell of
		m.rateLimit = s.headers == nil || slices.Contains(s.headers, policy.HeaderRateLimit)
		m.xRateLimit = slices.Contains(s.headers, policy.HeaderXRateLimit)
	}
	m.tells = m.rateLimit || m.xRateLimit
	m.plain = s.observe == nil && !s.context && !m.background
	m.response = refusal.Default(s.status, m.name)
	return m
}

// limiting is what the handlers of one middleware share.
type limiting struct {
	settings
	limiter    Limiter
	key        KeyFunc
	name       string
	limit      described // nil if the limiter does not tell
	waiter     waiter    // nil if requests cannot wait
	places     inFlight  // if enters is set
	settler    settling  // nil without Settled
	enters     bool
	background bool // a shadow limit that may be slow
	plain      bool // an admitted request gets no more than header fields
	queue      *policy.Queue
	tells      bool // responses have header fields: one of the next two
	rateLimit  bool // responses have RateLimit and RateLimit-Policy
	xRateLimit bool // responses have X-RateLimit-*
	response   refusal.Response
	shadows    chan struct{} // one for each shadow decision in the background
	constant   atomic.Pointer[constants]
}

// constants is what header fields say of a limit, whatever is left of it. It takes longer to find out
// than to decide.
type constants struct {
	limit  weir.Limit
	name   string
	size   int64
	window time.Duration
	begin  string // of an item of RateLimit, before what is left
	policy string // the value of RateLimit-Policy
	xLimit string // the value of X-RateLimit-Limit
}

// limitedHandler is a handler behind a limit.
type limitedHandler struct {
	*limiting
	next http.Handler
}

// readyToWait decides how long requests wait.
func (h *limiting) readyToWait() {
	able := h.waiter != nil || h.enters
	if h.waits && h.settings.wait > 0 && !able {
		panic("weirhttp: Wait: requests cannot wait for this limiter: it has no method Wait")
	}
	if !h.waits && able && h.limit != nil && queues(h.limit.Limit()) {
		h.wait = DefaultWait
	}
	if h.shadow {
		h.wait = 0
	}
	if h.wait > 0 {
		h.queue = policy.NewQueue(h.waiting, nil)
	}
}

// queues reports whether a limit has a queue.
func queues(l weir.Limit) bool {
	if places, ok := rules.PlacesOf(l); ok {
		return places.Queue > 0
	}
	for _, part := range weir.Parts(l) {
		if k := rules.KindOf(part); k != nil && k.Queues {
			return true
		}
	}
	return false
}

// ServeHTTP evaluates the limit, and passes the request on or refuses it.
func (h *limitedHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, cost, applies := h.keyAndCost(w, r)
	switch {
	case !applies.limited:
		if applies.passes {
			h.next.ServeHTTP(w, r)
		}
		return
	case h.enters:
		h.serveHolding(w, r, key, cost)
		return
	case h.settler != nil:
		h.serveSettled(w, r, key, cost)
		return
	case h.background:
		h.decideLater(r, key, cost)
		h.next.ServeHTTP(w, r)
		return
	}
	d, err := h.limiter.Take(r.Context(), key, cost)
	if h.plain && d.Allowed && err == nil {
		if h.tells && d.Limit > 0 {
			h.tell(w.Header(), cmp.Or(d.By, h.name), &d)
		}
		h.next.ServeHTTP(w, r)
		return
	}
	h.serve(w, r, key, cost, d, err)
}

// applicability says what happens to a request before the limit is evaluated.
type applicability struct {
	limited bool // the limit is evaluated
	passes  bool // otherwise: the request goes on; if not, it has its response
}

// keyAndCost returns what a request is charged.
func (h *limitedHandler) keyAndCost(w http.ResponseWriter, r *http.Request) (key string, cost int64, a applicability) {
	key, ok := h.key(r)
	if !ok {
		switch h.missing {
		case MissingSkip:
			return "", 0, applicability{passes: true}
		case MissingRefuse:
			refused := Response{Limit: h.name, Missing: true, Shadow: h.shadow, Outcome: policy.Deny, Route: -1, Decision: weir.Decision{RetryAfter: weir.Never}}
			h.report(refused)
			if h.shadow {
				return "", 0, applicability{passes: true}
			}
			h.refuse(w, r, refused)
			return "", 0, applicability{}
		}
		key = ""
	}
	cost = 1
	if h.cost != nil {
		cost = h.cost(r)
	}
	switch {
	case cost == 0, cost < 0 && h.shadow:
		return "", 0, applicability{passes: true}
	case cost < 0:
		http.Error(w, "the cost of this request is not valid", http.StatusBadRequest)
		return "", 0, applicability{}
	}
	return policy.SealKey(key), cost, applicability{limited: true}
}

// serve passes a request on or refuses it, by the decision about it.
func (h *limitedHandler) serve(w http.ResponseWriter, r *http.Request, key string, cost int64, d weir.Decision, err error) {
	var waited time.Duration
	if err == nil && !d.Allowed && h.wait > 0 && d.RetryAfter != weir.Never {
		began := time.Now()
		d, err = h.waitTurn(r, key, cost, d)
		waited = time.Since(began)
	}
	m := h.conclude(r.Context(), key, cost, d, err)
	m.Waited = waited
	if h.report(m); !h.mayPass(w, r, m) {
		return
	}
	if h.context {
		r = m.with(r)
	}
	h.next.ServeHTTP(w, r)
}

// conclude makes a Response of a decision, or of an error without one.
func (h *limiting) conclude(ctx context.Context, key string, cost int64, d weir.Decision, err error) Response {
	m := Response{Limit: cmp.Or(d.By, h.name), Key: key, Cost: cost, Shadow: h.shadow, Err: err, Route: -1}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		m.Outcome, d.Allowed = policy.Left, false
	case errors.Is(err, weir.ErrCharge), errors.Is(err, weir.ErrCost): // what no store can carry out
		d = weir.Decision{RetryAfter: weir.Never, By: d.By, Source: weir.SourceStore}
	case h.failure.OnFailure == failover.Allow:
		d = weir.Decision{Allowed: true, By: d.By, Source: weir.SourceAllow}
	default:
		d = weir.Decision{RetryAfter: time.Second, By: d.By, Source: weir.SourceDeny}
	}
	if m.Decision = d; !d.Allowed && m.Outcome == policy.Allow {
		m.Outcome = policy.Deny
	}
	return m
}

// report calls the function of Observe.
func (h *settings) report(m Response) {
	if h.observe != nil {
		h.observe(m)
	}
}

// mayPass sets the header fields about the limit. It reports false if it has refused the request.
func (h *limiting) mayPass(w http.ResponseWriter, r *http.Request, m Response) bool {
	if m.Shadow {
		return true
	}
	if m.Outcome == policy.Left {
		// nobody is left to read this, unless the client has only closed its sending side
		http.Error(w, "the wait was ended", http.StatusServiceUnavailable)
		return false
	}
	if h.tells && m.Decision.Limit > 0 {
		h.tell(w.Header(), m.Limit, &m.Decision)
	}
	if !m.Decision.Allowed {
		h.refuse(w, r, m)
		return false
	}
	return true
}

// tell sets the header fields about the limit.
func (h *limiting) tell(fields http.Header, name string, d *weir.Decision) {
	of := h.constants(name, d.Limit)
	v := freeFieldValues.Get().(*fieldValues)
	if h.rateLimit {
		addRateLimit(fields, v.newPair(v.rateLimit(of, d), of.policy))
	}
	if h.xRateLimit && !saysLess(fields, d) {
		remaining, reset := v.xRateLimit(of, d)
		setXRateLimit(fields, v.newList(of.xLimit, remaining, reset))
	}
	freeFieldValues.Put(v)
}

// constants returns what header fields say of the limit as it is now.
func (h *limiting) constants(name string, size int64) *constants {
	var l weir.Limit
	if h.limit != nil {
		l = h.limit.Limit()
	}
	known := h.constant.Load()
	if known != nil && known.name == name && known.size == size && (l == nil || weir.Equal(known.limit, l)) {
		return known
	}
	next := &constants{limit: l, name: name, size: size}
	if l != nil {
		for _, part := range weir.Parts(l) {
			if p := rules.ParamsOf(part); p != nil {
				next.window = max(next.window, p.QuotaWindow())
			}
		}
	}
	item := policy.Evaluated{Name: next.name, Limit: next.size, Window: next.window}
	next.begin, next.policy = string(appendName(nil, next.name)), string(appendRateLimitPolicy(nil, false, &item))
	next.xLimit = integer(size)
	h.constant.Store(next)
	return next
}

// refuse responds to a refused request.
func (h *limiting) refuse(w http.ResponseWriter, r *http.Request, m Response) {
	h.refuseWith(w, r, m, &h.response)
}

// refuseWith responds to a refused request by the handler of Refused, or by default with the
// response.
func (h *settings) refuseWith(w http.ResponseWriter, r *http.Request, m Response, response *refusal.Response) {
	SetRetryAfter(w.Header(), m.Decision)
	if h.refused != nil {
		h.refused.ServeHTTP(w, m.with(r))
		return
	}
	response.Write(w, r, m.Limit)
}

// join counts a request that is about to wait. It returns the context of the wait, which ends at its
// bound.
func (h *limiting) join(r *http.Request, key string, d weir.Decision) (ctx context.Context, leave func(), err error) {
	place, full := h.queue.Join(key, d.By, max(d.RetryAfter, 0))
	if full != nil {
		full.Decision.Limit = d.Limit
		return nil, nil, full
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.wait)
	return ctx, func() { cancel(); place.Leave() }, nil
}

// waitTurn waits until a request that was refused may go on.
func (h *limiting) waitTurn(r *http.Request, key string, cost int64, d weir.Decision) (weir.Decision, error) {
	ctx, leave, err := h.join(r, key, d)
	if err == nil {
		defer leave()
		err = h.waiter.Wait(ctx, key, cost)
	}
	return h.afterWait(r, d, err)
}

// afterWait is the decision about a request that has waited.
func (h *limiting) afterWait(r *http.Request, d weir.Decision, err error) (weir.Decision, error) {
	var limited *weir.LimitedError
	switch {
	case err == nil:
		d.Allowed, d.RetryAfter, d.Remaining = true, 0, 0
		return d, nil
	case errors.As(err, &limited):
		limited.Decision.By = d.By
		return limited.Decision, nil
	case errors.Is(err, weir.ErrLimited), r.Context().Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return d, nil // there is no room for another key, or the wait was too long
	}
	return d, err
}

// serveHolding passes a request on while it holds a place.
func (h *limitedHandler) serveHolding(w http.ResponseWriter, r *http.Request, key string, cost int64) {
	var began time.Time
	leave := func() {}
	var queue func(weir.Decision) (context.Context, error)
	if h.wait > 0 {
		queue = func(d weir.Decision) (ctx context.Context, err error) {
			began = time.Now()
			ctx, left, err := h.join(r, key, d)
			if err == nil {
				leave = left
			}
			return ctx, err
		}
	}
	hold, d, err := h.places.enter(key, cost, queue)
	outcome := weir.Ignore // nothing is said about the handler until it is called
	defer func() { hold.Done(outcome) }()
	leave()
	if err != nil {
		d, err = h.afterWait(r, d, err)
	}
	m := h.conclude(r.Context(), key, cost, d, err)
	if !began.IsZero() {
		m.Waited = time.Since(began)
	}
	if h.report(m); !h.mayPass(w, r, m) {
		return
	}
	if h.context {
		r = m.with(r)
	}
	passOn(h.next, w, r, &outcome)
}

// passOn passes a request on, and sets how it ended: a panic counts as dropped, but a request whose
// client has left is ignored, as this says nothing about the handler. A reverse proxy panics if its
// client leaves.
func passOn(next http.Handler, w http.ResponseWriter, r *http.Request, outcome *weir.Outcome) {
	*outcome = weir.Dropped
	defer func() {
		if r.Context().Err() != nil {
			*outcome = weir.Ignore
		}
	}()
	next.ServeHTTP(w, r)
	*outcome = weir.OK
}

// mostShadows is how many shadow decisions may be in the background at once; more are left out.
const mostShadows = 1024

// shadowTime is how long a shadow decision may take.
const shadowTime = time.Second

// decideLater evaluates a shadow limit, so that no request waits for it.
func (h *limiting) decideLater(r *http.Request, key string, cost int64) {
	select {
	case h.shadows <- struct{}{}:
	default:
		return
	}
	ctx := context.WithoutCancel(r.Context())
	go func() {
		defer func() { <-h.shadows }()
		bound, cancel := context.WithTimeout(ctx, shadowTime)
		defer cancel()
		d, err := h.limiter.Take(bound, key, cost)
		h.report(h.conclude(ctx, key, cost, d, err))
	}()
}
