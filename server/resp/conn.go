package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/weirflow/weir/server/eventloop"
	"github.com/weirflow/weir/server/resp/wire"
)

// Bounds of a connection.
const (
	maxCommand  = 64 << 10 // bytes of a command
	maxArgs     = 1024     // of a command
	maxReplies  = 64 << 10 // bytes of replies before they are written, although more commands wait
	keptReplies = 16 << 10 // bytes of a buffer for replies that is kept

	handshakeTimeout = 10 * time.Second // of TLS, and until a client has authenticated
	commandTimeout   = 30 * time.Second // for the rest of a command that has begun
	writeTimeout     = 10 * time.Second // for a client that does not read its replies
	idleOnLeave      = 50 * time.Millisecond
	writeOnLeave     = time.Second // the same as writeTimeout, while the server shuts down

	mostInTurn = 8 // reads of a client that sends without end, before others of its loop are served
)

// beforeAuth bounds the commands of clients that have not authenticated.
var beforeAuth = wire.Bounds{Bytes: 4 << 10, Args: 16}

var fullBounds = wire.Bounds{Bytes: maxCommand, Args: maxArgs}

// A conn is the connection of a client.
type conn struct {
	face    *Face
	raw     net.Conn
	net     net.Conn        // raw, or TLS over it
	loop    *eventloop.Conn // nil for a connection that has a goroutine of its own
	id      int64
	reader  *wire.Reader
	reply   wire.Reply
	session session
	writes  time.Time // when the deadline of writes was set last
	batch   batch
	stored  storedBatch
	waits   bool // the deadline of reads is that of the rest of a command

	progress bool // a command has ended since the last read

	mu      sync.Mutex // guards the deadline of reads
	leaving bool
	pause   time.Duration // how long a client that is asked to leave may be idle
}

func (f *Face) newConn(raw net.Conn) *conn {
	c := &conn{face: f, raw: raw, net: raw, id: f.lastID.Add(1)}
	if f.tls != nil {
		c.net = tls.Server(raw, f.tls)
	} else {
		c.loop = eventloop.Of(raw)
	}
	return c
}

// start serves the client in the background.
func (c *conn) start() {
	if c.loop == nil {
		go func() {
			c.serve()
			c.leaves()
		}()
		return
	}
	c.session.since = time.Now()
	c.reader = wire.NewReader(received{c.loop}, beforeAuth)
	c.reader.Rest()
	c.reset()
	c.loop.SetWriteTimeout(writeTimeout)
	c.loop.Start(c, 0)
}

// leaves closes the connection.
func (c *conn) leaves() {
	c.raw.Close()
	c.face.remove(c)
}

// serve answers commands until the client leaves or must be disconnected.
func (c *conn) serve() {
	c.session.since = time.Now()
	if t, ok := c.net.(*tls.Conn); ok {
		if c.raw.SetDeadline(time.Now().Add(handshakeTimeout)) != nil || t.Handshake() != nil || c.raw.SetDeadline(time.Time{}) != nil {
			c.face.counts.handshakes.Add(1)
			return
		}
	}
	c.reader = wire.NewReader(c.net, beforeAuth)
	c.reset()
	for {
		if c.isLost(c.reader.Fill()) || !c.goesOn() {
			return
		}
	}
}

// isLost reports whether an error ends the connection, and counts clients that are slow.
func (c *conn) isLost(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.face.counts.slow.Add(1)
	}
	return err != nil
}

// received reads what a client has sent, without waiting.
type received struct{ *eventloop.Conn }

func (r received) Read(p []byte) (int, error) { return r.TryRead(p) }

// Serve is serve for a connection in a loop: it returns when it would wait for the client.
func (c *conn) Serve() {
	for n := 1; ; n++ {
		switch err := c.reader.Fill(); {
		case err == eventloop.ErrNotReady:
			c.reader.Rest()
			if c.loop.Wait(0) { // until the deadline of reads
				return
			}
		case c.isLost(err) || !c.goesOn():
			c.leaves()
			return
		case n%mostInTurn == 0 && c.loop.Again():
			return
		}
	}
}

// HungUp does nothing: a command that runs goes on, and the next read meets the end.
func (c *conn) HungUp() {}

// detach lets a command wait, for a store for example, without other clients waiting for it.
func (c *conn) detach() {
	if c.loop != nil {
		c.loop.Detach()
	}
}

// A waiting context lets a command wait that asks when its context ends.
type waiting struct {
	context.Context
	conn *conn
}

// Done is called before a command waits.
func (w waiting) Done() <-chan struct{} {
	w.conn.detach()
	return w.Context.Done()
}

// context is that of a command.
func (c *conn) context() context.Context { return waiting{context.Background(), c} }

// goesOn answers all commands that have been read. It reports false if the connection ends.
func (c *conn) goesOn() bool {
	if !c.answerAll() || !c.flush() {
		return false
	}
	// the rest of a command has its time from its own beginning
	if partial := c.reader.Buffered() > 0; partial != c.waits || partial && c.progress {
		c.waits = partial
		c.setDeadline()
	}
	if c.isLeaving() {
		if c.pauses() == 0 && c.reader.Buffered() == 0 {
			return false
		}
		c.setDeadline()
	}
	return true
}

// answerAll answers all commands that have been read. It reports false if the connection ends.
func (c *conn) answerAll() bool {
	defer c.count()
	c.follow()
	for c.progress = false; ; c.progress = true {
		args, err := c.reader.Next()
		if err != nil {
			c.flushStored()
			if errors.Is(err, wire.ErrIncomplete) {
				return true
			}
			c.reply.Error("ERR " + err.Error())
			c.face.counts.protocol.Add(1)
			c.flush()
			return false
		}
		if !c.answer(args) {
			c.flushStored()
			c.flush()
			return false
		}
		if len(c.reply.Bytes) > maxReplies && !c.flush() {
			return false
		}
	}
}

// flush writes the replies.
func (c *conn) flush() bool {
	if len(c.reply.Bytes) == 0 {
		return true
	}
	// In a loop, each write has writeTimeout. Elsewhere, setting a deadline for each batch would cost
	// time, so one is kept for a quarter of writeTimeout. While the server shuts down, the deadline is short and each batch needs its own
	if leaving := c.isLeaving(); leaving || c.loop == nil {
		now, within := time.Now(), writeTimeout+writeTimeout/4
		if leaving {
			within = writeOnLeave
		}
		if leaving || now.Sub(c.writes) > writeTimeout/4 {
			c.writes = now
			if c.net.SetWriteDeadline(now.Add(within)) != nil {
				return false
			}
		}
	}
	_, err := c.net.Write(c.reply.Bytes)
	if c.reply.Bytes = c.reply.Bytes[:0]; cap(c.reply.Bytes) > keptReplies {
		c.reply.Bytes = nil
	}
	return err == nil
}

// setDeadline sets the deadline of reads: that of a client that is asked to leave, of the rest of a
// command, or until a client has authenticated. Otherwise a client may be idle for as long as it likes:
// TCP keep-alives find those that have gone.
func (c *conn) setDeadline() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var until time.Time
	switch {
	case c.leaving:
		until = time.Now().Add(c.pause)
	case c.waits:
		until = time.Now().Add(commandTimeout)
	case !c.session.known:
		until = c.session.asked.Add(handshakeTimeout)
	}
	_ = c.net.SetReadDeadline(until) // on a closed connection, the next read fails
}

// awaitUser disconnects a client that does not authenticate in time. A command that it sends sets the
// deadline anew.
func (c *conn) awaitUser() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.leaving {
		_ = c.raw.SetReadDeadline(time.Now().Add(handshakeTimeout))
	}
}

// leave disconnects the client once it has been idle for so long; 0 is after the commands that were
// read.
func (c *conn) leave(pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving, c.pause = true, pause
	_ = c.raw.SetReadDeadline(time.Now().Add(pause))
	_ = c.raw.SetWriteDeadline(time.Now().Add(writeOnLeave))
}

func (c *conn) isLeaving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaving
}

func (c *conn) pauses() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pause
}
