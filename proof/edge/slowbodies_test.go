package edge

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// TestSlowBodiesHoldNoWorker: clients that send bodies slowly hold no worker of gunicorn, which has
// two here, whatever length they announce. It sees a request only when its body is complete or has
// filled the buffer, and answers others meanwhile.
func TestSlowBodiesHoldNoWorker(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	gunicorn, err := servers.Web(ctx, "gunicorn", "gunicorn", "testdata", func(addr string) []string {
		return []string{"--bind", addr, "--workers", "2", "--timeout", "600", "--log-level", "error", "--worker-tmp-dir", t.TempDir(), "app:app"}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gunicorn.Kill)
	tap := newTap(t, gunicorn.Addr)
	g := startWeir(t, t.TempDir(), "  gateway: 127.0.0.1:0\n", tap.addr, routes)
	const clients, size, long, longSize = 40, 6000, 6, 2_000_000 // six bodies are longer than the buffer
	body := func(i int) string {
		if i < long {
			return strings.Repeat("hello", longSize/5)
		}
		return strings.Repeat("hello", size/5)
	}
	var slow []net.Conn
	for i := range clients {
		conn, err := net.Dial("tcp", g.Gateway)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(servers.Patience))
		framing := fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body(i)))
		if i%2 == 1 {
			framing = fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", len(body(i)))
		}
		fmt.Fprintf(conn, "POST /slow%d HTTP/1.1\r\nHost: h\r\nUser-Agent: slow\r\nConnection: close\r\n%s", i, framing)
		io.WriteString(conn, body(i)[:60])
		slow = append(slow, conn)
	}
	for sent := 60; sent < 600; sent += 60 { // a part of each, and a good request, in turn
		for i, conn := range slow {
			io.WriteString(conn, body(i)[sent:sent+60])
		}
		if got := statuses(send(t, g.Gateway, last)); len(got) != 1 || got[0] != "200" {
			t.Fatalf("a good request beside %d slow ones: %v", clients, got)
		}
	}
	if got := tap.sent(); strings.Contains(got, "/slow") {
		t.Errorf("the upstream has seen a request that has neither ended nor filled the buffer: %.300q", got)
	}
	const buffered = `weir_request_buffer_bytes{in="memory"}`
	servers.Poll(t, "what has been received is counted", func() bool { return g.Samples(t)[buffered] >= clients*600 })
	for i, conn := range slow {
		io.WriteString(conn, body(i)[600:])
		if i%2 == 1 {
			io.WriteString(conn, "\r\n0\r\n\r\n")
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("POST /slow%d h %d %s slow", i, len(body(i)), digest([]byte(body(i)))); resp.Header.Get("X-Seen") != want {
			t.Errorf("the upstream read %q, want %q", resp.Header.Get("X-Seen"), want)
		}
		resp.Body.Close()
	}
	servers.Poll(t, "no buffer is in use", func() bool { return g.Samples(t)[buffered] == 0 })
}
