package upstream

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// sentBody is the body of a request on its way. Closing it is left to RoundTrip until a connection is there: another target may be sent it.
type sentBody struct {
	*requestBody
	idle *idle
}

// Read reads from the client.
func (b *sentBody) Read(p []byte) (int, error) {
	b.read.Store(true)
	b.idle.start()
	b.idle.reads.Add(1)
	n, err := b.real.Read(p)
	b.idle.reads.Add(-1)
	b.idle.moved()
	switch {
	case err == io.EOF:
		b.idle.sent()
	case err != nil:
		b.broken.Store(true)
		err = &clientError{err}
	}
	return n, err
}

// Close ends the body, unless nothing of it was read.
func (b *sentBody) Close() error {
	if !b.read.Load() {
		return nil
	}
	return b.real.Close()
}

// idle ends an exchange in which no byte of a body moves in either direction. It watches while the request's body is sent, and from the answer's
// header on; in between, the time for an answer runs.
type idle struct {
	after  time.Duration
	cancel context.CancelCauseFunc
	hook   func(answering bool) // called where it is the client who stands still; may be nil
	base   time.Time
	last   atomic.Int64 // when a byte moved, since the base
	reads  atomic.Int32 // reads from the client that are under way
	waits  atomic.Int32 // reads from the target that are under way

	mu        sync.Mutex
	timer     *time.Timer
	ended     bool
	answering bool // the answer's header is there
	stalled   bool
	client    bool // it was the client who stood still
}

func newIdle(after time.Duration, cancel context.CancelCauseFunc, hook func(bool)) *idle {
	return &idle{after: after, cancel: cancel, hook: hook, base: time.Now()}
}

// moved notes that a byte moved.
func (i *idle) moved() { i.last.Store(int64(time.Since(i.base))) }

// start begins to watch.
func (i *idle) start() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.watch()
}

// answers says that the answer's header is there.
func (i *idle) answers() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answering = true
	i.watch()
}

func (i *idle) watch() {
	i.moved()
	if i.timer == nil && !i.ended {
		i.timer = time.AfterFunc(i.after, i.look)
	}
}

// sent says that the request's body has been read to its end.
func (i *idle) sent() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.answering && i.timer != nil {
		i.timer.Stop()
		i.timer = nil
	}
}

// stop ends the watch.
func (i *idle) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	if i.timer != nil {
		i.timer.Stop()
	}
}

// look ends the exchange if nothing has moved for too long.
func (i *idle) look() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended || i.timer == nil {
		return
	}
	if still := time.Since(i.base) - time.Duration(i.last.Load()); still < i.after {
		i.timer.Reset(i.after - still)
		return
	}
	// The target is waited for where its answer is read, or where what it is sent does not get away. A client that sends nothing while its
	// answer does not come either is not known to be at fault, nor is the target.
	i.client = i.reads.Load() > 0 || i.answering && i.waits.Load() == 0
	i.stalled, i.ended = true, true
	i.cancel(ErrStalled)
	if i.client && i.hook != nil {
		i.hook(i.answering)
	}
}

func (i *idle) clientStalled() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.client
}

func (i *idle) hasStalled() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stalled
}

type hookKey struct{}

// OnStalledClient returns a context for a request, whose function is called when the request is ended because its client neither sent nor took
// a byte for too long: cancelling alone does not end a read or a write that blocks. answering is true where the answer had begun.
func OnStalledClient(ctx context.Context, f func(answering bool)) context.Context {
	return context.WithValue(ctx, hookKey{}, f)
}

func stalledHook(ctx context.Context) func(bool) {
	f, _ := ctx.Value(hookKey{}).(func(bool))
	return f
}

// answerBody is the body of an answer. When it has ended, the exchange has.
type answerBody struct {
	io.ReadCloser
	a      *attempt
	cancel context.CancelCauseFunc
}

// Read reads from the target.
func (b *answerBody) Read(p []byte) (int, error) {
	i := b.a.idle
	i.waits.Add(1)
	n, err := b.ReadCloser.Read(p)
	i.waits.Add(-1)
	i.moved()
	switch {
	case err == nil:
	case err == io.EOF:
		i.stop()
		b.a.Done(Answered, "")
	default:
		if i.hasStalled() {
			err = ErrStalled
		}
		i.stop()
		b.a.fail(&brokenAnswer{err})
	}
	return n, err
}

// Close ends the exchange.
func (b *answerBody) Close() error {
	err := b.ReadCloser.Close()
	b.a.idle.stop()
	b.a.Done(Left, "")
	b.cancel(nil)
	return err
}

// brokenAnswer is an answer whose header came, and whose body did not come to its end.
type brokenAnswer struct{ err error }

func (e *brokenAnswer) Error() string { return "an answer ended early: " + Reason(e.err) }
func (e *brokenAnswer) Unwrap() error { return e.err }

// upgraded is a connection that speaks another protocol now, like WebSocket. It lasts until Close, however silent it is.
type upgraded struct {
	body   io.ReadCloser
	a      *attempt
	cancel context.CancelCauseFunc
}

func (c *upgraded) Read(p []byte) (int, error) { return c.body.Read(p) }

func (c *upgraded) Write(p []byte) (int, error) {
	w, ok := c.body.(io.Writer)
	if !ok {
		return 0, errors.New("the connection cannot be written to")
	}
	return w.Write(p)
}

// CloseWrite tells the target that the client sends no more.
func (c *upgraded) CloseWrite() error {
	if conn := c.a.conn.Load(); conn != nil {
		if half, ok := (*conn).(interface{ CloseWrite() error }); ok {
			return half.CloseWrite()
		}
	}
	return errors.New("the connection cannot be closed on one side")
}

// Close ends the connection, and the exchange.
func (c *upgraded) Close() error {
	err := c.body.Close()
	c.a.Done(Answered, "")
	c.cancel(nil)
	return err
}
