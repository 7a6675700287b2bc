package gateway

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/clientwait"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/upstream"
)

// responseWriter writes the response of an upstream. httputil.ReverseProxy and plain.Client clear all
// header fields after an informational response like 103: the fields about limits would be missing
// from the final one, so responseWriter sets them again.
type responseWriter struct {
	http.ResponseWriter
	gateway *Gateway
	tells   func(http.Header, []policy.Evaluated)
	verdict *policy.Verdict
	// These say how to respond in place of an upstream that failed: as a route says, or by a
	// function. Without either, the response is the gateway's own.
	route   *route
	request *http.Request // as the client has sent it
	fail    func(http.ResponseWriter, failure)
	meter   *policy.Meter // reads what the request has cost; nil for none
	streams bool          // its cost is in a body without a length, whose parts go on at once
	upload  *upload       // the request's body; nil for none, and over HTTP/2
	cleared bool          // the header was cleared after an informational response
	// the connection of an upgraded request whose cost is read; nil for none
	upgraded *countedConn

	overloaded bool              // the upstream did not respond, or said that it is overloaded
	notSent    bool              // this process lacked what it takes to send the request
	clientGone bool              // the request did not arrive in full, or the response could not be written
	complete   bool              // the response is
	wroteBody  bool              // a part of its body was written
	whole      bool              // the upstream's response was read to its end
	noResponse bool              // there was none from an upstream
	place      *upstream.Place   // at the adaptive limits of the upstream; nil for none
	enter      enterLater        // takes the places at adaptive limits; nil if they are taken
	waits      *clientwait.Waits // nil unless the duration of the request is measured
	unsent     bool              // no upstream has got a byte of the request
	own        bool              // the response is the gateway's, for a request that its client has spoiled
}

// outcome is how a request ended, for concurrency limits. A client that left says nothing about the
// upstream, and neither does a request that was not sent. An upstream that refused, did not respond in time, or broke off is overloaded.
func (l *responseWriter) outcome(r *http.Request) weir.Outcome {
	switch {
	case l.clientGone || l.notSent || r.Context().Err() != nil:
		return weir.Ignore
	case l.overloaded || !l.complete:
		return weir.Dropped
	}
	return grpcOutcome(l.Header())
}

// grpcOutcome is what the status of gRPC says, which comes with HTTP's 200: after the message, or in the header if
// there is none.
func grpcOutcome(h http.Header) weir.Outcome {
	if !strings.HasPrefix(h.Get("Content-Type"), "application/grpc") {
		return weir.OK
	}
	status := h["Grpc-Status"]
	if status == nil {
		status = h[http.TrailerPrefix+"Grpc-Status"]
	}
	switch strings.Join(status, ",") {
	case "4", "8", "14": // DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE
		return weir.Dropped
	case "1": // CANCELLED
		return weir.Ignore
	}
	return weir.OK
}

// drain waits until a response over HTTP/2 has gone, if the request holds a place. net/http keeps up
// to 4 KiB of a response until its handler returns, and then waits for the client's window: the
// place would be free while the response is still in flight. A response without a body is not flushed:
// its header would then not end the stream, and gRPC takes a status for one only if it does.
func (l *responseWriter) drain(r *http.Request) {
	if l.complete && l.wroteBody && r.ProtoMajor == 2 && l.verdict.Holds() && r.Context().Err() == nil {
		if l.waits.Write(-1, http.NewResponseController(l.ResponseWriter).Flush) != nil {
			l.clientGone = true
		}
	}
}

// Write writes a part of the body.
func (l *responseWriter) Write(p []byte) (int, error) {
	l.wroteBody = true
	var n int
	err := l.waits.Write(len(p), func() (err error) {
		n, err = l.ResponseWriter.Write(p)
		return err
	})
	if err != nil {
		l.clientGone = true
	}
	if l.streams && err == nil { // whoever copies the response flushes it next; reading it may take longer than sending it
		_ = http.NewResponseController(l.ResponseWriter).Flush() // the next write meets the error
	}
	l.meter.Write(p) // after the client has it
	return n, err
}

// FlushError sends what was written, for a stream.
func (l *responseWriter) FlushError() error {
	return l.waits.Write(-1, http.NewResponseController(l.ResponseWriter).Flush)
}

// WriteHeader writes the header fields.
func (l *responseWriter) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		l.cleared = true
		if status != http.StatusContinue { // net/http sends it when the body is read, which the upstream's 100 causes
			l.ResponseWriter.WriteHeader(status)
		}
		return
	}
	if status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout || status == http.StatusTooManyRequests {
		l.overloaded = true
	}
	if !l.own { // its status says nothing about what the upstream has done
		l.meter.Header(status, l.Header())
		l.streams = l.meter.ReadsBody() && l.Header()["Content-Length"] == nil
	}
	if l.cleared {
		l.tells(l.Header(), l.verdict.Evaluated())
	}
	l.gateway.closeIfLeaving(l.Header())
	if l.upload != nil && status != http.StatusSwitchingProtocols && !l.upload.complete.Load() {
		l.Header().Set("Connection", "close")
	}
	l.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController flush.
func (l *responseWriter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// Hijack hands out the connection of an upgraded request with the bytes that the client has already
// sent: httputil.ReverseProxy would lose them.
func (l *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(l.ResponseWriter).Hijack()
	if err != nil {
		return conn, rw, err
	}
	l.leaveAdaptive(weir.OK)
	if rw.Reader.Buffered() > 0 {
		if conn, err = readAhead(conn, rw); err != nil {
			return nil, nil, err
		}
	}
	if l.meter != nil {
		l.upgraded = &countedConn{Conn: conn}
		conn = l.upgraded
	}
	return conn, rw, nil
}

// readAhead returns a connection whose first bytes are those that were already read from it.
func readAhead(conn net.Conn, rw *bufio.ReadWriter) (net.Conn, error) {
	ahead := make([]byte, rw.Reader.Buffered())
	if _, err := io.ReadFull(rw.Reader, ahead); err != nil {
		conn.Close()
		return nil, err
	}
	return &eager{Conn: conn, ahead: ahead}, nil
}

// eager is a connection with bytes that were already read from it.
type eager struct {
	net.Conn
	ahead []byte
}

func (e *eager) Read(p []byte) (int, error) {
	if len(e.ahead) == 0 {
		return e.Conn.Read(p)
	}
	n := copy(p, e.ahead)
	e.ahead = e.ahead[n:]
	return n, nil
}

// CloseWrite closes the sending side.
func (e *eager) CloseWrite() error {
	if half, ok := e.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// countedConn counts the bytes of both directions.
type countedConn struct {
	net.Conn
	bytes atomic.Int64
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// Write counts first: the client has the bytes before Write returns, and the request may end meanwhile.
func (c *countedConn) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	n, err := c.Conn.Write(p)
	c.bytes.Add(int64(n - len(p)))
	return n, err
}

// CloseWrite closes the sending side.
func (c *countedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Leave makes each response from now on close its connection. So clients reconnect elsewhere before
// the server closes, and none of them sends a request into a connection that is about to be closed.
func (g *Gateway) Leave() { g.leaving.Store(true) }

func (g *Gateway) closeIfLeaving(h http.Header) {
	if g.leaving.Load() {
		h.Set("Connection", "close")
	}
}
