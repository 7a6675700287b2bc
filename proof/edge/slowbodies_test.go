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
// two here. It sees a request only when its body is complete, and answers others meanwhile.
func TestSlowBodiesHoldNoWorker(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
	const clients, size = 40, 6000
	body := strings.Repeat("hello", size/5)
	var slow []net.Conn
	for i := range clients {
		conn, err := net.Dial("tcp", g.Gateway)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		framing := fmt.Sprintf("Content-Length: %d\r\n\r\n", size)
		if i%2 == 1 {
			framing = fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", size)
		}
		fmt.Fprintf(conn, "POST /slow%d HTTP/1.1\r\nHost: h\r\nUser-Agent: slow\r\nConnection: close\r\n%s", i, framing)
		io.WriteString(conn, body[:60])
		slow = append(slow, conn)
	}
	for sent := 60; sent < 600; sent += 60 { // a part of each, and a good request, in turn
		for _, conn := range slow {
			io.WriteString(conn, body[sent:sent+60])
		}
		if got := statuses(send(t, g.Gateway, last)); len(got) != 1 || got[0] != "200" {
			t.Fatalf("a good request beside %d slow ones: %v", clients, got)
		}
	}
	if got := tap.told(); strings.Contains(got, "/slow") {
		t.Errorf("the upstream has seen a request that is not complete: %.300q", got)
	}
	const buffered = `weir_request_buffer_bytes{in="memory"}`
	poll(t, "what has been received is counted", func() bool { return g.metrics(t)[buffered] >= clients*600 })
	for i, conn := range slow {
		io.WriteString(conn, body[600:])
		if i%2 == 1 {
			io.WriteString(conn, "\r\n0\r\n\r\n")
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("POST /slow%d h %d %s slow", i, size, digest([]byte(body))); resp.Header.Get("X-Seen") != want {
			t.Errorf("the upstream read %q, want %q", resp.Header.Get("X-Seen"), want)
		}
		resp.Body.Close()
	}
	poll(t, "no buffer is in use", func() bool { return g.metrics(t)[buffered] == 0 })
}
