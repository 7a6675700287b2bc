package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/internal/clientwait"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/plain"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/server/upstream"
	"github.com/weirflow/weir/weirhttp"
)

// specs are the upstreams of a policy.
func specs(file *policyfile.File) (all []upstream.Spec) {
	for _, u := range file.Policy.Upstreams {
		t := file.UpstreamTLS[u.Name]
		all = append(all, upstream.Spec{Upstream: u, TLS: t.Config, Digest: t.Digest})
	}
	return all
}

// forwarder sends requests to one upstream.
type forwarder struct {
	name    string
	gateway *Gateway
	to      *upstream.Upstream
	trusted []netip.Prefix
	fields  *fieldRules
	keeps   bool          // stores good responses for refusals and failures
	buffer  policy.Buffer // of the route; not set: as the upstream
	proxy   *httputil.ReverseProxy
}

// newForwarder forwards requests of a route to an upstream as they are: the same method, path, query,
// host and body. Good responses are stored if stale is above 0.
func (g *Gateway) newForwarder(file *policyfile.File, r *policy.Route, name string, stale time.Duration) *forwarder {
	trusted := file.Policy.TrustedProxies
	p := &httputil.ReverseProxy{
		Transport:  g.upstreams.Get(name),
		BufferPool: &buffers{},
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.RawQuery = p.In.URL.RawQuery // also a query that does not parse
			p.Out.Host = p.In.Host
			p.Out.Trailer = p.In.Trailer // filled at the end of the body
			forward(p, trusted)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { g.fail(w, r, name, err) },
		ErrorLog:     slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
	if stale > 0 {
		identities := identities(&file.Policy)
		p.ModifyResponse = func(resp *http.Response) error {
			g.answers.keep(name, identities, resp)
			return nil
		}
	}
	return &forwarder{name: name, gateway: g, to: g.upstreams.Get(name), trusted: trusted, fields: newFieldRules(&file.Policy), keeps: stale > 0,
		buffer: r.BufferRequest, proxy: p}
}

// serve forwards a request and its response.
func (p *forwarder) serve(w *responseWriter, r *http.Request) {
	if !p.keeps && w.enter == nil {
		if to, ok := p.to.Direct(r); ok {
			p.direct(to, w, r)
			return
		}
	}
	switch {
	case w.enter != nil:
		r = r.WithContext(upstream.WithEnter(r.Context(), w.enter))
	case w.place != nil:
		r = r.WithContext(upstream.WithPlace(r.Context(), w.place))
	}
	rc := http.NewResponseController(w)
	r = p.fields.withTrailers(r)
	ctx := upstream.OnStalledClient(r.Context(), func(answering bool) {
		now := time.Now()
		_ = rc.SetReadDeadline(now) // nobody blocks on a writer without deadlines
		if answering {
			_ = rc.SetWriteDeadline(now)
		}
	})
	if p.buffer != (policy.Buffer{}) {
		ctx = upstream.WithBuffer(ctx, p.buffer)
	}
	if r.ContentLength != 0 {
		_, client := p.gateway.state.Load().client(r)
		ctx = upstream.WithClient(ctx, client)
	}
	r = r.WithContext(ctx)
	if !mayUpgrade(r.Header["Upgrade"]) || !p.to.Upgrades() {
		r.Header.Del("Upgrade")
	}
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		w.upload = &upload{ReadCloser: r.Body}
		r.Body = w.upload
		defer w.upload.end(rc)
		_ = rc.EnableFullDuplex() // or the response would wait for the rest of the request
	}
	p.proxy.ServeHTTP(w, r)
}

// direct forwards a plain request without httputil.ReverseProxy.
func (p *forwarder) direct(to upstream.Direct, w *responseWriter, r *http.Request) {
	var room [4]plain.Field
	answered, err := to.At(w.place).Pass(w, r, forwarded(room[:0], r, p.trusted))
	switch {
	case err == nil:
	case answered:
		var client *plain.ClientError
		w.clientGone = w.clientGone || errors.As(err, &client)
		panic(http.ErrAbortHandler) // as ReverseProxy ends an incomplete response
	default:
		p.gateway.fail(w, r, p.name, err)
	}
}

// upload is the body of a request over HTTP/1. The response may come before all of it was read.
// Then the connection cannot be used again: the client may go on sending, or may not.
type upload struct {
	io.ReadCloser
	complete atomic.Bool
	mu       sync.Mutex // locked during a Read
	over     bool
}

func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := u.ReadCloser.Read(p)
	if err == io.EOF {
		u.complete.Store(true)
	}
	return n, err
}

// end stops readers and waits for them: net/http must find none when it continues with the
// connection.
func (u *upload) end(rc *http.ResponseController) {
	if u.complete.Load() {
		return
	}
	_ = rc.SetReadDeadline(time.Now())
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
}

// mayUpgrade reports whether a request may upgrade to a protocol like WebSocket. An upgrade to HTTP
// is refused: its requests would bypass all limits.
func mayUpgrade(values []string) bool {
	if len(values) != 1 {
		return len(values) == 0
	}
	protocol := strings.ToLower(strings.TrimSpace(values[0]))
	for _, prefix := range []string{"h2", "http", "tls"} {
		if strings.HasPrefix(protocol, prefix) {
			return false
		}
	}
	return !strings.Contains(protocol, ",")
}

// forward sets X-Forwarded-For, -Host and -Proto. Those of the request are kept, and added to, only
// if the peer is trusted.
func forward(p *httputil.ProxyRequest, trusted []netip.Prefix) {
	believed := weirhttp.Trusted(p.In, trusted)
	if believed {
		p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
	}
	p.SetXForwarded()
	if !believed {
		return
	}
	for _, field := range []string{"X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
		if values := p.In.Header[field]; len(values) > 0 {
			p.Out.Header[field] = values
		}
	}
}

// forwarded appends the fields that forward sets, in place of the client's.
func forwarded(fields []plain.Field, r *http.Request, trusted []netip.Prefix) []plain.Field {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = ""
	}
	proto := "http"
	if r.TLS != nil {
		proto = "https"
	}
	fields = append(fields, plain.Field{Name: "X-Forwarded-For", Value: host}, plain.Field{Name: "X-Forwarded-Host", Value: r.Host}, plain.Field{Name: "X-Forwarded-Proto", Value: proto}, plain.Field{Name: "Forwarded"})
	if !weirhttp.Trusted(r, trusted) {
		return fields
	}
	if before := r.Header["X-Forwarded-For"]; len(before) > 0 && host != "" {
		fields[0].Value = strings.Join(before, ", ") + ", " + host
	}
	believed := fields[:1]
	for _, f := range fields[1:] {
		if len(r.Header[f.Name]) == 0 {
			believed = append(believed, f)
		}
	}
	return believed
}

// failure is the response to a request whose upstream failed.
type failure struct {
	status int
	text   string
}

// fail responds to a request whose upstream failed.
func (g *Gateway) fail(w http.ResponseWriter, r *http.Request, name string, err error) {
	l, passing := w.(*responseWriter)
	var unplaced *unplacedError
	if passing && errors.As(err, &unplaced) {
		g.refuseUnplaced(l, unplaced)
		return
	}
	if passing {
		l.unsent = upstream.Unsent(err)
	}
	if spoiled := upstream.ClientFailed(err) || badBody(r, err); passing && spoiled {
		l.clientGone, l.own = true, true
	}
	if g.failedBody(w, r, err) {
		return
	}
	if upstream.ClientFailed(err) {
		g.counts.canceled.Add(1)
		endConnection(w, r)
		if errors.Is(err, upstream.ErrStalled) {
			answer(w, http.StatusRequestTimeout, "the body of this request did not come in time")
			return
		}
		answer(w, http.StatusBadRequest, "the body of this request did not come")
		return
	}
	if r.Context().Err() != nil {
		g.counts.canceled.Add(1)
		abandon(r)
		return
	}
	var unsendable *upstream.RequestError
	if errors.As(err, &unsendable) {
		if passing {
			l.clientGone, l.own, l.unsent = true, true, true
		}
		g.refuseUnsendable(w, unsendable)
		return
	}
	f, byUpstream := g.failureOf(name, err)
	if passing {
		l.overloaded, l.notSent, l.noResponse = byUpstream, !byUpstream, true
	}
	switch {
	case passing && l.fail != nil:
		l.fail(w, f)
	case passing && l.route != nil:
		g.answerFailed(w, l.request, l.route, f)
	default:
		answer(w, f.status, f.text)
	}
}

// failureOf counts and logs the error of a request that reached no upstream or got no response, and
// returns the response to it. byUpstream is false if this process caused the error.
func (g *Gateway) failureOf(name string, err error) (f failure, byUpstream bool) {
	var lacking *upstream.LocalError
	if errors.As(err, &lacking) {
		g.counts.exhausted.Add(1)
		if g.errorLog.Allow() {
			g.log.Error("a request was not sent", "upstream", name, "error", upstream.Reason(lacking.Err))
		}
		return failure{http.StatusServiceUnavailable, "the gateway lacks what it takes to send this request"}, false
	}
	g.counts.upstreamFailed.Add(1)
	if g.errorLog.Allow() {
		g.log.Warn("upstream failed", "upstream", name, "error", upstream.Reason(err))
	}
	var timeout net.Error
	switch {
	case errors.Is(err, upstream.ErrOut), errors.Is(err, upstream.ErrFull), errors.Is(err, upstream.ErrOverloaded):
		return failure{http.StatusServiceUnavailable, "the upstream takes no requests now"}, true
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout():
		return failure{http.StatusGatewayTimeout, "the upstream did not respond in time"}, true
	}
	return failure{http.StatusBadGateway, "the upstream cannot be reached"}, true
}

// refuseUnsendable refuses a request that no upstream could be sent.
func (g *Gateway) refuseUnsendable(w http.ResponseWriter, err *upstream.RequestError) {
	g.counts.invalid.Add(1)
	if err.TooLarge {
		answer(w, http.StatusRequestHeaderFieldsTooLarge, "the header of this request is larger than the upstream accepts")
		return
	}
	answer(w, http.StatusBadRequest, "this request cannot be passed on")
}

// abandon ends the connection or the stream of a client that has left. A client that only closed
// its sending side would take an empty response for a good one.
func abandon(r *http.Request) {
	if r.Context().Value(http.ServerContextKey) != nil {
		panic(http.ErrAbortHandler)
	}
}

// answerFailed responds to a request whose upstream failed as the route says.
func (g *Gateway) answerFailed(w http.ResponseWriter, r *http.Request, to *route, f failure) {
	said := to.failed
	fallback := func(w http.ResponseWriter) {
		switch {
		case said == nil || said.plain && said.own:
			answer(w, f.status, f.text)
		case said.plain:
			answer(w, said.Status, f.text)
		case said.own:
			own := *said
			own.Status = f.status
			own.Write(w, r, "")
		default:
			said.Write(w, r, "")
		}
	}
	if said == nil || !g.sendFallback(w, r, said, "failed", fallback) {
		fallback(w)
	}
}

// sendFallback responds with the last good response, or with that of another upstream. It reports
// false if the route names neither. If the other upstream fails too, fallback responds.
func (g *Gateway) sendFallback(w http.ResponseWriter, r *http.Request, f *fallbackResponse, why string, fallback func(http.ResponseWriter)) bool {
	if f.stale > 0 && g.answers.give(w, r, f.upstream, f.stale, why) {
		g.counts.stale.Add(1)
		return true
	}
	// A body has been read. ContentLength tells, as net/http sets a Body over HTTP/2 for every request. It is nil
	// of a request that was refused after that.
	if f.other == nil || (why == "failed" || r.Body == nil) && r.ContentLength != 0 {
		return false
	}
	place, err := f.other.place(r.Context(), adaptive.Request{}, nil)
	if err != nil {
		return false
	}
	retryAfter := w.Header()["Retry-After"]
	delete(w.Header(), "Retry-After")
	last := &responseWriter{gateway: g, place: place, fail: func(w http.ResponseWriter, _ failure) {
		if retryAfter != nil {
			w.Header()["Retry-After"] = retryAfter
		}
		fallback(w)
	}}
	if l, ok := w.(*responseWriter); ok {
		last.ResponseWriter, last.tells, last.verdict = l.ResponseWriter, l.tells, l.verdict
		last.cleared = l.cleared
	} else {
		last.ResponseWriter = w
	}
	if place != nil {
		last.waits = clientwait.New(func() { place.Done(weir.Ignore) })
		r = last.waits.Request(r)
		defer func() {
			last.waits.End()
			place.Done(last.served(last.outcome(r)))
		}()
	}
	f.other.serve(last, r)
	last.complete = true
	return true
}

// buffers is a pool of buffers for copying bodies.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) {
	if len(p) == bufferSize {
		b.pool.Put((*[bufferSize]byte)(p))
	}
}
