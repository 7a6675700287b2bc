package weir

import (
	"context"
	"errors"
	"io"
)

// NewReader returns a reader of r that keeps a rate of bytes: what it returns is charged to the limiter, one unit for each byte, and
// held back until it may go. No Read returns more than the limit's capacity, so that a burst of some kilobytes or more keeps reads few.
//
// Several readers may share a limiter; they take turns. Idle ones hold nothing back from the others, as bytes are charged once they have
// been read from r. When the context ends, Read returns its error; a *LimitedError is returned for the reasons for which Wait returns one.
// Bytes that were read from r by then are kept for the next Read. Like most readers it is not safe for concurrent use.
func NewReader(ctx context.Context, r io.Reader, l *Limiter) io.Reader {
	return &reader{src: r, l: l, pay: func(n int64) error { return l.Wait(ctx, n) }, ended: ctx.Err}
}

// NewWriter returns a writer to w that keeps a rate of bytes: each one is charged to the limiter, and written when it may go, in pieces of
// at most the limit's capacity. When the context ends, or Wait would return a *LimitedError, Write returns that error with the number of
// bytes that had been written. Several writers may share a limiter; they take turns. It is as safe for concurrent use as w is, but pieces
// of concurrent Writes may come between each other.
func NewWriter(ctx context.Context, w io.Writer, l *Limiter) io.Writer {
	return writer{dst: w, l: l, pay: func(n int64) error { return l.Wait(ctx, n) }}
}

// piece is the most bytes that are asked for at once.
func (l *Limiter) piece(n int) int {
	return int(min(int64(n), max(l.Peek(0).Limit, 1)))
}

// outgrown reports whether an error means that a cost fits no more, as the limit was lowered meanwhile: then a smaller piece may.
func (l *Limiter) outgrown(n int, err error) bool {
	var limited *LimitedError
	return errors.As(err, &limited) && limited.Decision.RetryAfter == Never && l.piece(n) < n
}

type reader struct {
	src   io.Reader
	l     *Limiter
	pay   func(n int64) error // waits until so many bytes may go
	ended func() error
	held  []byte // read, and not paid for yet
	err   error  // what src returned with the last of them
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ended(); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if len(r.held) == 0 {
		n, err := r.src.Read(p[:r.l.piece(len(p))])
		if n == 0 {
			return 0, err
		}
		failed := r.pay(int64(n))
		if failed == nil {
			return n, err
		}
		r.held, r.err = append(r.held[:0], p[:n]...), err
		if !r.l.outgrown(n, failed) {
			return 0, failed
		}
	}
	for {
		n := r.l.piece(min(len(p), len(r.held)))
		if err := r.pay(int64(n)); err != nil {
			if r.l.outgrown(n, err) {
				continue
			}
			return 0, err
		}
		copy(p, r.held[:n])
		if r.held = r.held[n:]; len(r.held) > 0 {
			return n, nil
		}
		return n, r.err
	}
}

type writer struct {
	dst io.Writer
	l   *Limiter
	pay func(n int64) error
}

func (w writer) Write(p []byte) (written int, err error) {
	if len(p) == 0 {
		return w.dst.Write(p)
	}
	for written < len(p) {
		n := w.l.piece(len(p) - written)
		if err := w.pay(int64(n)); err != nil {
			if w.l.outgrown(n, err) {
				continue
			}
			return written, err
		}
		m, err := w.dst.Write(p[written : written+n])
		written += m
		if err == nil && m < n {
			err = io.ErrShortWrite
		}
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
