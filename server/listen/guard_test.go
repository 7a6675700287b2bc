package listen

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
)

// played is a connection whose reads return the given pieces, and then EOF.
type played struct {
	net.Conn // nil
	pieces   [][]byte
	closed   bool
}

func (p *played) Read(b []byte) (int, error) {
	for len(p.pieces) > 0 && len(p.pieces[0]) == 0 {
		p.pieces = p.pieces[1:]
	}
	if len(p.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.pieces[0])
	p.pieces[0] = p.pieces[0][n:]
	return n, nil
}

func (p *played) Close() error { p.closed = true; return nil }

func (p *played) SetReadDeadline(time.Time) error { return nil }

func newGuard(pieces ...[]byte) *guard {
	l := NewPort(policy.Bounds{MaxHeader: 2 << 10}, nil).Listen(nil, Options{H2C: true})
	return l.Guard(&played{pieces: pieces}, false).(*guard)
}

// through returns what a guard passes on if it is read in steps of a given size, and how it ends.
func through(step int, pieces ...[]byte) (string, error) {
	g := newGuard(pieces...)
	var out []byte
	p := make([]byte, step)
	for {
		n, err := g.Read(p)
		out = append(out, p[:n]...)
		if err != nil {
			return string(out), err
		}
	}
}

const simple = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"

func TestGuardHandsOn(t *testing.T) {
	chunked := "POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n"
	long := "POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n0123456789"
	preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\n"
	for name, c := range map[string]struct{ in, out string }{
		"requests one after another": {simple + chunked + long + simple, simple + chunked + long + simple},
		"a part of a header":         {simple + "GET /b HTTP/1.1\r\nHo", simple},
		"a part of a body":           {long[:len(long)-3], long[:len(long)-3]},
		"HTTP/2":                     {preface, preface},
		"a bad one behind a good":    {simple + "GET /b\r\n\r\n" + simple, simple + nonsense},
		"a bad one":                  {"GET /b HTTP/1.1\nHost: h\r\n\r\n" + simple, nonsense},
		"a header that is too long":  {"GET / HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", 3000), "GET / HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", 3000)},
		"a bad chunk":                {chunked[:len(chunked)-len("\r\nX: y\r\n\r\n")] + "x\r\n", chunked[:len(chunked)-len("\r\nX: y\r\n\r\n")]},
	} {
		for _, step := range []int{1, 7, 4096} {
			if out, _ := through(step, []byte(c.in)); out != c.out {
				t.Errorf("%s, by %d: %.200q", name, step, out)
			}
			var bytewise [][]byte
			for i := range len(c.in) {
				bytewise = append(bytewise, []byte(c.in[i:i+1]))
			}
			if out, _ := through(step, bytewise...); out != c.out {
				t.Errorf("%s, byte by byte, by %d: %.200q", name, step, out)
			}
		}
	}
	if _, err := through(100, []byte("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n")); !errors.Is(err, ErrUnclear) {
		t.Errorf("a bad chunk ends with %v", err)
	}
}

// TestGuardEndsWithAnUpgrade: after another protocol has taken the connection over, and not before, bytes
// are not checked as messages. Bytes that came together with an upgrade request are held until
// then.
func TestGuardEndsWithAnUpgrade(t *testing.T) {
	const ask = "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
	const frames = "\x81\x05hello\n\nGET / HTTP/1.1\n\n\x00\xff"
	bad := "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, c := range map[string]struct {
		hijacked   bool
		rest, want string
	}{
		"another protocol":        {true, frames, frames},
		"nothing more":            {true, "", ""},
		"no upgrade":              {false, simple + simple, simple + simple},
		"no upgrade, and frames":  {false, frames, "\x81" + nonsense},
		"no upgrade, bad request": {false, simple + bad + simple, simple + nonsense},
		"no upgrade, bad at once": {false, bad, bad[:1] + nonsense},
		"no upgrade, half":        {false, simple[:10], simple[:1]},
		"no upgrade, an upgrade":  {false, ask + simple, ask + simple},
	} {
		for cut := range len(ask+c.rest) + 1 {
			for _, ahead := range []bool{false, true} { // whether net/http reads one byte during the request
				all := ask + c.rest
				g := newGuard([]byte(all[:cut]), []byte(all[cut:]))
				var got []byte
				p := make([]byte, 4096)
				for len(got) < len(ask) {
					n, err := g.Read(p)
					got = append(got, p[:n]...)
					if err != nil {
						t.Fatalf("%s: %q, %v", name, got, err)
					}
				}
				if ahead {
					n, err := g.Read(p[:1])
					if got = append(got, p[:n]...); err != nil && c.rest != "" {
						t.Fatalf("%s: %v", name, err)
					}
				}
				if c.hijacked {
					g.release()
				}
				for {
					n, err := g.Read(p)
					if got = append(got, p[:n]...); err != nil {
						break
					}
				}
				want := c.want
				if !ahead && !c.hijacked {
					want = strings.TrimPrefix(want, c.rest[:1]+nonsense)
					if want != c.want {
						want = nonsense
					} else if c.want == c.rest[:1] {
						want = ""
					}
				}
				if rest := string(got[len(ask):]); rest != want {
					t.Errorf("%s, cut at %d, read ahead %v: %q, want %q", name, cut, ahead, rest, want)
				}
			}
		}
	}
}

// TestGuardHasTheHeaderTimeout: the rest of a header that has begun has the header timeout, although net/http
// waits as long as between two requests.
func TestGuardHasTheHeaderTimeout(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	l := NewPort(policy.Bounds{HeaderTimeout: 10 * time.Millisecond}, nil).Listen(nil, Options{})
	g := l.Guard(server, false)
	g.SetReadDeadline(time.Now().Add(time.Hour))
	go io.WriteString(client, "GET / HTTP/1.1\r\nHo")
	var late net.Error
	if _, err := g.Read(make([]byte, 100)); !errors.As(err, &late) || !late.Timeout() {
		t.Errorf("%v", err)
	}
}

// TestGuardHoldsNothing: between two requests the guard has no buffer.
func TestGuardHoldsNothing(t *testing.T) {
	g := newGuard([]byte(simple[:9]), []byte(simple[9:]))
	for {
		if _, err := g.Read(make([]byte, 4096)); err != nil {
			break
		}
	}
	if g.partial != nil || g.ready != nil {
		t.Errorf("%d and %d bytes", cap(g.partial), cap(g.ready))
	}
}

// FuzzMessage: if the guard finds one request, net/http finds the same one, with the same end;
// otherwise the guard refuses it.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{
		simple, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello" + simple,
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n" + simple,
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
		"GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n", "\r\nGET / HTTP/1.0\r\n\r\n", "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: h\r\nX:\t\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n: x\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, whole, ok := headerEnd(b, 0)
		if !ok || !whole {
			return
		}
		message, err := checkHeader(b[:n])
		if err != nil || message.http2 || bytes.HasPrefix(b, []byte("\r\n")) {
			return
		}
		src := bytes.NewReader(b)
		r := bufio.NewReader(src)
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		at := func() int { return len(b) - src.Len() - r.Buffered() }
		if at() != n {
			t.Fatalf("net/http finds %d bytes of header, and the guard %d", at(), n)
		}
		if chunked := len(req.TransferEncoding) > 0; chunked != message.chunked || !chunked && req.ContentLength != message.length {
			t.Fatalf("net/http finds %v and %d, and the guard %+v", req.TransferEncoding, req.ContentLength, message)
		}
		if !message.chunked {
			return
		}
		var c chunks
		k, ended, err := c.follow(b[n:])
		if err != nil || !ended {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err == nil && at() != n+k {
			t.Fatalf("net/http finds the end of the body at %d, and the guard at %d", at(), n+k)
		}
	})
}

// FuzzGuard: however the bytes are cut into pieces, the guard passes on the same.
func FuzzGuard(f *testing.F) {
	f.Add([]byte(simple+simple), uint16(3), uint16(30), uint8(1))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n"+simple+"x"), uint16(60), uint16(61), uint8(5))
	f.Fuzz(func(t *testing.T, b []byte, i, j uint16, step uint8) {
		cut := func(n uint16) int { return min(int(n), len(b)) }
		lo, hi := min(cut(i), cut(j)), max(cut(i), cut(j))
		whole, errWhole := through(4096, bytes.Clone(b))
		parts, errParts := through(int(step)+1, bytes.Clone(b[:lo]), bytes.Clone(b[lo:hi]), bytes.Clone(b[hi:]))
		if whole != parts || !errors.Is(errParts, errWhole) {
			t.Errorf("%q, %v; in pieces %q, %v", whole, errWhole, parts, errParts)
		}
	})
}
