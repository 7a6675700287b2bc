package eventloop

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirflow/weir/internal/seeds"
)

// A served connection echoes, after what a test has it do.
type served struct {
	*Conn
	until  func() int64       // the end of its waits; nil for none
	before func(*served) bool // called with each text before it is echoed; false ends the connection
	text   []byte
	hungUp chan struct{}
	ended  chan error // gets why the connection ended
	turns  int        // texts
}

func start(c *Conn) *served {
	s := &served{Conn: c, hungUp: make(chan struct{}, 1), ended: make(chan error, 1)}
	return s
}

func (s *served) wait() int64 {
	if s.until == nil {
		return 0
	}
	return s.until()
}

func (s *served) run() *served {
	s.Start(s, s.wait())
	return s
}

func (s *served) Serve() {
	var buf [512]byte
	for n := 1; ; n++ {
		k, err := s.TryRead(buf[:])
		if err == ErrNotReady {
			if until := s.Conn.until.Load(); until != 0 && s.Now() >= until {
				s.end(os.ErrDeadlineExceeded)
				return
			}
			if s.Wait(s.wait()) {
				return
			}
			continue
		}
		if err != nil {
			s.end(err)
			return
		}
		s.text = append(s.text[:0], buf[:k]...)
		if s.turns++; s.before != nil && !s.before(s) {
			s.end(nil)
			return
		}
		if _, err := s.Write(s.text); err != nil {
			s.end(err)
			return
		}
		if n%4 == 0 && s.Again() {
			return
		}
	}
}

func (s *served) end(err error) {
	s.Close()
	s.ended <- err
}

func (s *served) HungUp() {
	select {
	case s.hungUp <- struct{}{}:
	default:
	}
}

// says sends a text to a client's server, and fails unless it is echoed.
func says(t testing.TB, client net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(client, text); err != nil {
		t.Fatal(err)
	}
	hears(t, client, text)
}

func hears(t testing.TB, client net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(client, got); err != nil || string(got) != text {
		t.Fatalf("%q, %v, want %q", got, err, text)
	}
}

// group is a Group that ends with the test. Then it has left no goroutine and no file descriptor.
func group(t *testing.T, size int) *Group {
	t.Helper()
	before, files := runtime.NumGoroutine(), openFiles(t)
	g := newGroup(size)
	t.Cleanup(func() {
		g.Close()
		for g.watched.Load() || runtime.NumGoroutine() > before || openFiles(t) > files { // until the test times out
			runtime.Gosched()
		}
	})
	return g
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestManyClients: clients that send texts in pieces get each byte back, whatever shares their loops.
func TestManyClients(t *testing.T) {
	for _, size := range []int{1, 3} {
		g := group(t, size)
		var all sync.WaitGroup
		for range 50 {
			c, client := pair(t, g)
			s := start(c)
			if size == 3 { // some texts wait, as for a store
				s.before = func(s *served) bool {
					if len(s.text)%5 == 0 {
						s.Detach()
						runtime.Gosched()
					}
					return true
				}
			}
			s.run()
			all.Go(func() {
				draw := seeds.Of(t.Name() + client.LocalAddr().String()) // the address differs from run to run, and the texts do not matter
				text := bytes.Repeat([]byte(client.LocalAddr().String()+" "), 5000)
				go func() {
					for rest := text; len(rest) > 0; {
						n := min(1+draw.IntN(2000), len(rest))
						if _, err := client.Write(rest[:n]); err != nil {
							t.Error(err)
						}
						rest = rest[n:]
					}
					client.CloseWrite()
				}()
				if got, err := io.ReadAll(client); err != nil || !bytes.Equal(got, text) {
					t.Errorf("%d bytes of %d, %v", len(got), len(text), err)
				}
				if err := <-s.ended; err != io.EOF {
					t.Error(err)
				}
				client.Close()
			})
		}
		all.Wait()
	}
}

// TestDetach: while a connection waits that has detached, the others of its loop are served, and it is
// told that its client has gone.
func TestDetach(t *testing.T) {
	g := group(t, 1)
	c, client := pair(t, g)
	release, waits := make(chan struct{}), make(chan struct{})
	waiting := start(c)
	waiting.before = func(s *served) bool {
		s.Detach()
		s.Detach() // once more is no harm
		close(waits)
		<-release
		return true
	}
	waiting.run()
	io.WriteString(client, "first")
	<-waits
	d, other := pair(t, g)
	start(d).run()
	says(t, other, "second")
	if waiting.HasHungUp() {
		t.Error("the client has not hung up")
	}
	client.CloseWrite()
	<-waiting.hungUp
	says(t, other, "third")
	close(release)
	hears(t, client, "first")
	if err := <-waiting.ended; err != io.EOF {
		t.Error(err)
	}
	client.Close()
	other.Close()
}

// TestWatchdog: a connection that waits without Detach holds up the others for milliseconds, and not
// for as long as it waits.
func TestWatchdog(t *testing.T) {
	g := group(t, 1)
	c, client := pair(t, g)
	release := make(chan struct{})
	waiting := start(c)
	waiting.before = func(*served) bool { <-release; return true }
	waiting.run()
	io.WriteString(client, "first")
	d, other := pair(t, g)
	start(d).run()
	says(t, other, "second") // it would wait for ever
	close(release)
	hears(t, client, "first")
	says(t, other, "third")
	says(t, client, "fourth")
	client.Close()
	other.Close()
}

// TestGoexit: a Handler that ends its goroutine, as a test's Fatal does, does not end the loop.
func TestGoexit(t *testing.T) {
	g := group(t, 1)
	c, client := pair(t, g)
	s := start(c)
	s.before = func(s *served) bool {
		defer s.Close()
		runtime.Goexit()
		return true
	}
	s.run()
	io.WriteString(client, "first")
	if n, err := client.Read(make([]byte, 1)); err == nil {
		t.Fatal(n)
	}
	d, other := pair(t, g)
	start(d).run()
	says(t, other, "second")
	client.Close()
	other.Close()
}

// TestOneClientDoesNotStarveOthers: a client that always has something to be read lets the others of its
// loop be served.
func TestOneClientDoesNotStarveOthers(t *testing.T) {
	g := group(t, 1)
	c, client := pair(t, g)
	s := start(c)
	var stop atomic.Bool
	s.before = func(s *served) bool {
		s.state.Or(readable) // as if the client were faster than the loop
		s.text = s.text[:0]
		return !stop.Load()
	}
	go func() {
		for !stop.Load() {
			if _, err := client.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	}()
	s.run()
	d, other := pair(t, g)
	start(d).run()
	for range 100 {
		says(t, other, "x")
	}
	stop.Store(true)
	client.Close() // it may wait for more by now
	<-s.ended
	other.Close()
}

// TestWait: a wait in the loop ends at its time, not before, also when an earlier wait would have ended
// before or after it, and not at all where the client sends something.
func TestWait(t *testing.T) {
	g := group(t, 1)
	c, client := pair(t, g)
	for _, d := range []time.Duration{time.Hour, 40 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond} {
		s := start(c)
		var began, until atomic.Int64
		s.until = func() int64 {
			began.Store(c.Now())
			until.Store(c.Now() + int64(d))
			return until.Load()
		}
		if d == time.Hour { // it is replaced by a shorter one
			s.before = func(s *served) bool { d = 10 * time.Millisecond; return true }
		}
		s.run()
		if d == time.Hour {
			says(t, client, "text")
		}
		if err := <-s.ended; !errors.Is(err, os.ErrDeadlineExceeded) || c.Now() < until.Load() {
			t.Errorf("%v: %v at %d, want %d", d, err, c.Now(), until.Load())
		}
		client.Close()
		c, client = pair(t, g)
	}
	c.Close()
	client.Close()
}

// TestWaitsOfMany: of many connections, each ends its wait at its own time.
func TestWaitsOfMany(t *testing.T) {
	g := group(t, 2)
	draw := seeds.Of(t.Name())
	var all []*served
	for range 100 {
		c, client := pair(t, g)
		t.Cleanup(func() { client.Close() })
		s := start(c)
		wait := int64(1+draw.IntN(100)) * int64(time.Millisecond)
		s.until = func() int64 { return c.Now() + wait }
		all = append(all, s.run())
	}
	for _, s := range all {
		if err := <-s.ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	}
}

// TestWake: a connection that waits is served when another goroutine wakes it, or closes it.
func TestWake(t *testing.T) {
	g := group(t, 1)
	c, client := pair(t, g)
	waits := make(chan struct{}, 1)
	s := start(c)
	s.until = func() int64 {
		select {
		case waits <- struct{}{}:
		default:
		}
		return 0
	}
	s.run()
	<-waits // of Start
	for range 1000 {
		c.Wake()
		<-waits
	}
	c.Close()
	if err := <-s.ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	client.Close()
}

// TestStaleEvents: an event of a connection that was closed reaches no other, not even one that has its
// file descriptor and its slot.
func TestStaleEvents(t *testing.T) {
	g := group(t, 1)
	c, client := pair(t, g)
	l := newUndriven(t, g)
	c.loop.remove(c) // without closing it: its loop has a driver of its own
	if c.loop = l; !l.add(c) {
		t.Fatal("not added")
	}
	stale := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.at), Pad: int32(c.age)}
	l.remove(c)
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, c.fd, nil); err != nil {
		t.Fatal(err)
	}
	d := &Conn{loop: l, fd: c.fd}
	if !l.add(d) || d.at != c.at {
		t.Fatal("not added in the same slot")
	}
	d.state.Store(parked)
	l.events[0], l.n = stale, 1
	if !l.collect() || len(l.batch) != 0 || d.state.Load() != parked {
		t.Error("an event of the connection before has reached this one")
	}
	stale.Pad = int32(d.age)
	l.events[0], l.n = stale, 1
	if !l.collect() || len(l.batch) != 1 || l.batch[0] != d {
		t.Error("an event of this connection has not reached it")
	}
	unix.Close(c.fd)
	g.leave()
	client.Close()
}

// newUndriven is a loop that only the test drives.
func newUndriven(t *testing.T, g *Group) *loop {
	l, err := newLoop(g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.end()
		if l.batch = nil; l.collect() {
			t.Error("the loop has not ended")
		}
	})
	return l
}

// TestTakenOverOnce: of those that take a loop over during the same turn, one wins, and the driver that
// served it notices.
func TestTakenOverOnce(t *testing.T) {
	g := group(t, 1)
	c, client := pair(t, g)
	inline := 0
	s := start(c)
	s.before = func(s *served) bool {
		var all sync.WaitGroup
		running := s.turn.Load()
		if s.loop.owner.Load() == running {
			inline++
		}
		for range 8 {
			all.Go(func() {
				s.Detach()
				if s.loop.owner.Load() == running {
					t.Error("not taken over")
				}
			})
		}
		all.Wait()
		if s.Again() {
			t.Error("a detached connection queues behind others")
		}
		return true
	}
	s.run()
	for range 200 {
		says(t, client, "x")
	}
	client.Close()
	<-s.ended
	if inline == 0 {
		t.Error("no text was served in the loop")
	}
	g.mu.Lock()
	n := len(g.spares)
	g.mu.Unlock()
	if n > 2 { // one that has ended its turn, and one that has not begun another
		t.Errorf("%d drivers for one loop and one connection", n)
	}
	for end := time.Now().Add(time.Minute); n > 0; time.Sleep(time.Millisecond) { // they end while nothing happens
		g.mu.Lock()
		n = len(g.spares)
		g.mu.Unlock()
		if time.Now().After(end) {
			t.Fatalf("%d drivers without a loop are left", n)
		}
	}
}
