package upstream

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/weirflow/weir/internal/rawserver"
	"github.com/weirflow/weir/policy"
)

// TestStaleConnection: a kept connection that ends without a byte of a response was closed while it
// was idle. The only target gets the request again, if the request may be repeated.
func TestStaleConnection(t *testing.T) {
	small, large := strings.Repeat("s", 1000), strings.Repeat("l", maxReplay+1)
	for _, c := range []struct {
		method, body, want string
		sent               int // the connections on which the request arrived
	}{
		{"GET", "", "200 ok", 2},
		{"PUT", small, "200 ok", 2},
		{"DELETE", small, "200 ok", 2},
		{"PUT", large, "error", 1},
		{"POST", small, "error", 1},
	} {
		server := serveOnce(t)
		u := over(t, policy.Upstream{Retries: policy.Retries{Max: -1}, BufferRequest: policy.Buffer{Off: true}}, &raw{url: server.url})
		if got := u.ask(t, "GET", nil); got != "200 ok" {
			t.Fatal(got)
		}
		var body io.Reader
		if c.body != "" {
			body = strings.NewReader(c.body)
		}
		if got := u.ask(t, c.method, body); got != c.want {
			t.Errorf("%s with %d bytes: %s, want %s", c.method, len(c.body), got, c.want)
		}
		server.mu.Lock()
		got := server.got[1:]
		if len(got) != c.sent {
			t.Errorf("%s with %d bytes arrived %d times, want %d", c.method, len(c.body), len(got), c.sent)
		}
		for _, g := range got {
			if g != c.method+" "+c.body {
				t.Errorf("%s with %d bytes arrived as %.60s", c.method, len(c.body), g)
			}
		}
		server.mu.Unlock()
	}
}

// once is a server that responds to the first request on each connection, and closes the connection
// at the second one.
type once struct {
	url string
	mu  sync.Mutex
	got []string // methods and bodies
}

func serveOnce(t *testing.T) *once {
	t.Helper()
	s := &once{}
	s.url = "http://" + rawserver.Start(t, s.talk)
	return s
}

func (s *once) talk(conn net.Conn, in *bufio.Reader) {
	for i := range 2 {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, _ := io.ReadAll(r.Body)
		text := r.Method + " " + string(body)
		if _, sent := r.Header[replayable]; sent {
			text += " with a field that the client did not send"
		}
		s.mu.Lock()
		s.got = append(s.got, text)
		s.mu.Unlock()
		if i == 0 {
			_, _ = io.WriteString(conn, good)
		}
	}
}
