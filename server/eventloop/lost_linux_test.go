package eventloop

import (
	"io"
	"testing"
	"time"
)

// reads reads what its client sends, and answers nothing.
type reads struct{ *Conn }

func (r reads) Serve() {
	var buf [512]byte
	for {
		if _, err := r.TryRead(buf[:]); err == ErrNotReady && r.Wait(0) || err != nil && err != ErrNotReady {
			return
		}
	}
}

func (reads) HungUp() {}

// TestWriterWhileItWaits: one event says that the client has sent something, and that there is room to send
// again. It has the connection served, and another goroutine that waits for the room goes on, too.
func TestWriterWhileItWaits(t *testing.T) {
	g := group(t, 1)
	c, client := pair(t, g)
	c.Start(reads{c}, 0)
	d, other := pair(t, g)
	defer func() {
		for _, c := range []io.Closer{c, client, d, other} {
			c.Close()
		}
	}()
	holds, release := make(chan struct{}), make(chan struct{})
	s := start(d)
	s.before = func(*served) bool { // both happen while this holds the driver
		holds <- struct{}{}
		<-release
		return true
	}
	s.run()
	const size = 32 << 20 // more than the system takes
	for range 8 {
		written := make(chan error, 1)
		go func() {
			_, err := c.Write(make([]byte, size))
			written <- err
		}()
		for c.state.Load()&awaited == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(5 * time.Millisecond) // the first event of room comes at once
		client.SetReadDeadline(time.Now().Add(10 * time.Second))
		io.WriteString(other, "x")
		<-holds
		got := 0
		for buf := make([]byte, 64<<10); got < 1<<20; { // so much that there is room
			n, err := client.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
		io.WriteString(client, "x")
		release <- struct{}{}
		hears(t, other, "x")
		if n, err := io.Copy(io.Discard, io.LimitReader(client, int64(size-got))); err != nil {
			t.Fatalf("%d more bytes of %d, %v: the writer waits on", n, size-got, err)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	}
}
