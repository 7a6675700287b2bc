package gateway

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// lasting writes the answer of an upstream. httputil.ReverseProxy clears all header fields after it has passed on an informational answer,
// like 100 or 103: what the client is told about its limits would be gone from the answer that counts. Here it comes back.
type lasting struct {
	http.ResponseWriter
	gateway *Gateway
	tells   func(http.Header, []policy.Evaluated)
	verdict *policy.Verdict
	fail    func(http.ResponseWriter, failure) // answers where the upstream did not
	upload  *upload                            // the request's body; nil for none, and over HTTP/2
	cleared bool

	overloaded bool // the upstream did not answer, or said that it has too much to do
	clientGone bool // the client's request did not come in full, or its answer could not be written
	complete   bool // the answer is
}

// outcome is what limits of concurrency learn from a request that has ended. A client that has left says nothing about the upstream. One that
// is overloaded does: it refused, did not answer in time, or ended the answer before all of it was there.
func (l *lasting) outcome(r *http.Request) weir.Outcome {
	switch {
	case l.clientGone || r.Context().Err() != nil:
		return weir.Ignore
	case l.overloaded || !l.complete:
		return weir.Dropped
	}
	return weir.OK
}

// Write writes a part of the body.
func (l *lasting) Write(p []byte) (int, error) {
	n, err := l.ResponseWriter.Write(p)
	if err != nil {
		l.clientGone = true
	}
	return n, err
}

// WriteHeader writes the header fields.
func (l *lasting) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		l.ResponseWriter.WriteHeader(status)
		l.cleared = true
		return
	}
	if status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout {
		l.overloaded = true
	}
	if l.cleared {
		l.tells(l.Header(), l.verdict.Evaluated())
	}
	l.gateway.sayGoodbye(l.Header())
	if l.upload != nil && status != http.StatusSwitchingProtocols && !l.upload.complete.Load() {
		l.Header().Set("Connection", "close")
	}
	l.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController flush.
func (l *lasting) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// Hijack hands out the connection of what is upgraded, with what the client has sent ahead: httputil.ReverseProxy would lose that.
func (l *lasting) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(l.ResponseWriter).Hijack()
	if err != nil || rw.Reader.Buffered() == 0 {
		return conn, rw, err
	}
	ahead := make([]byte, rw.Reader.Buffered())
	if _, err := io.ReadFull(rw.Reader, ahead); err != nil {
		conn.Close()
		return nil, nil, err
	}
	return &eager{Conn: conn, ahead: ahead}, rw, nil
}

// eager is a connection whose client has sent ahead.
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

// CloseWrite says that no more will be sent.
func (e *eager) CloseWrite() error {
	if half, ok := e.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Leave has each answer from now on end its connection: clients go elsewhere before the server closes, and none of them sends a request
// into a connection that is about to be closed.
func (g *Gateway) Leave() { g.leaving.Store(true) }

func (g *Gateway) sayGoodbye(h http.Header) {
	if g.leaving.Load() {
		h.Set("Connection", "close")
	}
}
