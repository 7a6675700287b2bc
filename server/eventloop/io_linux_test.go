package eventloop

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirflow/weir/internal/seeds"
)

// TestBlockedWrite: a write to a client that reads nothing lets other clients be served, and ends at its
// deadline, or when the connection is closed.
func TestBlockedWrite(t *testing.T) {
	g := group(t, 1)
	for name, end := range map[string]func(*Conn){
		"deadline": func(c *Conn) { c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)) },
		"timeout":  func(*Conn) {},
		"close":    func(c *Conn) { c.Close() },
		"reset":    nil,
	} {
		c, client := pair(t, g)
		s := start(c)
		if name == "timeout" {
			c.SetWriteTimeout(20 * time.Millisecond)
		}
		blocks := make(chan struct{})
		s.before = func(s *served) bool {
			close(blocks)
			s.text = make([]byte, 32<<20)
			return true
		}
		s.run()
		io.WriteString(client, "x")
		<-blocks
		d, other := pair(t, g)
		start(d).run()
		says(t, other, "second")
		if end == nil {
			client.SetLinger(0)
			client.Close()
		} else {
			end(c)
		}
		err := <-s.ended
		if is := map[string]error{"deadline": os.ErrDeadlineExceeded, "timeout": os.ErrDeadlineExceeded, "close": net.ErrClosed, "reset": unix.ECONNRESET}[name]; !errors.Is(err, is) && !(name == "reset" && errors.Is(err, unix.EPIPE)) {
			t.Errorf("%s: %v", name, err)
		}
		client.Close()
		other.Close()
	}
}

// TestSlowReader: a client that reads slowly gets all of a large response, in one or several buffers.
func TestSlowReader(t *testing.T) {
	g := group(t, 1)
	want := strings.Repeat("0123456789abcdef", 200<<10)
	c, client := pair(t, g)
	s := start(c)
	s.before = func(s *served) bool {
		parts := net.Buffers{[]byte(want[:10]), nil, []byte(want[10:1000]), []byte(want[1000:100_000]), []byte(want[100_000:100_001]), []byte(want[100_001:])}
		n, err := s.WriteBuffers(&parts)
		if int(n) != len(want) || err != nil || len(parts) != 0 {
			t.Errorf("%d of %d, %v, %d buffers left", n, len(want), err, len(parts))
		}
		return false
	}
	s.run()
	io.WriteString(client, "x")
	got, err := io.ReadAll(io.MultiReader(io.LimitReader(client, 1), client))
	if err != nil || string(got) != want {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
	client.Close()
}

// TestReset: a reset ends a connection that waits, and one that is about to.
func TestReset(t *testing.T) {
	g := group(t, 1)
	for _, waits := range []bool{false, true} {
		c, client := pair(t, g)
		s := start(c)
		if waits {
			s.run()
			says(t, client, "x")
		}
		client.SetLinger(0)
		client.Close()
		if !waits {
			for !c.HasHungUp() {
				runtime.Gosched()
			}
			s.run()
		}
		if err := <-s.ended; !errors.Is(err, unix.ECONNRESET) {
			t.Error(err)
		}
	}
}

// TestLeave: a connection that has left its Handler is read and written by any goroutine, and its Handler
// is not called again.
func TestLeave(t *testing.T) {
	g := group(t, 1)
	c, client := pair(t, g)
	left := make(chan struct{})
	h := &leaves{c, left, t}
	c.Start(h, 0)
	io.WriteString(client, "x")
	<-left
	go io.Copy(c, c)
	says(t, client, "first")
	client.CloseWrite()
	if _, err := io.ReadAll(io.LimitReader(c, 1)); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Log(err)
	}
	c.Close()
	client.Close()
}

type leaves struct {
	*Conn
	left chan struct{}
	t    *testing.T
}

func (l *leaves) Serve() {
	var b [8]byte
	if n, err := l.TryRead(b[:]); n == 0 {
		if err != ErrNotReady || !l.Wait(0) {
			l.t.Error(err)
		}
		return
	}
	l.Leave()
	close(l.left)
}

func (l *leaves) HungUp() { l.t.Error("the Handler is called after Leave") }

// TestClosedWhile: connections are closed by another goroutine at any moment, and each ends once. Their
// file descriptors are those of others at once.
func TestClosedWhile(t *testing.T) {
	g := group(t, 2)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			draw := seeds.Of(t.Name() + strconv.Itoa(i))
			for range 30 {
				c, client := pair(t, g)
				s := start(c)
				s.before = func(s *served) bool { s.Detach(); return true }
				s.run()
				go func() {
					for {
						if _, err := client.Write([]byte("some text")); err != nil {
							client.Close()
							return
						}
					}
				}()
				io.CopyN(io.Discard, client, draw.Int64N(100))
				c.Close()
				if err := <-s.ended; !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				client.Close()
			}
		})
	}
	all.Wait()
}

// TestNothingIsTaken: where there is no Group, or it has ended, and where a connection is no socket, it
// stays as it is.
func TestNothingIsTaken(t *testing.T) {
	var none *Group
	g := group(t, 1)
	a, b := net.Pipe()
	if _, ok := g.Take(a); ok {
		t.Error("a pipe is taken")
	}
	a.Close()
	b.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	g.Close()
	for _, g := range []*Group{none, g} {
		if _, ok := g.Take(client); ok {
			t.Error("taken")
		}
	}
	if _, err := client.Write([]byte("x")); err != nil {
		t.Error(err)
	}
}

// TestNowBeforeTheFirstTurn: the time of a connection whose loop had served none yet was that at which the loop had
// begun, so that its first wait ended early.
func TestNowBeforeTheFirstTurn(t *testing.T) {
	c, client := pair(t, group(t, 1))
	defer client.Close()
	defer c.Close()
	c.loop.now.Store(-1)
	if now := c.Now(); now < 0 {
		t.Errorf("%d", now)
	}
}
