package gateway

import (
	"bufio"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/weirflow/weir/server/accesslog"
)

// SetAccessLog changes the access log; nil is none. It returns the log before, to which requests in
// flight may still write.
func (g *Gateway) SetAccessLog(l *accesslog.Log) (before *accesslog.Log) { return g.accessLog.Swap(l) }

// Refused logs a request that was refused before it reached the gateway.
func (g *Gateway) Refused(r *http.Request, status int) {
	if g.accessLog.Load() == nil {
		return
	}
	client, _ := g.state.Load().client(r)
	rec := newRecord(nil, r, client, g)
	rec.entry.Status = status
	if r.Method != http.MethodHead {
		rec.entry.Bytes = int64(len(http.StatusText(status)) + len("\n"))
	}
	rec.write()
}

// Decisions in the access log, beside the outcomes of the policy.
const (
	tooLarge  = "too_large"
	ambiguous = "ambiguous"
)

// record collects the fields of an access log line. Without a log it is nil, and its own methods do
// nothing.
type record struct {
	http.ResponseWriter
	entry accesslog.Entry
	asked time.Time // when the request was forwarded
	to    *Gateway  // whose log the line goes to
}

func newRecord(w http.ResponseWriter, r *http.Request, client netip.Addr, to *Gateway) *record {
	rec := &record{ResponseWriter: w, to: to}
	user, _, _ := r.BasicAuth()
	rec.entry = accesslog.Entry{
		Time: time.Now(), Client: client, User: user, Method: r.Method, Target: r.RequestURI, Protocol: r.Proto, Host: r.Host,
		Referer: r.Referer(), Agent: r.UserAgent(),
	}
	if r.TLS != nil {
		rec.entry.TLS = "1.2"
		if r.TLS.Version == tls.VersionTLS13 {
			rec.entry.TLS = "1.3"
		}
	}
	return rec
}

// recordOf finds the record in a response writer, nil for none.
func recordOf(w http.ResponseWriter) *record {
	for {
		switch inner := w.(type) {
		case *record:
			return inner
		case interface{ Unwrap() http.ResponseWriter }:
			w = inner.Unwrap()
		default:
			return nil
		}
	}
}

// decided records the decision of the limits.
func (rec *record) decided(what, limit string, delay time.Duration) {
	if rec != nil {
		rec.entry.Decision, rec.entry.Limit, rec.entry.Delay = what, limit, delay
	}
}

// passed records that the request is forwarded to an upstream.
func (rec *record) passed(upstream string) {
	if rec != nil {
		rec.entry.Upstream, rec.asked = upstream, time.Now()
	}
}

// write writes the line, to the log that is in force now: a request may have waited, and the log that was then is closed.
func (rec *record) write() {
	if rec == nil {
		return
	}
	rec.entry.Duration = time.Since(rec.entry.Time)
	if !rec.asked.IsZero() && rec.entry.UpstreamTime == 0 {
		rec.entry.UpstreamTime = time.Since(rec.asked)
	}
	if log := rec.to.accessLog.Load(); log != nil {
		log.Write(&rec.entry)
	}
}

// WriteHeader records the status.
func (rec *record) WriteHeader(status int) {
	if rec.entry.Status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		rec.answers(status)
	}
	rec.ResponseWriter.WriteHeader(status)
}

func (rec *record) answers(status int) {
	rec.entry.Status = status
	if !rec.asked.IsZero() {
		rec.entry.UpstreamTime = max(time.Since(rec.asked), 1)
	}
}

// Write counts the bytes of the response.
func (rec *record) Write(p []byte) (int, error) {
	if rec.entry.Status == 0 {
		rec.answers(http.StatusOK)
	}
	n, err := rec.ResponseWriter.Write(p)
	rec.entry.Bytes += int64(n)
	return n, err
}

// Hijack records the response that switches protocols.
func (rec *record) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(rec.ResponseWriter).Hijack()
	if err == nil {
		rec.answers(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// Unwrap is for http.ResponseController.
func (rec *record) Unwrap() http.ResponseWriter { return rec.ResponseWriter }
