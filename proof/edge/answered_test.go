package edge

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// once sends each request once, over a connection that it keeps while the server does; http.Client would send some
// again.
type once struct {
	closes bool // each request closes its connection
	conn   net.Conn
	in     *bufio.Reader
}

func (o *once) close() {
	if o.conn != nil {
		o.conn.Close()
		o.conn = nil
	}
}

func (o *once) send(method, url string, body io.Reader) (status int, text string, err error) {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = o.closes
	if o.conn == nil {
		if o.conn, err = net.Dial("tcp", req.URL.Host); err != nil {
			return 0, "", err
		}
		o.conn.SetDeadline(time.Now().Add(servers.Patience))
		o.in = bufio.NewReader(o.conn)
	}
	if err := req.Write(o.conn); err != nil {
		return 0, "", err
	}
	resp, err := http.ReadResponse(o.in, req)
	if err != nil {
		return 0, "", err
	}
	all, err := io.ReadAll(resp.Body)
	if resp.Close {
		o.close()
	}
	return resp.StatusCode, string(all), err
}

// TestRestartAnswersOperators: while processes replace each other, every request to the admin address and to the
// decisions by HTTP is answered, over new connections and over those that are kept.
func TestRestartAnswersOperators(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	decisions := "127.0.0.1:" + freePort(t)
	d.start(t, `listen: { gateway: "`+d.gateway+`", admin: "`+d.admin+`", http: { address: "`+decisions+`" } }
upstreams: { up: { url: "http://127.0.0.1:9" } }
limits: { pace: { key: header.user, token_bucket: { rate: 1000000/s, burst: 1000000 } } }
routes: [ { match: /, upstream: up } ]
`)
	done := make(chan struct{})
	var all sync.WaitGroup
	stop := sync.OnceFunc(func() { close(done); all.Wait() })
	defer stop()
	const peek = `{"limit":"pace","key":["red"]}`
	for _, request := range []string{
		"GET http://" + d.admin + "/v1/usage?key=red&limit=pace", "GET http://" + d.admin + "/readyz",
		"GET http://" + decisions + "/v1/usage?key=red&limit=pace", "POST http://" + decisions + "/v1/peek",
	} {
		for _, kept := range []bool{true, false} {
			method, url, _ := strings.Cut(request, " ")
			all.Go(func() {
				c := &once{closes: !kept}
				defer c.close()
				for {
					select {
					case <-done:
						return
					default:
					}
					var body io.Reader = http.NoBody
					if method == "POST" {
						body = strings.NewReader(peek)
					}
					if status, text, err := c.send(method, url, body); err != nil || status != http.StatusOK {
						t.Errorf("%s, kept %v: %d %s, %v", request, kept, status, text, err)
						return
					}
				}
			})
		}
	}
	for range 8 {
		d.restart(t)
	}
}
