package plain

import (
	"net"
	"strconv"
)

// chunkHead is the space reserved for a chunk's length. chunkRoom is the space for everything
// around a chunk, including the end of the body.
const (
	chunkHead = 12
	chunkRoom = chunkHead + 16
)

// send sends what is buffered, followed by more, a further part of the body.
func (w *response) send(more []byte) error {
	switch {
	case w.head > 0 && w.bodiless:
		w.closeBodiless(0)
	case w.head > 0 || w.chunked: // the length of the body is not known
		w.chunk(len(more))
	}
	return w.flush(more)
}

// chunk frames the body in out, and the part that follows it, as one chunk. It writes the chunk's
// length into the space before it. With the first chunk, it also ends the response's head.
func (w *response) chunk(more int) {
	start := 0
	if w.head > 0 {
		start = w.head + gap
	} else if len(w.out) >= chunkHead {
		start = chunkHead
	}
	n := len(w.out) - start + more
	before := ""
	if n > 0 {
		before = strconv.FormatInt(int64(n), 16) + crlf
	}
	switch {
	case w.head > 0:
		w.close("Transfer-Encoding: chunked" + crlf + crlf + before)
	case start > 0:
		w.out = w.out[chunkHead-len(before):]
		copy(w.out, before)
	case n > 0:
		w.out = append(w.out, before...)
	}
	if n > 0 && more == 0 {
		w.out = append(w.out, crlf...)
	}
	w.chunked = true
}

// maxSaid is the longest body for which a response to HEAD gets a Content-Length that the handler
// did not set. net/http has the same limit.
const maxSaid = 2048

// closeBodiless ends the head of a response to HEAD.
func (w *response) closeBodiless(written int64) {
	if written > 0 && written <= maxSaid && len(w.trailers) == 0 {
		w.close("Content-Length: " + strconv.FormatInt(written, 10) + crlf + crlf)
	} else {
		w.close(crlf)
	}
}

// close writes the end of the head into the gap, directly before the body.
func (w *response) close(end string) {
	shift := gap - len(end)
	copy(w.out[shift:], w.out[:w.head])
	copy(w.out[shift+w.head:], end)
	w.out = w.out[shift:]
	w.head = 0
}

// A BuffersWriter is a connection that wraps a socket and writes several buffers with one system
// call. net.Buffers does that only for a bare socket.
type BuffersWriter interface {
	WriteBuffers(*net.Buffers) (int64, error)
}

// flush sends out and more as they are, and after a chunk its end.
func (w *response) flush(more []byte) error {
	if w.err != nil || len(w.out)+len(more) == 0 {
		return w.err
	}
	c := w.conn
	if more == nil {
		_, w.err = c.Conn.Write(w.out)
	} else {
		parts := net.Buffers{w.out, more}
		if w.chunked {
			parts = append(parts, []byte(crlf))
		}
		if v, ok := c.Conn.(BuffersWriter); ok {
			_, w.err = v.WriteBuffers(&parts)
		} else {
			_, w.err = parts.WriteTo(c.Conn)
		}
	}
	w.out = w.lent[:0]
	if w.err != nil {
		w.closes = true
	}
	return w.err
}
