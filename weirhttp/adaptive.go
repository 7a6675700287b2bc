package weirhttp

import (
	"bufio"
	"net"
	"net/http"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/clientwait"
	"github.com/weirflow/weir/policy"
)

// judged lets an adaptive limit hear of an overload that the handler reports by its status. end leaves the
// limit. The duration of a request with a slow client says nothing about the handler.
func judged(w http.ResponseWriter, r *http.Request, v *policy.Verdict) (_ http.ResponseWriter, _ *http.Request, end func(weir.Outcome)) {
	if !v.Measured() {
		return w, r, func(weir.Outcome) {}
	}
	// a client that hardly takes the response keeps no place: the handler has done its work
	x := &judgedWriter{ResponseWriter: w, verdict: v, waits: clientwait.New(func() { v.LeaveAdaptive(weir.Ignore) })}
	return x, x.waits.Request(r), func(o weir.Outcome) {
		x.waits.End()
		switch {
		case o != weir.OK:
		case x.overloaded:
			o = weir.Dropped
		case x.waits.Most():
			o = weir.Ignore
		}
		v.LeaveAdaptive(o)
	}
}

// judgedWriter passes a response on, and reads its status.
type judgedWriter struct {
	http.ResponseWriter
	verdict    *policy.Verdict
	overloaded bool
	waits      *clientwait.Waits
}

// Write passes a part of the body on, and measures how long the client takes to take it.
func (j *judgedWriter) Write(p []byte) (n int, err error) {
	_ = j.waits.Write(len(p), func() error {
		n, err = j.ResponseWriter.Write(p)
		return err
	})
	return n, err
}

// WriteHeader writes the header.
func (j *judgedWriter) WriteHeader(status int) {
	if status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout || status == http.StatusTooManyRequests {
		j.overloaded = true
	}
	j.ResponseWriter.WriteHeader(status)
}

// Hijack hands out the connection of a request that switches to another protocol. The request leaves the
// limit: the connection may last for hours without being work.
func (j *judgedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(j.ResponseWriter).Hijack()
	if err == nil {
		j.verdict.LeaveAdaptive(weir.OK)
	}
	return conn, rw, err
}

// Flush is of http.Flusher, which handlers of streams look for.
func (j *judgedWriter) Flush() {
	_ = j.waits.Write(-1, http.NewResponseController(j.ResponseWriter).Flush) // the next write meets the error
}

// Unwrap lets http.ResponseController reach the connection.
func (j *judgedWriter) Unwrap() http.ResponseWriter { return j.ResponseWriter }
