package edge

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// binary is the weir command, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(servers.Main(m, &binary, "test.parallel=8")) } // parallel tests here mostly wait

// guard is how long the tests of the standing guard run, in rounds: HTTP/2 by h2spec, WebSocket,
// clients that trickle, and the search for desyncs. Each runs at least one round.
var guard = flag.Duration("guard", 0, "how long TestH2spec, TestWebSocketCorpus, TestTrickling, TestDesync and each of the searches for what ReachesUncounted go on")

// rounds calls a function once, and then until guard is over or the test has failed.
func rounds(t *testing.T, round func()) {
	began, n := time.Now(), 0
	for n == 0 || time.Since(began) < *guard && !t.Failed() {
		round()
		n++
	}
	if n > 1 {
		t.Logf("%d rounds", n)
	}
}

// gateway is a running weir whose policy file can be changed.
type gateway struct{ *servers.Reloadable }

// startWeir serves a policy. listen is the part below listen besides the admin address.
func startWeir(t *testing.T, dir, listen, upstream, rest string) *gateway {
	t.Helper()
	g := &gateway{servers.PolicyIn(t, dir, policyOf(listen, upstream, rest))}
	g.Start(t, binary)
	return g
}

const routes = "routes: [{ match: /, upstream: up }]\n"

func policyOf(listen, upstream, rest string) string {
	return fmt.Sprintf("listen:\n  admin: 127.0.0.1:0\n%supstreams: { up: { url: \"http://%s\" } }\n%s", listen, upstream, rest)
}

// rawUpstream responds to every request with 200, and records every byte. It reads a body by its
// Content-Length, or to the last chunk.
type rawUpstream struct {
	addr string
	mu   sync.Mutex
	got  bytes.Buffer
}

func newRawUpstream(t *testing.T) *rawUpstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &rawUpstream{addr: l.Addr().String()}
	var wg sync.WaitGroup
	var conns sync.Map
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Store(c, nil)
			wg.Go(func() { u.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return u
}

func (u *rawUpstream) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(io.TeeReader(c, u))
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		if req.Header.Get("Upgrade") != "" {
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+req.Header.Get("Upgrade")+"\r\n\r\n")
			io.Copy(c, r) // then it echoes
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

// Write records bytes.
func (u *rawUpstream) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.got.Write(p)
}

// take returns the bytes since its last call.
func (u *rawUpstream) take() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	defer u.got.Reset()
	return u.got.String()
}

// send writes raw bytes to the gateway and returns everything that comes back until the connection
// ends, or stays silent after the response to a last request with Connection: close.
func send(t *testing.T, addr, raw string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(servers.Patience))
	io.WriteString(conn, raw)
	answer, err := io.ReadAll(conn)
	if err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Fatalf("%.60q: %v after %q", raw, err, answer)
	}
	return string(answer)
}

// statuses returns the statuses of the responses in a text.
func statuses(answer string) (all []string) {
	for part := range strings.SplitSeq(answer, "HTTP/1.") {
		if len(part) > 5 && (part[:2] == "1 " || part[:2] == "0 ") {
			all = append(all, part[2:5])
		}
	}
	return all
}
