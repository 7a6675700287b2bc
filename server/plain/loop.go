package plain

import (
	"time"

	"github.com/weirflow/weir/server/eventloop"
)

// A connection without TLS can be in a loop of package eventloop: it then has no goroutine while it waits
// for its client. What is received is served in the loop. A request that is about to wait for something
// else detaches: its context's Done does so, Client.Pass, and writing to a client that reads slowly.

// mostInTurn is how many requests that a client has sent ahead are served before other connections of
// its loop.
const mostInTurn = 16

// An Unreader is a connection that has read bytes which Read would return first. Unread takes them from
// it.
type Unreader interface{ Unread() []byte }

// loopOf returns the connection in a loop below another one; nil if it needs a goroutine.
func loopOf(c *conn) *eventloop.Conn {
	if c.tls != nil {
		return nil
	}
	return eventloop.Of(c.Conn)
}

// start gives the connection to its loop.
func (c *conn) start() {
	if u, ok := c.Conn.(Unreader); ok {
		if early := u.Unread(); len(early) > 0 {
			c.lent = buffers.Get().(*[maxHead]byte)
			c.n = copy(c.lent[:], early)
			c.busy.Store(true)
			c.loop.Wake()
		}
	}
	c.loop.Start(c, c.ends())
}

// Serve serves what was received, until the client has to send more. It is called in a loop.
func (c *conn) Serve() {
	for n := 0; ; {
		how := c.advance()
		if how == reads {
			if how = c.receive(); how == reads {
				return
			}
		} else if n++; how == serves && n%mostInTurn == 0 && c.loop.Again() {
			return
		}
		switch how {
		case serves:
		case later:
			go c.goOnLater()
			return
		default:
			c.loop.Leave()
			c.finish(how)
			return
		}
	}
}

// receive reads what was received. It returns reads if nothing was, and the loop has the connection.
func (c *conn) receive() next {
	for {
		if c.lent == nil {
			c.lent = buffers.Get().(*[maxHead]byte)
		}
		n, err := c.loop.TryRead(c.lent[c.n:])
		if n > 0 {
			c.n += n
			c.busy.Store(true)
			return serves
		}
		if c.phase == between {
			c.giveBack()
			c.busy.Store(false)
		}
		if err != eventloop.ErrNotReady {
			return c.lost()
		}
		until := c.ends()
		if c.phase != inBody && c.server.closing.Load() { // must come after busy is set: see closeIfIdle
			if c.phase == between && c.served.Load() {
				return ended
			}
			until = min(until, c.loop.Now()+int64(time.Until(c.server.headUntil())))
		}
		if c.loop.Now() >= until {
			return c.lost()
		}
		if c.loop.Wait(until) {
			return reads
		}
	}
}

// ends returns when the phase ends, on the loop's clock.
func (c *conn) ends() int64 {
	if c.bounded {
		return c.until
	}
	most := awake // for a body
	switch c.phase {
	case between:
		most = c.mostIdle()
	case inHead:
		most = or(c.server.HTTP.ReadHeaderTimeout, defaultHead)
	}
	c.bounded, c.until = true, c.loop.Now()+int64(most)
	return c.until
}

// HungUp is called in the loop when the client has disconnected during a request.
func (c *conn) HungUp() { c.hangup.inLoop() }

// detach has other connections of the loop served while this request waits.
func (c *conn) detach() {
	if c.loop != nil {
		c.loop.Detach()
	}
}

var _ eventloop.Handler = (*conn)(nil)
