package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const fiveAtOnce = `
limits: { five: { concurrency: { limit: 5 } } }
upstreams: { up: { url: "URL", timeouts: { response: 10m } } }
routes: [{ match: /, upstream: up, limits: [five]HOLD }]
`

// TestRapidResets: with `hold: until_upstream_ends`, clients that leave as soon as the upstream has
// their request never have more than five in flight there. Without it they have any number.
func TestRapidResets(t *testing.T) {
	for _, c := range []struct {
		name, hold string
		http2      bool
		want       int64
	}{
		{"HTTP/2", ", hold: until_upstream_ends", true, 5},
		{"HTTP/1", ", hold: until_upstream_ends", false, 5},
		{"cut off", "", true, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			var atWork atomic.Int64
			release := make(chan struct{})
			arrived := make(chan struct{}, 100)
			up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				atWork.Add(1)
				arrived <- struct{}{}
				<-release // whatever its client does
				w.Write(make([]byte, 100<<10))
			}))
			defer up.Close()
			_, s := front(t, strings.ReplaceAll(fiveAtOnce, "HOLD", c.hold), up.URL)
			tr := &http.Transport{Protocols: new(http.Protocols)}
			tr.Protocols.SetUnencryptedHTTP2(c.http2)
			tr.Protocols.SetHTTP1(!c.http2)
			defer tr.CloseIdleConnections()

			send := func() (atUpstream bool) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				r, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/x", nil)
				if err != nil {
					t.Fatal(err)
				}
				status := make(chan int, 1)
				go func() {
					resp, err := tr.RoundTrip(r)
					if err != nil {
						status <- 0
						return
					}
					resp.Body.Close()
					status <- resp.StatusCode
				}()
				select {
				case <-arrived:
					leave()
					<-status
					return true
				case got := <-status:
					if got != 503 && got != 429 {
						t.Fatal(got)
					}
					return false
				}
			}
			for n := int64(0); n < c.want; {
				if send() {
					n++
				}
			}
			if c.hold != "" {
				for range 30 {
					if send() {
						t.Fatal("one more than five is at the upstream")
					}
				}
			}
			if n := atWork.Load(); n != c.want {
				t.Errorf("%d at work", n)
			}
			close(release)
			until(t, func() bool { return send() }) // the places are free again
		})
	}
}

// TestHoldIsBounded: an endless response is not read forever after its client has left.
func TestHoldIsBounded(t *testing.T) {
	for name, timeout := range map[string]string{"bytes": "10m", "time": "50ms"} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			arrived := make(chan struct{}, 1)
			up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				w.WriteHeader(200)
				w.(http.Flusher).Flush()
				arrived <- struct{}{}
				if name == "time" {
					<-r.Context().Done()
					return
				}
				for part := make([]byte, 64<<10); ; {
					if _, err := w.Write(part); err != nil {
						return
					}
				}
			}))
			defer up.Close()
			_, s := front(t, strings.ReplaceAll(strings.ReplaceAll(fiveAtOnce, "10m", timeout), "HOLD", ", hold: until_upstream_ends"), up.URL)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			r, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/x", nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := http.DefaultTransport.RoundTrip(r); err != nil {
				t.Fatal(err)
			} else {
				defer resp.Body.Close()
			}
			<-arrived
			leave()
			select {
			case <-ended:
			case <-time.After(30 * time.Second):
				t.Fatal("the upstream is still read")
			}
		})
	}
}
