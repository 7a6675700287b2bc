package weir

import (
	"context"
	"errors"
	"io"
)

// NewReader returns a reader of r that limits a rate of bytes. Each byte is charged as one unit,
// and held back until it may go. No Read returns more than the limit's capacity, so a burst of
// several kilobytes keeps the number of reads low.
//
// Several readers may share a limiter; they take turns. An idle reader does not slow down the
// others, as bytes are charged only after they have been read from r. Like most readers, it is not
// safe for concurrent use.
//
// When the context ends, Read returns its error. When Wait would return a *LimitedError, so does
// Read. Bytes that were already read from r are kept for the next Read.
func NewReader(ctx context.Context, r io.Reader, l *Limiter) io.Reader {
	return &reader{src: r, l: l, pay: func(n int64) error { return l.Wait(ctx, n) }, ended: ctx.Err}
}

// NewWriter returns a writer to w that limits a rate of bytes. Each byte is charged as one unit,
// and written when it may go, in pieces of at most the limit's capacity. Several writers may share
// a limiter; they take turns.
//
// When the context ends, or Wait would return a *LimitedError, Write returns that error and the
// number of bytes already written. It is as safe for concurrent use as w is, but pieces of
// concurrent Writes may interleave.
func NewWriter(ctx context.Context, w io.Writer, l *Limiter) io.Writer {
	return writer{dst: w, l: l, pay: func(n int64) error { return l.Wait(ctx, n) }}
}

// chunk returns how many of n bytes to charge at once.
func (l *Limiter) chunk(n int) int {
	return int(min(int64(n), max(l.Peek(0).Limit, 1)))
}

// limitLowered reports whether err means that the limit was lowered, so that n no longer fits but a
// smaller piece may.
func (l *Limiter) limitLowered(n int, err error) bool {
	var limited *LimitedError
	return errors.As(err, &limited) && limited.Decision.RetryAfter == Never && l.chunk(n) < n
}

type reader struct {
	src   io.Reader
	l     *Limiter
	pay   func(n int64) error // waits until n bytes may go
	ended func() error
	held  []byte // read from src, but not charged yet
	err   error  // the error that src returned with the last bytes of held
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ended(); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if len(r.held) == 0 {
		n, err := r.src.Read(p[:r.l.chunk(len(p))])
		if n == 0 {
			return 0, err
		}
		failed := r.pay(int64(n))
		if failed == nil {
			return n, err
		}
		r.held, r.err = append(r.held[:0], p[:n]...), err
		if !r.l.limitLowered(n, failed) {
			return 0, failed
		}
	}
	for {
		n := r.l.chunk(min(len(p), len(r.held)))
		if err := r.pay(int64(n)); err != nil {
			if r.l.limitLowered(n, err) {
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
		n := w.l.chunk(len(p) - written)
		if err := w.pay(int64(n)); err != nil {
			if w.l.limitLowered(n, err) {
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
