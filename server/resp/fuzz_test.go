package resp

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
)

// sent is a client that has sent all of its bytes at once. It keeps the replies.
type sent struct {
	net.Conn
	in  *bytes.Reader
	out bytes.Buffer
}

func (s *sent) Read(b []byte) (int, error)       { return s.in.Read(b) }
func (s *sent) Write(b []byte) (int, error)      { return s.out.Write(b) }
func (s *sent) SetReadDeadline(time.Time) error  { return nil }
func (s *sent) SetWriteDeadline(time.Time) error { return nil }
func (s *sent) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (s *sent) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// exchange sends bytes to a face, and returns what it replies until it or the client ends.
func exchange(f *Face, text []byte) []byte {
	s := &sent{in: bytes.NewReader(text)}
	f.newConn(s).serve()
	return s.out.Bytes()
}

// array writes a command as clients do.
func array(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

const marker = "the connection lives on"

// livesOn sends a command and then ECHO. It reports whether the last reply is that of ECHO, after one
// reply that is whole.
func livesOn(t *testing.T, f *Face, words []string) {
	t.Helper()
	got := exchange(f, []byte(array(words...)+array("ECHO", marker)))
	rest, err := skipReply(got)
	want := fmt.Sprintf("$%d\r\n%s\r\n", len(marker), marker)
	if err != nil || string(rest) != want {
		t.Errorf("%q: %q, rest %q (%v)", words, got, rest, err)
	}
}

// skipReply returns what follows the first reply.
func skipReply(b []byte) ([]byte, error) {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 1 {
		return nil, io.ErrUnexpectedEOF
	}
	kind, head, b := b[0], string(b[1:end]), b[end+2:]
	n := 0
	if bytes.IndexByte([]byte("$=*%~"), kind) >= 0 {
		if _, err := fmt.Sscanf(head, "%d", &n); err != nil {
			return nil, err
		}
	}
	switch kind {
	case '+', '-', ':', '_':
		return b, nil
	case '$', '=':
		if n < 0 {
			return b, nil
		}
		if len(b) < n+2 || string(b[n:n+2]) != "\r\n" {
			return nil, io.ErrUnexpectedEOF
		}
		return b[n+2:], nil
	case '%':
		n *= 2
	case '*', '~':
	default:
		return nil, fmt.Errorf("no reply begins with %q", kind)
	}
	for range max(n, 0) {
		var err error
		if b, err = skipReply(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// TestRandomCommands: whatever the arguments are, a command gets one whole reply, and the connection lives
// on.
func TestRandomCommands(t *testing.T) {
	f := serve(t, "", someLimits)
	random := seeds.Of(t.Name())
	for range 20_000 {
		livesOn(t, f, randomCommand(random, f))
		if t.Failed() {
			return
		}
	}
}

// randomCommand returns a command of the face, with arguments that are often nearly right.
func randomCommand(random *rand.Rand, f *Face) []string {
	all := f.sorted()
	name := all[random.IntN(len(all))].name
	for name == "quit" || name == "auth" { // they end connections, after enough wrong passwords
		name = all[random.IntN(len(all))].name
	}
	words := []string{name}
	if random.IntN(4) == 0 {
		words[0] = strings.ToUpper(name)
	}
	some := []string{"api", "day", "@a", "@b", "@", "CL.THROTTLE", "0", "1", "2", "-1", "9223372036854775807", "-9223372036854775808", "18446744073709551616", "1.5", "", "x", "COST", "PLAN", "AND", "WITHIN", "KEEP", "PARTS",
		"token_bucket", "sliding_log", "fixed_window", "rate=1/s", "burst=5", "limit=3", "window=1h", "rate=", "=", "get", "set", "*", "[", "[a-", "setname", "setinfo", "lib-name", "list", "info", "docs", "count", "3", "2", "\r\n", "\x00\xff", strings.Repeat("k", 5000)}
	if random.IntN(2) == 0 { // the beginning of a right one
		words = append(words, strings.Fields([]string{"api 1 x", "day 0", "@a 1 x", "@a token_bucket rate=1/s burst=5", "k 1 1 1", "api 1 x COST 1 AND day 0"}[random.IntN(6)])...)
	}
	for range random.IntN(6) {
		words = append(words, some[random.IntN(len(some))])
	}
	return words
}

// FuzzCommands: any bytes end in whole replies, and nothing panics.
func FuzzCommands(f *testing.F) {
	for _, seed := range []string{
		array("CL.THROTTLE", "k", "15", "30", "60"), "PING\r\n", "*1\r\n$4\r\nPING\r\n*", array("WEIR.TAKE", "api", "1", "x", "COST", "2", "AND", "day", "0"),
		array("WEIR.INIT", "@a", "token_bucket", "rate=1/s", "burst=2", "PARTS", "0") + array("WEIR.TAKE", "@a", "0"), array("HELLO", "3") + array("COMMAND", "DOCS"),
		"\"a\\x41\" 'b'\r\n", "*0\r\n*-1\r\n", "POST / HTTP/1.1\r\n",
	} {
		f.Add([]byte(seed))
	}
	face := serve(f, "", someLimits)
	f.Fuzz(func(t *testing.T, text []byte) {
		got := exchange(face, text)
		for len(got) > 0 {
			var err error
			if got, err = skipReply(got); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
		}
	})
}
