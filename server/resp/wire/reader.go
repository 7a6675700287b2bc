// Package wire is the Redis protocol: a parser of commands that clients send (RESP arrays and inline
// commands), and the replies of a server in RESP2 and RESP3. It does no I/O beyond reading from the
// client, and its memory is bounded.
package wire

import (
	"errors"
	"io"
	"sync"
)

// A ProtocolError is an error after which nothing of the stream can be understood: the server writes
// it, and ends the connection.
type ProtocolError struct{ Message string }

// Error returns the message, as Redis words it.
func (e *ProtocolError) Error() string { return "Protocol error: " + e.Message }

// ErrIncomplete means that the rest of a command has not been read yet.
var ErrIncomplete = errors.New("the rest of the command has not been read yet")

// Bounds are those of one command.
type Bounds struct {
	Bytes int // of the whole command, with its framing
	Args  int
}

const (
	firstBuffer = 2 << 10  // bytes of a connection's buffer
	usualBuffer = 16 << 10 // up to which the buffer of a busy connection grows
)

// A Reader parses the commands of a client. What Next returns are views into its buffer, valid until
// the next call of Fill.
type Reader struct {
	source io.Reader
	bounds Bounds
	buf    []byte
	start  int // of what is not parsed yet
	end    int // of what has been read
	args   [][]byte

	borrows bool // the buffer, of usualBuffer bytes, while something is read
}

// NewReader returns a Reader of a client.
func NewReader(source io.Reader, b Bounds) *Reader {
	return &Reader{source: source, bounds: b}
}

// Bound changes the bounds for the commands to come.
func (r *Reader) Bound(b Bounds) { r.bounds = b }

// Buffered returns how many bytes have been read and are not parsed yet.
func (r *Reader) Buffered() int { return r.end - r.start }

// buffers are lent to Readers of clients that send something: see Rest.
var buffers = sync.Pool{New: func() any { return new([usualBuffer]byte) }}

// Rest gives back the memory of a Reader until the next Fill, for a client that may send nothing for
// long. What Next has returned is invalid then. From the first call on, the Reader borrows its buffer.
func (r *Reader) Rest() {
	r.borrows = true
	n := r.end - r.start
	if n > firstBuffer/2 && len(r.buf) > 0 {
		return
	}
	rest := []byte(nil)
	if n > 0 { // the beginning of a command
		if len(r.buf) <= firstBuffer {
			return
		}
		rest = make([]byte, firstBuffer)
		copy(rest, r.buf[r.start:r.end])
	}
	if len(r.buf) == usualBuffer {
		buffers.Put((*[usualBuffer]byte)(r.buf))
	}
	clear(r.args[:cap(r.args)])
	r.buf, r.start, r.end = rest, 0, n
}

// first returns the buffer for a Reader that has none.
func (r *Reader) first() []byte {
	if r.borrows {
		return buffers.Get().(*[usualBuffer]byte)[:]
	}
	return make([]byte, firstBuffer)
}

// Fill reads once from the client.
func (r *Reader) Fill() error {
	switch {
	case r.buf == nil:
		r.buf = r.first()
	case r.start == r.end:
		if r.end == len(r.buf) && len(r.buf) < usualBuffer { // the client sends more than fits
			r.buf = make([]byte, 2*len(r.buf))
		} else if len(r.buf) > usualBuffer {
			r.buf = make([]byte, firstBuffer)
		}
		r.start, r.end = 0, 0
	case r.start > 0:
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	}
	if r.end == len(r.buf) {
		larger := make([]byte, min(2*len(r.buf), max(r.bounds.Bytes, usualBuffer)))
		copy(larger, r.buf)
		r.buf = larger
	}
	n, err := r.source.Read(r.buf[r.end:])
	r.end += n
	if n > 0 {
		return nil
	}
	return err
}

// Next returns the next command that has been read: its name and arguments. It is ErrIncomplete if
// there is none, or a *ProtocolError. Empty commands are skipped.
func (r *Reader) Next() ([][]byte, error) {
	for r.start < r.end {
		data := r.buf[r.start:min(r.end, r.start+r.bounds.Bytes)]
		parse, tooLong := r.inline, "too big inline request"
		if data[0] == '*' {
			parse, tooLong = r.array, "invalid bulk length"
		}
		n, err := parse(data)
		switch {
		case errors.Is(err, ErrIncomplete) && len(data) == r.bounds.Bytes:
			return nil, &ProtocolError{tooLong}
		case err != nil:
			return nil, err
		}
		if r.start += n; len(r.args) > 0 {
			return r.args, nil
		}
	}
	return nil, ErrIncomplete
}

// array parses a command in the form of clients, an array of texts, and returns its length in bytes.
func (r *Reader) array(data []byte) (n int, err error) {
	r.args = r.args[:0]
	count, at, err := number(data, 1, "invalid multibulk length")
	switch {
	case err != nil:
		return 0, err
	case count > int64(r.bounds.Args):
		return 0, &ProtocolError{"invalid multibulk length"}
	}
	for range count {
		if at == len(data) {
			return 0, ErrIncomplete
		}
		if data[at] != '$' {
			return 0, &ProtocolError{"expected '$', got '" + printable(data[at]) + "'"}
		}
		length, from, err := number(data, at+1, "invalid bulk length")
		switch {
		case err != nil:
			return 0, err
		case length < 0 || length > int64(r.bounds.Bytes):
			return 0, &ProtocolError{"invalid bulk length"}
		}
		if at = from + int(length) + 2; at > len(data) {
			return 0, ErrIncomplete
		}
		if data[at-2] != '\r' || data[at-1] != '\n' {
			return 0, &ProtocolError{"expected CRLF after a bulk string"}
		}
		r.args = append(r.args, data[from:at-2:at-2])
	}
	return at, nil
}

// printable is a byte as a text that an error line may contain.
func printable(b byte) string {
	if b < ' ' || b > '~' {
		return "?"
	}
	return string(rune(b))
}

// number parses the digits from a position to the end of the line, and returns where the next line
// begins.
func number(data []byte, from int, invalid string) (n int64, next int, err error) {
	rest := data[from:]
	i := 0
	negative := len(rest) > 0 && rest[0] == '-'
	if negative {
		i++
	}
	first := i
	for i < len(rest) && rest[i] >= '0' && rest[i] <= '9' {
		if i-first >= 18 {
			return 0, 0, &ProtocolError{invalid}
		}
		n = 10*n + int64(rest[i]-'0')
		i++
	}
	switch {
	case i+1 < len(rest) && rest[i] == '\r' && rest[i+1] == '\n' && i > first:
		if negative {
			n = -n
		}
		return n, from + i + 2, nil
	case i == len(rest) || i+1 == len(rest) && rest[i] == '\r' && i > first:
		return 0, 0, ErrIncomplete
	}
	return 0, 0, &ProtocolError{invalid}
}
