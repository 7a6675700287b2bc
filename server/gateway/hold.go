package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
)

// With `hold: until_upstream_ends`, a request is not cut off at the upstream when its client leaves:
// the upstream would go on working for a while, and its place in a concurrency limit would be free.

// maxDiscarded is the most bytes of a response that are read for a client that has left.
const maxDiscarded = 16 << 20

var errDiscarded = errors.New("the client has left, and the response is too long to read to its end")

// holdTime returns how long the requests of a route may go on after their clients have left: as long
// as the upstream may take to respond. It is 0 for a route without `hold`.
func holdTime(file *policyfile.File, r *policy.Route) time.Duration {
	if r.Hold != policy.HoldUntilUpstreamEnds {
		return 0
	}
	for _, u := range file.Policy.Upstreams {
		if u.Name == r.Upstream && u.Timeouts.Response > 0 {
			return u.Timeouts.Response
		}
	}
	return time.Minute
}

// heldWriter writes a response until the client has left, and then discards the rest.
type heldWriter struct {
	http.ResponseWriter
	left      atomic.Bool
	once      sync.Once
	bound     func() // starts the time that is left when the client has left
	discarded int
}

// leave records that the client has left.
func (h *heldWriter) leave() {
	h.left.Store(true)
	h.once.Do(h.bound)
}

// passHeld forwards a request like pass, and goes on for at most the time after the client has left.
func (g *Gateway) passHeld(w *responseWriter, r *http.Request, to *forwarder, v *policy.Verdict, after time.Duration) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	held := &heldWriter{ResponseWriter: w.ResponseWriter}
	held.bound = func() {
		timer := time.AfterFunc(after, cancel)
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	stop := context.AfterFunc(r.Context(), held.leave)
	defer stop()
	w.ResponseWriter = held
	g.pass(w, r.WithContext(ctx), to, v)
	if held.left.Load() {
		w.clientGone = true
		panic(http.ErrAbortHandler) // the response is not complete
	}
}

// Write writes to the client, or discards.
func (h *heldWriter) Write(p []byte) (int, error) {
	if !h.left.Load() {
		n, err := h.ResponseWriter.Write(p)
		if err == nil {
			return n, nil
		}
		h.leave()
	}
	if h.discarded += len(p); h.discarded > maxDiscarded {
		return 0, errDiscarded
	}
	return len(p), nil
}

// FlushError flushes what the client is still there for.
func (h *heldWriter) FlushError() error {
	if !h.left.Load() && http.NewResponseController(h.ResponseWriter).Flush() != nil {
		h.leave()
	}
	return nil
}

// Unwrap lets http.ResponseController reach the connection.
func (h *heldWriter) Unwrap() http.ResponseWriter { return h.ResponseWriter }
