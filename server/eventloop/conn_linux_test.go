package eventloop

import (
	"net"
	"testing"

	"golang.org/x/net/nettest"
)

// pair is a connection in a loop, and its client.
func pair(t testing.TB, g *Group) (*Conn, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c, ok := g.Take(accepted)
	if !ok {
		t.Fatal("the connection is not taken")
	}
	return c, client.(*net.TCPConn)
}

// TestNetConn: a connection in a loop does what net.Conn promises, on either side.
func TestNetConn(t *testing.T) {
	for name, flip := range map[string]bool{"server": false, "client": true} {
		t.Run(name, func(t *testing.T) {
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				g := newGroup(2)
				a, b := pair(t, g)
				c1, c2 = a, b
				if flip {
					c1, c2 = b, a
				}
				return c1, c2, func() { a.Close(); b.Close(); g.Close() }, nil
			})
		})
	}
}
