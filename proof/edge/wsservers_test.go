package edge

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	wire "encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/weirflow/weir/proof/servers"
)

// An observer is a server of WebSocket that sends back each frame as it came, and notes what came.
// It closes its side after a Close frame, a frame that is too long, or the end of what the client
// sends, and then reads on to the end.
type observer struct {
	addr  string
	notes sync.Map // of each conversation, by the value of X-Case: a chan string
}

func newObserver(t *testing.T) *observer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &observer{addr: l.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { o.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return o
}

// of is where the note of a conversation arrives.
func (o *observer) of(id string) chan string {
	c, _ := o.notes.LoadOrStore(id, make(chan string, 1))
	return c.(chan string)
}

func (o *observer) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	req, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	accept := sha1.Sum([]byte(req.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(accept[:]))
	var note strings.Builder
	for {
		raw, goesOn := readWSFrame(in)
		fmt.Fprintf(&note, "%d bytes, %x\n", len(raw), sha1.Sum([]byte(raw)))
		if _, err := io.WriteString(c, raw); err != nil || !goesOn {
			break
		}
	}
	c.(*net.TCPConn).CloseWrite()
	hash := sha1.New()
	n, _ := io.Copy(hash, in)
	fmt.Fprintf(&note, "then %d bytes, %x", n, hash.Sum(nil))
	o.of(req.Header.Get("X-Case")) <- note.String()
}

// readWSFrame reads a frame, or what there is of one. It reports whether another one may follow.
func readWSFrame(in *bufio.Reader) (raw string, goesOn bool) {
	var b []byte
	more := func(n int) bool {
		at := len(b)
		b = append(b, make([]byte, n)...)
		got, err := io.ReadFull(in, b[at:])
		b = b[:at+got]
		return err == nil
	}
	if !more(2) {
		return string(b), false
	}
	n, rest := uint64(b[1]&127), 0
	switch n {
	case 126:
		rest = 2
	case 127:
		rest = 8
	}
	if rest > 0 && !more(rest) {
		return string(b), false
	}
	if rest > 0 {
		n = wire.BigEndian.Uint64(append(make([]byte, 8-rest), b[2:]...))
	}
	if b[1]&0x80 != 0 {
		n += 4 // the mask; a length that is this large wraps, and is no less too large
	}
	if n < 4 && b[1]&0x80 != 0 || n > 1<<20 || !more(int(n)) {
		return string(b), false
	}
	return string(b), b[0]&15 != wsClose
}

// libraryEcho starts a server of WebSocket by a library that holds clients to RFC 6455, and sends
// messages back.
func libraryEcho(t *testing.T) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(80_000)
		for {
			kind, message, err := c.Read(context.Background())
			if err != nil || c.Write(context.Background(), kind, message) != nil {
				return
			}
		}
	}))
	s.Listener = lingering{s.Listener}
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// A lingering listener's connections read to the end when they are closed. Otherwise TCP would reset
// them for what the server has not read, and the client might lose what it has not read either.
type lingering struct{ net.Listener }

func (l lingering) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lingeringConn{c.(*net.TCPConn)}, nil
}

type lingeringConn struct{ *net.TCPConn }

func (c *lingeringConn) Close() error {
	if err := c.CloseWrite(); err != nil {
		return c.TCPConn.Close()
	}
	go func() {
		defer c.TCPConn.Close()
		c.SetDeadline(time.Now().Add(servers.Patience))
		io.Copy(io.Discard, c.TCPConn)
	}()
	return nil
}

// nodeEcho starts a server of Node that sends back the bytes of an upgraded connection.
func nodeEcho(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	s, err := servers.Web(ctx, "node", "nodejs", "testdata", func(addr string) []string { return []string{"echo.js", addr} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s.Addr
}
