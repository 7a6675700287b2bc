package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/weirflow/weir/weirhttp"
)

// newTransport is how upstreams are spoken to. Idle connections go before most upstreams would end them.
func newTransport() *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		ResponseHeaderTimeout:  60 * time.Second,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        50 * time.Second,
		MaxIdleConns:           4096,
		MaxIdleConnsPerHost:    1024,
		MaxResponseHeaderBytes: 256 << 10,
		DisableCompression:     true, // what the client asked for is what the upstream is asked for
	}
}

// proxy passes requests on to an upstream as they are: the same method, path, query, host and body.
func (g *Gateway) proxy(name string, target *url.URL, trusted []netip.Prefix) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:  g.transport,
		BufferPool: &buffers{},
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = target.Scheme, target.Host
			p.Out.URL.RawQuery = p.In.URL.RawQuery // also what does not parse
			p.Out.Host = p.In.Host
			forward(p, trusted)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { g.fail(w, r, name, err) },
		ErrorLog:     slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
}

// forward sets X-Forwarded-For, -Host and -Proto. What came in is believed, and added to, only where the peer is trusted.
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

// fail answers a request whose upstream did not.
func (g *Gateway) fail(w http.ResponseWriter, r *http.Request, upstream string, err error) {
	if g.failedBody(w, r, err) {
		return
	}
	if r.Context().Err() != nil {
		g.counts.canceled.Add(1)
		return // the client is gone
	}
	g.counts.upstreamFailed.Add(1)
	if g.errorLog.Allow() {
		g.log.Warn("upstream failed", "upstream", upstream, "error", reason(err))
	}
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout():
		answer(w, http.StatusGatewayTimeout, "the upstream did not answer in time")
	default:
		answer(w, http.StatusBadGateway, "the upstream cannot be reached")
	}
}

// reason is an error without the addresses in it, of which one may be a client's.
func reason(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}

// buffers lends the proxy what it copies bodies with.
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
