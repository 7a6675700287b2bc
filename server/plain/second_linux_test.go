package plain

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLeavesWithItsSecondRequest: a client whose next request and its end come together has left. A request
// before had asked when it leaves, and this one was not told that it has.
func TestLeavesWithItsSecondRequest(t *testing.T) {
	loops(t)
	ended := make(chan struct{})
	_, addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done := r.Context().Done()
		if r.URL.Path == "/second" {
			<-done
			close(ended)
		}
	}))
	conn := dial(t, addr)
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 200 {
		t.Fatal(err)
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// the request waits for the end, and goes in the same packet
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, 1) })
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "GET /second HTTP/1.1\r\nHost: h\r\n\r\n")
	conn.Close()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the request goes on")
	}
}
