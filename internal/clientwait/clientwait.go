// Package clientwait measures for how long a request has waited for its client, to send its body or to take
// the response. That is no latency of the service.
package clientwait

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Waits are those of a request. A nil *Waits measures nothing. It is safe for concurrent use.
type Waits struct {
	began time.Time
	sum   atomic.Int64 // nanoseconds
	slow  func()       // nil for none

	mu    sync.Mutex
	sent  int64 // bytes of the response
	timer *time.Timer
	ended bool
}

// New begins to measure a request. slow is called once, perhaps in another goroutine, when the client has been
// the cause of most of the duration and has taken a second or more to take the response; nil for none.
func New(slow func()) *Waits { return &Waits{began: time.Now(), slow: slow} }

// Restart starts over. Nothing may be read or written meanwhile.
func (w *Waits) Restart() {
	if w != nil {
		w.began = time.Now()
		w.sum.Store(0)
	}
}

// end adds the wait that has begun then.
func (w *Waits) end(began time.Time) { w.sum.Add(int64(time.Since(began))) }

const (
	// least is what counts as a wait: to write to a fast client may take a quarter of a very short request, too.
	least = time.Millisecond

	tooSlow = time.Second
	// unwatched is how many bytes fit into the buffers of a connection: to send them takes no time.
	unwatched = 16 << 10
)

// Most reports whether the client is the cause of much of the duration: of a quarter or more, and of a
// millisecond at least.
func (w *Waits) Most() bool {
	return w != nil && w.sum.Load() >= int64(least) && 4*w.sum.Load() > int64(time.Since(w.began))
}

// Write measures a function that writes so many bytes to the client; below 0: it waits until the client
// has taken all.
func (w *Waits) Write(n int, write func() error) error {
	if w == nil {
		return write()
	}
	watched := w.watch(n)
	began := time.Now()
	err := write()
	w.end(began)
	if watched {
		w.rest()
	}
	return err
}

// watch begins to watch a write, unless it takes no time.
func (w *Waits) watch(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent += int64(max(n, 0))
	if w.slow == nil || w.ended || n >= 0 && w.sent <= unwatched {
		return false
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(tooSlow, w.isSlow)
	} else {
		w.timer.Reset(tooSlow)
	}
	return true
}

// rest ends the watch over a write. Many writes may be slow together.
func (w *Waits) rest() {
	w.mu.Lock()
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	if sum := w.sum.Load(); sum >= int64(tooSlow) && 2*sum > int64(time.Since(w.began)) {
		w.isSlow()
	}
}

// isSlow calls slow, unless the request has ended.
func (w *Waits) isSlow() {
	w.mu.Lock()
	ended := w.ended
	w.ended = true
	w.mu.Unlock()
	if !ended {
		w.slow()
	}
}

// End ends the watch. slow is not called any more, but may be running.
func (w *Waits) End() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.timer != nil {
		w.timer.Stop()
	}
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
	began := time.Now()
	n, err := b.ReadCloser.Read(p)
	b.waits.end(began)
	return n, err
}
