package weir_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
)

// kilobytes is 1000 bytes per second, 100 at once.
var kilobytes = weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 100}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 2})
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var at []time.Duration
		for i, err := range l.Pace(ctx, 1) {
			if err != nil {
				if !errors.Is(err, context.Canceled) || i != 5 {
					t.Errorf("%d, %v", i, err)
				}
				at = append(at, -time.Since(start))
				continue // it ends all the same
			}
			if at = append(at, time.Since(start)); i == 4 {
				time.AfterFunc(50*time.Millisecond, cancel)
			}
		}
		const ms = time.Millisecond
		want := []time.Duration{0, 0, 100 * ms, 200 * ms, 300 * ms, -350 * ms}
		if len(at) != len(want) {
			t.Fatal(at)
		}
		for i := range at {
			if at[i] != want[i] {
				t.Errorf("%v, want %v", at, want)
			}
		}

		// A deadline before the next turn is an error at once. A loop that breaks off has been
		// charged for its rounds alone.
		ctx, cancel = context.WithTimeout(t.Context(), 10*ms)
		defer cancel()
		for _, err := range l.Pace(ctx, 1) {
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, weir.ErrLimited) || ctx.Err() != nil {
				t.Error(err)
			}
		}
		<-time.After(time.Second)
		for range l.Pace(t.Context(), 1) {
			break
		}
		if d := l.Peek(1); d.Remaining != 1 {
			t.Errorf("%+v", d)
		}
		for _, err := range l.Pace(t.Context(), 3) {
			if !errors.Is(err, weir.ErrLimited) {
				t.Error(err)
			}
		}
	})
}

func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1})
		start, broken := time.Now(), errors.New("broken")
		for range 3 {
			if err := l.Do(t.Context(), 1, func(ctx context.Context) error {
				if ctx != t.Context() {
					t.Error("another context")
				}
				return broken
			}); err != broken {
				t.Error(err)
			}
		}
		if since := time.Since(start); since != 2*time.Second {
			t.Errorf("after %v", since)
		}
		if err := l.Do(t.Context(), 2, func(context.Context) error { t.Error("called"); return nil }); !errors.Is(err, weir.ErrLimited) {
			t.Error(err)
		}
	})
}

// sizes records the times and sizes of pieces.
type sizes struct {
	start time.Time
	w     io.Writer
	n     []int
	at    []time.Duration
}

func (s *sizes) Write(p []byte) (int, error) {
	s.n, s.at = append(s.n, len(p)), append(s.at, time.Since(s.start))
	return s.w.Write(p)
}

// TestReaderKeepsTheRate: all bytes come, at their times, in pieces no larger than the burst,
// however the source returns them.
func TestReaderKeepsTheRate(t *testing.T) {
	text := strings.Repeat("0123456789", 100)
	for name, source := range map[string]func(io.Reader) io.Reader{
		"at once":      func(r io.Reader) io.Reader { return r },
		"byte by byte": iotest.OneByteReader,
		"halves":       iotest.HalfReader,
		"data and EOF": iotest.DataErrReader,
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, kilobytes)
			var got bytes.Buffer
			s := &sizes{start: time.Now(), w: &got}
			r := weir.NewReader(t.Context(), source(strings.NewReader(text)), l)
			if n, err := io.CopyBuffer(struct{ io.Writer }{s}, r, make([]byte, 333)); n != 1000 || err != nil || got.String() != text {
				t.Errorf("%s: %d, %v", name, n, err)
			}
			sum := 0
			for i, n := range s.n {
				if sum += n; n > 100 || time.Duration(sum-100)*time.Millisecond > s.at[i] {
					t.Errorf("%s: %d bytes at %v, %d in all", name, n, s.at[i], sum)
				}
			}
			if since := time.Since(s.start); since != 900*time.Millisecond {
				t.Errorf("%s: after %v", name, since)
			}
		})
	}
}

// TestReadersShare: two readers of one limiter share its rate.
func TestReadersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, kilobytes)
		start, done := time.Now(), make(chan int64)
		for range 2 {
			go func() {
				n, _ := io.Copy(io.Discard, weir.NewReader(t.Context(), strings.NewReader(strings.Repeat("x", 1000)), l))
				done <- n
			}()
		}
		if n := <-done + <-done; n != 2000 || time.Since(start) != 1900*time.Millisecond {
			t.Errorf("%d after %v", n, time.Since(start))
		}
	})
}

// TestReaderLosesNothing: bytes that were read before a failed wait come with the next Read.
func TestReaderLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, weir.LeakyBucket{Rate: weir.PerSecond(1000), Queue: 99})
		r := weir.NewReader(t.Context(), strings.NewReader("abcdef"), l)
		if err := l.Wait(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 4)
		if n, err := r.Read(p); n != 0 || !errors.Is(err, weir.ErrLimited) { // the queue is full
			t.Fatal(n, err)
		}
		<-time.After(time.Second)
		all, err := io.ReadAll(iotest.OneByteReader(r))
		if string(all) != "abcdef" || err != nil {
			t.Errorf("%q, %v", all, err)
		}
		if n, err := r.Read(nil); n != 0 || err != nil {
			t.Error(n, err)
		}
	})
}

func TestReaderEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, kilobytes)
		ctx, cancel := context.WithCancel(t.Context())
		r := weir.NewReader(ctx, strings.NewReader(strings.Repeat("x", 1000)), l)
		time.AfterFunc(250*time.Millisecond, cancel)
		all, err := io.ReadAll(r)
		if len(all) > 350 || len(all) < 250 || !errors.Is(err, context.Canceled) {
			t.Errorf("%d, %v", len(all), err)
		}
		if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, context.Canceled) {
			t.Error(n, err)
		}
	})
}

// TestALowerLimitIsNoEnd: readers and writers that wait with a piece that no longer fits split it.
func TestALowerLimitIsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, kilobytes)
		lower := func() {
			<-time.After(50 * time.Millisecond)
			if err := l.SetLimit(weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 10}); err != nil {
				t.Error(err)
			}
		}
		go lower()
		all, err := io.ReadAll(weir.NewReader(t.Context(), strings.NewReader(strings.Repeat("x", 300)), l))
		if len(all) != 300 || err != nil {
			t.Errorf("%d, %v", len(all), err)
		}
		if err := l.SetLimit(kilobytes); err != nil {
			t.Error(err)
		}
		go lower()
		n, err := weir.NewWriter(t.Context(), io.Discard, l).Write(make([]byte, 300))
		if n != 300 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

func TestWriterKeepsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, kilobytes)
		var got bytes.Buffer
		s := &sizes{start: time.Now(), w: &got}
		w := weir.NewWriter(t.Context(), s, l)
		if n, err := w.Write(bytes.Repeat([]byte("x"), 550)); n != 550 || err != nil || got.Len() != 550 {
			t.Error(n, err)
		}
		if since := time.Since(s.start); since != 450*time.Millisecond || len(s.n) != 6 {
			t.Errorf("after %v, %v", since, s.n)
		}
		if n, err := w.Write(nil); n != 0 || err != nil {
			t.Error(n, err)
		}

		// Write returns how much it wrote before the context ended.
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(150*time.Millisecond, cancel)
		if n, err := weir.NewWriter(ctx, s, l).Write(make([]byte, 1000)); n != 100 || !errors.Is(err, context.Canceled) {
			t.Error(n, err)
		}
		for _, broken := range []io.Writer{shortWriter{}, iotest.TruncateWriter(brokenWriter{}, 0)} {
			if n, err := weir.NewWriter(t.Context(), broken, l).Write(make([]byte, 50)); n >= 50 != (err == nil) {
				t.Error(n, err)
			}
		}
	})
}

type shortWriter struct{}

func (shortWriter) Write(p []byte) (int, error) { return len(p) / 2, nil }

type brokenWriter struct{}

func (brokenWriter) Write(p []byte) (int, error) { return 0, io.ErrClosedPipe }

// TestConn: both directions at their own rates, through a pipe, and one direction without a limit.
func TestConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		read := newLimiter(t, kilobytes)
		write := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 50})
		c := weir.NewConn(near, read, write)
		defer c.Close()
		start, done := time.Now(), make(chan time.Duration, 2)
		go func() { // the other end sends 600 and reads 150
			far.Write(make([]byte, 600))
			done <- time.Since(start)
		}()
		go func() {
			io.ReadFull(far, make([]byte, 150))
			done <- time.Since(start)
		}()
		go c.Write(make([]byte, 150))
		if n, err := io.ReadFull(c, make([]byte, 600)); n != 600 || err != nil || time.Since(start) != 500*time.Millisecond {
			t.Error(n, err, time.Since(start))
		}
		if first, second := <-done, <-done; first > 500*time.Millisecond || second != time.Second {
			t.Error(first, second)
		}
		free := weir.NewConn(far, nil, nil)
		go free.Write(make([]byte, 10))
		if n, err := c.Read(make([]byte, 10)); n != 10 || err != nil {
			t.Error(n, err)
		}
		go c.Write(make([]byte, 1))
		if n, err := free.Read(make([]byte, 10)); n != 1 || err != nil {
			t.Error(n, err)
		}
		if c.LocalAddr() != near.LocalAddr() {
			t.Error("another address")
		}
	})
}

// TestConnDeadlines: deadlines also end waits for the rate, can be moved during a wait, and lose no
// bytes.
func TestConnDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		near, far := net.Pipe()
		l := newLimiter(t, kilobytes)
		c := weir.NewConn(near, l, l)
		defer c.Close()
		defer far.Close()
		go far.Write([]byte("abc"))
		l.Take(100)
		start := time.Now()

		c.SetReadDeadline(start.Add(2 * ms)) // a byte more than 2 ms bring
		p := make([]byte, 3)
		n, err := c.Read(p)
		var timeout net.Error
		if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(start) != 2*ms {
			t.Error(n, err, time.Since(start))
		}
		if n, err := c.Read(p); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(n, err)
		}
		c.SetReadDeadline(time.Time{})
		if n, err := c.Read(p); n != 3 || err != nil || string(p) != "abc" {
			t.Error(n, err)
		}

		// A partial Write says how far it came.
		l.Take(l.Peek(0).Remaining)
		go io.Copy(io.Discard, far)
		c.SetDeadline(time.Now().Add(250 * ms))
		if n, err := c.Write(make([]byte, 500)); n != 200 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(n, err)
		}
		if d := l.Peek(1); d.Remaining != 50 {
			t.Errorf("what was not written was charged: %+v", d)
		}

		// A deadline is moved later during the wait, and then earlier.
		c.SetWriteDeadline(time.Now().Add(10 * ms))
		time.AfterFunc(5*ms, func() { c.SetWriteDeadline(time.Now().Add(time.Hour)) })
		if n, err := c.Write(make([]byte, 100)); n != 100 || err != nil {
			t.Error(n, err)
		}
		time.AfterFunc(5*ms, func() { c.SetWriteDeadline(time.Now()) })
		start = time.Now()
		if n, err := c.Write(make([]byte, 100)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 5*ms {
			t.Error(n, err, time.Since(start))
		}
	})
}

// TestConnClose: Close ends all waits, and those of callers that wait behind another Read or Write.
// Bytes that were not passed on are not charged.
func TestConnClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		l := newLimiter(t, kilobytes)
		c := weir.NewConn(near, l, l)
		go io.Copy(io.Discard, far)
		l.Take(100)
		errs := make(chan error)
		for range 3 {
			go func() {
				_, err := c.Write(make([]byte, 100))
				errs <- err
			}()
		}
		<-time.After(50 * time.Millisecond)
		c.Close()
		for range 3 {
			if err := <-errs; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
		if d := l.Peek(1); d.Remaining != 50 || l.Waiting() != 0 {
			t.Errorf("%+v", d)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if err := c.SetDeadline(time.Now()); err == nil {
			t.Error("a deadline was set on a closed connection")
		}
		c.Close()
	})
}
