// Package clientwait measures for how long a request has waited for its client, to send its body or to take
// the response. That is no latency of the service.
package clientwait

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// Waits are those of a request. A nil *Waits measures nothing. It is safe for concurrent use.
type Waits struct {
	began time.Time
	sum   atomic.Int64 // nanoseconds
}

// New begins to measure a request.
func New() *Waits { return &Waits{began: time.Now()} }

// Restart begins anew: nobody reads or writes meanwhile.
func (w *Waits) Restart() {
	if w != nil {
		w.began = time.Now()
		w.sum.Store(0)
	}
}

// Begin returns the time at which a wait may begin.
func (w *Waits) Begin() (t time.Time) {
	if w != nil {
		t = time.Now()
	}
	return t
}

// End adds the wait that has begun then.
func (w *Waits) End(began time.Time) {
	if w != nil {
		w.sum.Add(int64(time.Since(began)))
	}
}

// least is what counts as a wait: to write to a fast client may take a quarter of a very short request, too.
const least = time.Millisecond

// Most reports whether the client is the cause of much of the duration: of a quarter or more, and of a
// millisecond at least.
func (w *Waits) Most() bool {
	return w != nil && w.sum.Load() >= int64(least) && 4*w.sum.Load() > int64(time.Since(w.began))
}

// Request returns a request whose body measures how long the client takes to send it.
func (w *Waits) Request(r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return r
	}
	next := *r
	next.Body = &body{r.Body, w}
	return &next
}

type body struct {
	io.ReadCloser
	waits *Waits
}

// Read reads a part of the body.
func (b *body) Read(p []byte) (int, error) {
	began := b.waits.Begin()
	n, err := b.ReadCloser.Read(p)
	b.waits.End(began)
	return n, err
}
