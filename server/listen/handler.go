package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/weirflow/weir/policy"
)

type (
	connKey struct{}
	tlsKey  struct{}
)

// ConnContext is for http.Server. Handler finds the connection by it.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if state := tlsOf(conn); state != nil {
		ctx = context.WithValue(ctx, tlsKey{}, state)
	}
	if c := ConnOf(conn); c != nil {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// AddressOf is the address of the listener that a request came to, as the policy says it; empty
// where that is not known.
func AddressOf(ctx context.Context) string {
	if c, ok := ctx.Value(connKey{}).(*Conn); ok {
		return c.listener.Address
	}
	return ""
}

// ErrBodySlow is the error of reading a body that arrives too slowly.
var ErrBodySlow = errors.New("listen: the body came too slowly")

// Handler checks each request before next: it refuses ambiguous and oversized requests, and removes
// upgrades that would bypass the gateway. A body that arrives too slowly ends with ErrBodySlow.
func (p *Port) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.count(r)
		if c, ok := r.Context().Value(connKey{}).(*Conn); ok && c.endRest() {
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a closed connection is noticed elsewhere
		}
		if state, ok := r.Context().Value(tlsKey{}).(*tls.ConnectionState); ok {
			r.TLS = state
		}
		var body *pacedBody
		if r.Body != nil && r.ContentLength != 0 { // first: net/http also reads the bodies of requests that are refused here
			body = p.newPacedBody(w, r)
			defer body.end()
			r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, body))
			r.Body = body
		}
		if status := p.check(r); status != 0 {
			refuse(w, status)
			p.tell(r, status)
			return
		}
		if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
			if port := c.listener.RedirectHTTPS; port != "" {
				p.tell(r, redirect(w, r, port, c.listener.RedirectHosts))
				return
			}
			if n := p.bounds.MaxRequests; n > 0 && c.requests.Add(1) >= int64(n) {
				// for HTTP/2, this ends the connection after the requests in flight
				w.Header().Set("Connection", "close")
			}
		}
		if r.Close && !r.ProtoAtLeast(1, 1) {
			// net/http keeps the connection for keep-alive, also beside close
			w.Header().Set("Connection", "close")
		}
		if r.Header["Upgrade"] != nil || r.Header["Http2-Settings"] != nil {
			if onlyWebSocket(r); r.Header["Upgrade"] != nil {
				w = &upgradable{ResponseWriter: w, body: body}
			}
		}
		if r.ProtoMajor == 2 {
			s := newStream(w, p.bounds.WriteTimeout)
			defer s.stop()
			w = s
		}
		next.ServeHTTP(w, r)
	})
}

func (p *Port) count(r *http.Request) {
	switch {
	case r.ProtoMajor == 2:
		p.counts.http2.Add(1)
	case r.ProtoMinor == 0:
		p.counts.http10.Add(1)
	default:
		p.counts.http11.Add(1)
	}
}

// check returns the status to refuse a request with, 0 to accept it. Requests of HTTP/1 have passed
// the guard before.
func (p *Port) check(r *http.Request) int {
	n := 0
	for _, values := range r.Header {
		n += len(values)
	}
	if n > p.bounds.MaxFields {
		p.counts.fields.Add(1)
		return http.StatusRequestHeaderFieldsTooLarge
	}
	if !isRequest(r) {
		p.counts.unclear.Add(1)
		return http.StatusBadRequest
	}
	return 0
}

// OnRefused calls f after each request that Handler refuses, with the status. It must be called
// before the port serves.
func (p *Port) OnRefused(f func(r *http.Request, status int)) { p.refused = f }

func (p *Port) tell(r *http.Request, status int) {
	if p.refused != nil {
		p.refused(r, status)
	}
}

// redirect redirects a request to HTTPS, and returns the status. It redirects only to hosts of the
// list, if there is one: a host that is not the operator's would lend its name to the redirect.
func redirect(w http.ResponseWriter, r *http.Request, port string, hosts []string) (status int) {
	host := r.Host
	if len(hosts) > 0 && !policy.IsHostAmong(host, hosts) {
		refuse(w, http.StatusMisdirectedRequest)
		return http.StatusMisdirectedRequest
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
		if strings.IndexByte(h, ':') >= 0 {
			host = "[" + h + "]"
		}
	}
	if host == "" {
		refuse(w, http.StatusBadRequest)
		return http.StatusBadRequest
	}
	if port != "443" {
		host += ":" + port
	}
	status = http.StatusPermanentRedirect
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		status = http.StatusMovedPermanently
	}
	w.Header().Set("Location", "https://"+host+r.URL.RequestURI())
	refuse(w, status)
	return status
}

func refuse(w http.ResponseWriter, status int) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	if status >= 400 {
		h.Set("Cache-Control", "no-store")
		h.Set("Connection", "close")
	}
	w.WriteHeader(status)
	io.WriteString(w, http.StatusText(status)+"\n")
}
