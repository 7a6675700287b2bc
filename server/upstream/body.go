package upstream

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// sentBody is a request body while it is sent. Before a connection exists, closing it is left to
// RoundTrip, because another target may still get the body.
type sentBody struct {
	*requestBody
	idle *idle
}

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

// Close closes the body, unless nothing of it was read.
func (b *sentBody) Close() error {
	if !b.read.Load() {
		return nil
	}
	return b.real.Close()
}

// idle cancels an exchange in which no byte of a body moves in either direction for the time after.
// It watches while the request's body is sent, and again from the response's header on. In between,
// the response timeout applies.
type idle struct {
	after  time.Duration
	cancel context.CancelCauseFunc
	hook   func(answering bool) // called if it is the client that stalls; may be nil
	base   time.Time
	last   atomic.Int64 // when a byte last moved, relative to base
	reads  atomic.Int32 // reads from the client that are in progress
	waits  atomic.Int32 // reads from the target that are in progress

	mu        sync.Mutex
	timer     *time.Timer
	ended     bool
	answering bool // the response's header was received
	stalled   bool
	client    bool // it was the client that stalled
}

func newIdle(after time.Duration, cancel context.CancelCauseFunc, hook func(bool)) *idle {
	return &idle{after: after, cancel: cancel, hook: hook, base: time.Now()}
}

// moved records that a byte moved.
func (i *idle) moved() { i.last.Store(int64(time.Since(i.base))) }

// start starts to watch.
func (i *idle) start() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.watch()
}

// answers records that the response's header was received.
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

// sent records that the request's body was read to its end.
func (i *idle) sent() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.answering && i.timer != nil {
		i.timer.Stop()
		i.timer = nil
	}
}

// stop stops watching.
func (i *idle) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	if i.timer != nil {
		i.timer.Stop()
	}
}

// look cancels the exchange if nothing has moved for too long.
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
	// Decide which side stalled. The target did if its response is being read, or if it does not
	// take what it is sent. If the client sends nothing while no response comes either, neither of
	// the two is known to be at fault.
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

// OnStalledClient returns a context for a request. If the request is ended because its client
// neither sent nor took a byte for too long, f is called, since cancelling a context does not end a
// blocked read or write. answering is true if the response had begun.
func OnStalledClient(ctx context.Context, f func(answering bool)) context.Context {
	return context.WithValue(ctx, hookKey{}, f)
}

func stalledHook(ctx context.Context) func(bool) {
	f, _ := ctx.Value(hookKey{}).(func(bool))
	return f
}

// answerBody is the body of a response. Its end is the end of the exchange.
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
		b.a.fail(&brokenResponse{err})
	}
	return n, err
}

// Close ends the exchange.
func (b *answerBody) Close() error {
	err := b.ReadCloser.Close()
	b.a.idle.stop()
	b.a.Done(Left, "")
	b.cancel(nil)
	b.a.body.free()
	return err
}

// brokenResponse is the error of a response whose header was complete and whose body was not.
type brokenResponse struct{ err error }

func (e *brokenResponse) Error() string { return "the response ended early: " + Reason(e.err) }
func (e *brokenResponse) Unwrap() error { return e.err }

// upgraded is a connection that switched to another protocol, such as WebSocket. It lasts until
// Close, or until it has been silent in both directions for Timeouts.Upgraded.
type upgraded struct {
	body   io.ReadCloser
	a      *attempt
	cancel context.CancelCauseFunc
	silent *idle
}

func newUpgraded(body io.ReadCloser, a *attempt, cancel context.CancelCauseFunc) *upgraded {
	c := &upgraded{body: body, a: a, cancel: cancel}
	c.silent = newIdle(a.s.spec.Timeouts.Upgraded, func(error) { body.Close() }, nil) // both copies end
	c.silent.answers()
	return c
}

func (c *upgraded) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	c.silent.moved()
	return n, err
}

func (c *upgraded) Write(p []byte) (int, error) {
	w, ok := c.body.(io.Writer)
	if !ok {
		return 0, errors.New("the connection cannot be written to")
	}
	c.silent.moved()
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

// Close closes the connection and ends the exchange.
func (c *upgraded) Close() error {
	c.silent.stop()
	err := c.body.Close()
	c.a.Done(Answered, "")
	c.cancel(nil)
	c.a.body.free()
	return err
}
