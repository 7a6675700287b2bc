package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// upload sends the beginning of a request with a body of ten bytes, and returns its connection.
func upload(t *testing.T, s *httptest.Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	io.WriteString(c, "POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello")
	return c
}

// end sends the rest of the body, and returns the response.
func end(t *testing.T, c net.Conn) string {
	t.Helper()
	io.WriteString(c, "world")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	left, _, _ := strings.Cut(resp.Header.Get("RateLimit"), ";t=")
	return fmt.Sprintf("%d %s %s", resp.StatusCode, left, body)
}

// TestSlowUploads: clients that sent their bodies slowly had all places at adaptive limits, so that every other
// request was refused, although no target had to do anything. A request has its place when its body has come; if
// there is none then, it is refused, and charged to no limit.
func TestSlowUploads(t *testing.T) {
	const one = ", adaptive: { knee: { initial: 1, max: 1 } }"
	for name, c := range map[string][2]string{"upstream": {one, ""}, "route": {"", one}} {
		t.Run(name, func(t *testing.T) {
			entered, leave := make(chan bool), make(chan bool)
			up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					entered <- true
					<-leave
				}
				io.Copy(w, r.Body)
			}))
			t.Cleanup(up.Close)
			g, s := front(t, fmt.Sprintf(`
limits: { l: { token_bucket: { rate: 1/h, burst: 9 } } }
upstreams: { up: { url: "URL"%s } }
routes: [{ match: /, upstream: up, limits: [l]%s }]
`, c[0], c[1]), up.URL)
			places := func() (n int64) {
				n = targetsOf(g)[0].Adaptive.InFlight
				for _, a := range g.Engine().AdaptiveCounts() {
					n += a.InFlight
				}
				return n
			}
			charged := func(want int) {
				t.Helper()
				until(t, func() bool { return int(g.Engine().Counts()[0].Allowed) == want })
			}
			first := upload(t, s)
			charged(1)
			second, third := upload(t, s), upload(t, s)
			charged(3)
			if got := told(t, s.URL); got != `200 "l";r=5` || places() != 0 {
				t.Errorf("beside slow uploads: %s, %d places are taken", got, places())
			}
			if got := end(t, first); got != `200 "l";r=8 helloworld` {
				t.Errorf("an upload: %s", got)
			}
			until(t, func() bool { return places() == 0 })
			slow := make(chan string, 1)
			go func() { slow <- told(t, s.URL+"/slow") }()
			<-entered
			if got := end(t, second); !strings.HasPrefix(got, "503  ") || strings.Contains(got, "hello") {
				t.Errorf("without a place: %s", got)
			}
			third.Close()
			until(t, func() bool { return g.Counts().Canceled == 1 })
			leave <- true
			if got := <-slow; got != `200 "l";r=4` {
				t.Errorf("the request with the place: %s", got)
			}
			until(t, func() bool { return places() == 0 })
			if got := told(t, s.URL); got != `200 "l";r=4` { // the refused upload was not charged
				t.Errorf("after that: %s", got)
			}
			if got := g.Counts(); got.Overloaded != 1 || got.Allowed != 4 || got.Limited != 0 || got.Canceled != 1 || got.UpstreamFailed != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}
