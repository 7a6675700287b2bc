package servers

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A RedisError is an error reply of Redis, like "WRONGTYPE Operation against a key holding the
// wrong kind of value".
type RedisError string

// Error returns the server's text, which begins with the code.
func (e RedisError) Error() string { return string(e) }

// Code returns the first word of the error, like "WRONGTYPE".
func (e RedisError) Code() string {
	code, _, _ := strings.Cut(string(e), " ")
	return code
}

// A RedisConn is a connection to a Redis server, for the commands of a test. It is not safe for
// concurrent use.
type RedisConn struct {
	conn net.Conn
	r    *bufio.Reader
}

// longest bounds an exchange whose context has no deadline.
const longest = 30 * time.Second

// DialRedis connects to a Redis server, with TLS if there is a configuration for it.
func DialRedis(ctx context.Context, addr string, config *tls.Config) (*RedisConn, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	var conn net.Conn
	var err error
	if config == nil {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", addr)
	} else {
		conn, err = (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, err
	}
	return &RedisConn{conn: conn, r: bufio.NewReaderSize(conn, maxLine)}, nil
}

// Close closes the connection.
func (c *RedisConn) Close() error { return c.conn.Close() }

// Do sends a command and reads the reply: a string (simple or bulk, binary-safe), an int64, nil, or
// a []any of these and of RedisErrors. An error reply is returned as a RedisError. After any other
// error the connection is closed.
func (c *RedisConn) Do(ctx context.Context, args ...string) (any, error) {
	if len(args) == 0 {
		return nil, errors.New("there is no command for Redis")
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, longest)
		defer cancel()
	}
	// The connection is closed when the context ends, instead of setting a deadline: after half a
	// reply, the next read would return the rest of it.
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	v, err := c.exchange(args)
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		c.conn.Close()
		// the rest may be a password
		return nil, fmt.Errorf("%s, to Redis at %s: %w", args[0], c.conn.RemoteAddr(), err)
	}
	if e, ok := v.(RedisError); ok {
		return nil, e
	}
	return v, nil
}

func (c *RedisConn) exchange(args []string) (any, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(c.conn, text.String()); err != nil {
		return nil, err
	}
	return readReply(c.r)
}

// Bounds of a reply, far above those of any test.
const (
	maxLine = 64 << 10 // bytes of a simple string, an error or a number
	// bytes of all bulk strings, and elements of all arrays at 16 bytes each
	maxReply = 256 << 20
	maxDepth = 32 // arrays in arrays
)

// readReply reads one reply of RESP2, the protocol in
// https://redis.io/docs/latest/develop/reference/protocol-spec.
func readReply(r *bufio.Reader) (any, error) {
	reply := reply{r: r, left: maxReply}
	return reply.value(0)
}

type reply struct {
	r    *bufio.Reader
	left int // of maxReply
}

func (r *reply) value(depth int) (any, error) {
	line, err := r.line()
	if err != nil {
		return nil, err
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return RedisError(rest), nil
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	case '$', '*':
		n, err := strconv.Atoi(rest)
		if err != nil || n < -1 {
			return nil, fmt.Errorf("a reply has the length %q", rest)
		}
		if n == -1 {
			return nil, nil
		}
		if kind == '$' {
			return r.bulk(n)
		}
		return r.array(n, depth)
	}
	return nil, fmt.Errorf("a reply begins with %q: this is not RESP2", kind)
}

func (r *reply) line() (string, error) {
	b, err := r.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return "", fmt.Errorf("a line of a reply is longer than %d bytes", maxLine)
	}
	if err != nil {
		return "", unexpected(err)
	}
	if len(b) < 3 || b[len(b)-2] != '\r' {
		return "", fmt.Errorf("a line of a reply is %q", b)
	}
	return string(b[:len(b)-2]), nil
}

func (r *reply) spend(n, each int) error {
	if n > r.left/each {
		return fmt.Errorf("a reply is longer than %d bytes", maxReply)
	}
	r.left -= n * each
	return nil
}

func (r *reply) bulk(n int) (any, error) {
	if err := r.spend(n, 1); err != nil {
		return nil, err
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(r.r, b); err != nil {
		return nil, unexpected(err)
	}
	if string(b[n:]) != "\r\n" {
		return nil, fmt.Errorf("a bulk string of %d bytes is followed by %q", n, b[n:])
	}
	return string(b[:n]), nil
}

func (r *reply) array(n, depth int) (any, error) {
	if depth == maxDepth {
		return nil, fmt.Errorf("a reply has more than %d arrays in arrays", maxDepth)
	}
	if err := r.spend(n, 16); err != nil {
		return nil, err
	}
	list := make([]any, 0, min(n, 1024)) // the announced elements may not come
	for range n {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// unexpected returns the error for a caller that waits for a reply: the end of the stream is then
// an error, too.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
