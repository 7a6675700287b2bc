package browser

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// binary is the weir command, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(servers.Main(m, &binary)) }

// shop is the upstream of the waiting room.
const shop = `<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><title>The sale</title>
<body style="font: 20px system-ui; margin: 40px"><h1>Welcome to the sale</h1><p>You are inside.</p></body></html>`

func startShop(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		io.WriteString(w, shop)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// gateway is a running weir whose policy file can be changed.
type gateway struct{ *servers.Reloadable }

// startWeir serves a policy, which is given without listen.
func startWeir(t *testing.T, policy string, args ...string) *gateway {
	t.Helper()
	g := &gateway{servers.PolicyIn(t, t.TempDir(), servers.FreePorts+policy)}
	g.Start(t, binary, args...)
	return g
}

func (g *gateway) write(t *testing.T, policy string) {
	t.Helper()
	g.Write(t, servers.FreePorts+policy)
}

// change makes a policy active.
func (g *gateway) change(t *testing.T, policy string) {
	t.Helper()
	had := strings.Count(g.Output(), "policy reloaded")
	g.write(t, policy)
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for strings.Count(g.Output(), "policy reloaded") == had {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("the policy was not reloaded:\n%s", g.Output())
		}
	}
}

// balancer is one address in front of gateways, which it uses in turn. It leaves out those that do
// not respond.
type balancer struct {
	*httptest.Server
	mu     sync.Mutex
	behind []*url.URL
}

func startBalancer(t *testing.T, gateways ...*gateway) *balancer {
	b := &balancer{}
	for _, g := range gateways {
		b.behind = append(b.behind, &url.URL{Scheme: "http", Host: g.Gateway})
	}
	b.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(*httputil.ProxyRequest) {},
		Transport: b,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway)
		},
	})
	t.Cleanup(b.Close)
	return b
}

// RoundTrip uses the next gateway, and another one if that does not respond.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	var err error
	for range 3 {
		b.mu.Lock()
		to := b.behind[0]
		b.behind = append(b.behind[1:], to)
		b.mu.Unlock()
		r.URL.Scheme, r.URL.Host = to.Scheme, to.Host
		var resp *http.Response
		if resp, err = http.DefaultTransport.RoundTrip(r); err == nil {
			return resp, nil
		}
	}
	return nil, err
}

// join has an app join the queue, and returns its ticket and its place; place 0 is inside.
func join(t *testing.T, at string) (ticket string, place int) {
	t.Helper()
	return joinWith(t, at, "")
}

// joinWith joins with a ticket, or comes back with the one that a first request gets.
func joinWith(t *testing.T, at, with string) (ticket string, place int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json")
	if with != "" {
		r.Header.Set("Weir-Ticket", with)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Header.Get("Weir-Ticket"), 0
	}
	if resp.Header.Get("Weir-Room") == "new" {
		return joinWith(t, at, resp.Header.Get("Weir-Ticket"))
	}
	var state struct{ Place int }
	if err := json.Unmarshal(body, &state); err != nil || state.Place == 0 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	return resp.Header.Get("Weir-Ticket"), state.Place
}
