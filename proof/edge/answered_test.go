package edge

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

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
	for i, url := range []string{d.admin + "/v1/usage?key=red&limit=pace", d.admin + "/readyz", decisions + "/v1/usage?key=red&limit=pace", decisions + "/v1/peek"} {
		for _, kept := range []bool{true, false} {
			transport := &http.Transport{DisableKeepAlives: !kept}
			client := &http.Client{Transport: transport, Timeout: servers.Patience}
			all.Go(func() {
				defer transport.CloseIdleConnections()
				for {
					select {
					case <-done:
						return
					default:
					}
					var resp *http.Response
					var err error
					if i == 3 {
						resp, err = client.Post("http://"+url, "application/json", strings.NewReader(`{"limit":"pace","key":["red"]}`))
					} else {
						resp, err = client.Get("http://" + url)
					}
					if err != nil {
						t.Errorf("%d, kept %v: %v", i, kept, err)
						return
					}
					text, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err != nil || resp.StatusCode != http.StatusOK {
						t.Errorf("%d, kept %v: %d %s, %v", i, kept, resp.StatusCode, text, err)
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
