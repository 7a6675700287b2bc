package gateway_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// waitsFor are policies whose requests wait for a place at an adaptive limit: of the upstream, and of the route.
var waitsFor = map[string]string{
	"upstream": `
upstreams: { up: { url: "URL", adaptive: { knee: { max: 1 }, queue: { length: 5, wait: 1m } } } }
routes: [{ match: /, upstream: up, waiting: WAITING }]
`,
	"route": `
upstreams: { up: { url: "URL" } }
routes: [{ match: /, upstream: up, waiting: WAITING, adaptive: { knee: { max: 1 }, queue: { length: 5, wait: 1m } } }]
`,
}

// occupied returns a gateway whose only place is taken until the test ends, and how many wait at its limit.
func occupied(t *testing.T, policy string) (g served, s *httptest.Server, waiting func() int) {
	end := make(chan bool)
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(up.Close)
	g, s = front(t, policy, up.URL)
	t.Cleanup(func() { close(end) }) // before the gateway ends
	go func() {
		if resp, err := http.Get(s.URL); err == nil {
			resp.Body.Close()
		}
	}()
	until(t, func() bool { return targetsOf(g)[0].InFlight == 1 })
	return g, s, func() int {
		n := targetsOf(g)[0].Adaptive.Waiting
		for _, a := range g.Engine().AdaptiveCounts() {
			n += a.Waiting
		}
		return n
	}
}

// TestLeavingAnAdaptiveQueue: a client that had sent a body kept its place in the queue of an adaptive limit when
// it disconnected, until the wait was over.
func TestLeavingAnAdaptiveQueue(t *testing.T) {
	for name, policy := range waitsFor {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, s, waiting := occupied(t, strings.Replace(policy, "WAITING", "{}", 1))
			for _, request := range []string{"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"} {
				conn, err := net.Dial("tcp", s.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				io.WriteString(conn, request)
				until(t, func() bool { return waiting() == 1 && g.Queued() == 1 })
				conn.Close()
				until(t, func() bool { return waiting() == 0 && g.Queued() == 0 })
			}
			if got := g.Counts(); got.Canceled != 2 || got.Overloaded != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestBoundsOfAnAdaptiveQueue: one client could fill the queue of an adaptive limit, whatever `waiting` of the route
// says, and waited beyond its timeout.
func TestBoundsOfAnAdaptiveQueue(t *testing.T) {
	for name, policy := range waitsFor {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, s, waiting := occupied(t, strings.Replace(policy, "WAITING", "{ per_client: 1 }", 1))
			go func() {
				if resp, err := http.Get(s.URL); err == nil {
					resp.Body.Close()
				}
			}()
			until(t, func() bool { return waiting() == 1 })
			if got := told(t, s.URL); !strings.HasPrefix(got, "503  1") {
				t.Errorf("a second request of the client: %s", got)
			}
			if got := g.Counts(); got.QueueFull != 1 || got.Overloaded != 1 {
				t.Errorf("%+v", got)
			}
			_, s, _ = occupied(t, strings.Replace(policy, "WAITING", "{ timeout: 20ms }", 1))
			if got, want := told(t, s.URL), "503  1"; !strings.HasPrefix(got, want) {
				t.Errorf("after the timeout: %s, want %s", got, want)
			}
		})
	}
}
