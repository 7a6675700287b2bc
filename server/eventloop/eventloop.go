// Package eventloop serves connections from a few goroutines, one for each processor. A connection
// that waits for its client costs no goroutine, no stack and no buffer, and a request that is decided
// without waiting costs no switch between goroutines and no second read.
//
// A Group has loops. Each is an epoll instance and the goroutine that drives it, its driver. Take (or a
// Listener) moves a connection to a loop, Conn.Start gives it a Handler. From then on the loop calls Handler.Serve when
// the client has sent something, and Serve hands the connection back with Conn.Wait.
//
// Serve runs in the driver, so it must not wait there. Before it waits, it calls Conn.Detach: another
// goroutine then drives the loop, and this one goes on as an ordinary goroutine with its one
// connection. Reading and writing detach by themselves before they wait. A driver whose Serve waits
// without it, or computes for milliseconds, is replaced by a watchdog in the same way.
//
// Conn is also an ordinary net.Conn, which any goroutine may read, write, bound and close. So a
// connection can be passed on to net/http as it is.
//
// Elsewhere than on Linux, New returns nil, and a nil Group takes no connection.
package eventloop

import (
	"errors"
	"net"
)

// A Handler serves one connection.
type Handler interface {
	// Serve serves the connection until it has to wait for the client. It is called again after
	// Conn.Wait or Conn.Again has reported true, and Serve must then return without using the
	// connection: another goroutine may be serving it already. At most one Serve runs at a time.
	// After Serve has closed the connection, or called Conn.Leave, it is not called again.
	Serve()

	// HungUp is called when the client has disconnected (or closed its sending side) while Serve runs
	// detached. It must not wait.
	HungUp()
}

// ErrNotReady is the error of Conn.TryRead when nothing has been received.
var ErrNotReady = errors.New("eventloop: nothing has been received")

// Of returns the Conn below a connection, nil for none.
func Of(conn net.Conn) *Conn { return Below[*Conn](conn) }

// Below returns the connection of a type below another one, or the zero value for none. It looks through wrappers
// that have a method NetConn, such as tls.Conn.
func Below[C net.Conn](conn net.Conn) (none C) {
	for {
		if c, ok := conn.(C); ok {
			return c
		}
		wrapper, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return none
		}
		conn = wrapper.NetConn()
	}
}

// Listener returns a listener whose connections are in loops: what it accepts is a *Conn, or as l has
// accepted it where New or Take say so. Its Close closes l; the connections stay.
func Listener(l net.Listener) net.Listener { return &listener{l, New()} }

type listener struct {
	net.Listener
	group *Group
}

// Accept returns the next connection.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if c, ok := l.group.Take(conn); ok {
		return c, nil
	}
	return conn, nil
}

// Close closes the listener.
func (l *listener) Close() error {
	l.group.Close()
	return l.Listener.Close()
}
