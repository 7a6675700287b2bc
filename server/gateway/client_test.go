package gateway

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/server/upstream"
)

// clientTransport responds with the client for whom an upstream would buffer the body.
type clientTransport struct{}

func (clientTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	client := upstream.ClientOf(r.Context())
	return &http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(client)), Request: r}, nil
}

// TestUpstreamsKnowTheClientOfABody: request buffers have a share for each client, behind a trusted proxy
// too, also on the way to the upstream of refused requests. Of IPv6 a client is its /64.
func TestUpstreamsKnowTheClientOfABody(t *testing.T) {
	file, err := policyfile.Parse(filepath.Join(t.TempDir(), "policy.yaml"), []byte(`
trusted_proxies: [127.0.0.1]
limits: { none: { key: client.ip, fixed_window: { limit: 1, window: 1d } } }
upstreams: { up: { url: "http://127.0.0.1:1" }, other: { url: "http://127.0.0.1:2" } }
routes: [{ match: /, upstream: up, limits: [none], refused: { upstream: other } }]
`))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	p, err := active.New(t.Context(), file, active.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	g, err := New(t.Context(), p, log)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	to := &g.state.Load().routes[0]
	to.forward.proxy.Transport = clientTransport{}
	to.refused.other.proxy.Transport = clientTransport{}
	front := httptest.NewServer(g)
	defer front.Close()
	for from, want := range map[string]string{"": "127.0.0.1", "192.0.2.7": "192.0.2.7", "2001:db8:1:2:3::4": "2001:db8:1:2::/64"} {
		for i := range 2 {
			r, err := http.NewRequestWithContext(t.Context(), "POST", front.URL, strings.NewReader("a body"))
			if err != nil {
				t.Fatal(err)
			}
			if from != "" {
				r.Header.Set("X-Forwarded-For", from)
			}
			resp, err := front.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if got := fmt.Sprint(resp.StatusCode, " ", string(body)); got != "200 "+want {
				t.Errorf("request %d from %q: %s, want 200 %s", i+1, from, got, want)
			}
		}
	}
}
