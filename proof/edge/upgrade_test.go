package edge

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
)

const upgrade = "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

// smuggled is a request that two parsers could read in two ways.
const smuggled = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX"

// TestBodyThatLooksLikeAnUpgrade: whatever an upstream responds, a connection that was not upgraded
// is still checked.
func TestBodyThatLooksLikeAnUpgrade(t *testing.T) {
	for _, size := range []int{0, 100, 5000, 40_000} {
		said := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
		said += strings.Repeat(said, size/len(said))
		up := httpUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(said)))
			for _, part := range []string{said[:min(size, len(said))], said[min(size, len(said)):]} {
				io.WriteString(w, part)
				w.(http.Flusher).Flush()
			}
		})
		g := startWeir(t, t.TempDir(), "  gateway: 127.0.0.1:0\n", up, routes)
		got := send(t, g.Gateway, upgrade+smuggled)
		if !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.Contains(got, "HTTP/1.1 400 Bad Request\r\n") {
			t.Errorf("%d bytes: %.100q ... %.100q", size, got, got[max(0, len(got)-100):])
		}
	}
}

// TestFramesWithTheUpgrade sends bytes of another protocol together with the upgrade request, in
// any pieces, with TLS and without. They arrive as they do without a gateway.
func TestFramesWithTheUpgrade(t *testing.T) {
	up := newRawUpstream(t)
	dir := t.TempDir()
	selfSigned(t, dir)
	g := startWeir(t, dir, "  gateway: [\"127.0.0.1:0\", { address: \"127.0.0.1:0\", tls: { certificates: [{ cert: a.crt, key: a.key }] } }]\n", up.addr, routes)
	all := g.addresses(t)
	ways := map[string]func() (net.Conn, error){
		"directly": func() (net.Conn, error) { return net.Dial("tcp", up.addr) },
		"in clear": func() (net.Conn, error) { return net.Dial("tcp", all[0]) },
		"over TLS": func() (net.Conn, error) { return tls.Dial("tcp", all[1], insecure()) },
	}
	rng := seeds.Of(t.Name())
	for i := range 60 {
		frames := frames(rng)
		text := upgrade + frames
		cuts := []int{len(upgrade) + rng.IntN(len(frames)+1), rng.IntN(len(text) + 1)}
		for way, dial := range ways {
			if got := echoed(t, dial, text, cuts[:rng.IntN(3)], len(frames)); got != frames {
				t.Errorf("case %d, %s, cut at %v: %q came back of %q", i, way, cuts, got, frames)
			}
		}
	}
}

// frames are bytes like those of WebSocket, with some that HTTP would take for the end of a line or
// a header.
func frames(rng *rand.Rand) string {
	var b bytes.Buffer
	for range 1 + rng.IntN(5) {
		switch rng.IntN(4) {
		case 0:
			b.WriteString("\n")
		case 1:
			b.WriteString("GET / HTTP/1.1\n\n")
		case 2:
			b.WriteString("\r\n\r\n")
		default:
			for range 1 + rng.IntN(300) {
				b.WriteByte(byte(rng.UintN(256)))
			}
		}
	}
	return b.String()
}

// echoed sends a text in pieces, and returns so many bytes of what comes back after the header.
func echoed(t *testing.T, dial func() (net.Conn, error), text string, cuts []int, n int) string {
	t.Helper()
	conn, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(servers.Patience))
	at := 0
	for _, cut := range cuts {
		if cut > at {
			io.WriteString(conn, text[at:cut])
			at = cut
		}
	}
	io.WriteString(conn, text[at:])
	var got []byte
	p := make([]byte, 4096)
	for {
		if _, rest, found := bytes.Cut(got, []byte("\r\n\r\n")); found && len(rest) >= n {
			return string(rest)
		}
		m, err := conn.Read(p)
		if got = append(got, p[:m]...); err != nil {
			return fmt.Sprintf("%q: %v", got, err)
		}
	}
}
