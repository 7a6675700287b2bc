package eventloop

import (
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestUrgentData: a read ends before a byte that was sent as urgent, as telnet does at Ctrl-C, although more
// was received. The connection waited then for what it had.
func TestUrgentData(t *testing.T) {
	g := group(t, 1)
	c, client := pair(t, g)
	d, other := pair(t, g)
	defer func() {
		for _, c := range []io.Closer{c, client, d, other} {
			c.Close()
		}
	}()
	start(c).run()
	holds, release := make(chan struct{}), make(chan struct{})
	s := start(d)
	s.before = func(*served) bool { // all is received while this holds the driver
		holds <- struct{}{}
		<-release
		return true
	}
	s.run()
	raw, err := client.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	client.SetReadDeadline(time.Now().Add(10 * time.Second))
	for range 5 {
		io.WriteString(other, "x")
		<-holds
		io.WriteString(client, "before")
		raw.Control(func(fd uintptr) { err = unix.Sendto(int(fd), []byte("!"), unix.MSG_OOB, nil) })
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(client, "after")
		release <- struct{}{}
		hears(t, other, "x")
		hears(t, client, "beforeafter")
		says(t, client, "next")
	}
}
