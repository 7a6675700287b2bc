package edge

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"

	"github.com/weirflow/weir/proof/servers"
)

// two is a policy with two targets. A single failure takes a target down: connecting may take a minute, as
// the gateway may stand still meanwhile.
const two = `
listen:
  admin: 127.0.0.1:0
  gateway: { address: "127.0.0.1:0", h2c: true }
upstreams: { up: { targets: ["http://%s", "http://%s"], timeouts: { connect: 1m }, health: { failures: 1, all_down: refuse } } }
routes: [{ match: /, upstream: up }]
`

func servePolicy(t *testing.T, program, text string) *gateway {
	t.Helper()
	g := &gateway{servers.PolicyIn(t, t.TempDir(), text)}
	g.Start(t, program)
	return g
}

// blameless fails the test unless both targets are unchanged.
func (g *gateway) blameless(t *testing.T, what string) {
	t.Helper()
	if got := statuses(send(t, g.Gateway, last)); len(got) != 1 || got[0] != "200" {
		t.Errorf("after %s, a good request: %v", what, got)
	}
	for name, v := range g.Samples(t) {
		switch {
		case strings.HasPrefix(name, "weir_upstream_failures_total") && v != 0,
			strings.HasPrefix(name, "weir_upstream_up") && v != 1,
			strings.HasPrefix(name, "weir_upstream_retries_total") && v != 0:
			t.Errorf("after %s: %s %v", what, name, v)
		}
	}
}

// TestTrailerWithASpace is the request that once took every target down: the name of its trailer is
// no token.
func TestTrailerWithASpace(t *testing.T) {
	up := newRawUpstream(t)
	g := servePolicy(t, binary, fmt.Sprintf(two, up.addr, newRawUpstream(t).addr))
	raw := "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: foo bar\r\n\r\n1\r\nx\r\n0\r\n\r\n"
	if got := statuses(send(t, g.Gateway, raw)); len(got) != 1 || got[0] != "400" {
		t.Errorf("HTTP/1: %v", got)
	}
	c := dialH2(t, g.Gateway)
	id := c.request(false, ":method", "POST", ":scheme", "http", ":authority", "h", ":path", "/x", "trailer", "foo bar")
	c.WriteData(id, true, []byte("x"))
	if got := c.answer(id); got != "400" {
		t.Errorf("HTTP/2: %s", got)
	}
	c = dialH2(t, g.Gateway)
	if got := c.answer(c.request(true, ":method", "GET x", ":scheme", "http", ":authority", "h", ":path", "/x")); got != "400" {
		t.Errorf("a method that is no token: %s", got)
	}
	if arrived := up.take(); arrived != "" {
		t.Errorf("the upstream got %q", arrived)
	}
	g.blameless(t, "a bad request of each kind")
}

// TestClientsTakeNothingOut sends requests with mistakes in every part, over HTTP/1 and HTTP/2.
// Whatever the gateway does with them, no failure counts against a target.
func TestClientsTakeNothingOut(t *testing.T) {
	answers := func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); io.WriteString(w, "ok") }
	t.Run("HTTP/1", func(t *testing.T) {
		t.Parallel()
		takeNothingOut(t, servePolicy(t, binary, fmt.Sprintf(two, httpUpstream(t, answers), newRawUpstream(t).addr)))
	})
	t.Run("HTTP/2", func(t *testing.T) {
		t.Parallel()
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		s := httptest.NewUnstartedServer(http.HandlerFunc(answers))
		s.Config.Protocols = &protocols
		s.Start()
		t.Cleanup(s.Close)
		text := strings.Replace(fmt.Sprintf(two, s.Listener.Addr(), s.Listener.Addr()), "targets: [", "protocol: h2c, targets: [", 1)
		g := servePolicy(t, binary, strings.Replace(text, ", \"http://"+s.Listener.Addr().String()+"\"]", "]", 1))
		// HTTP/2 has no upgrades, and net/http never ends a request with trailers and no body.
		if got := statuses(send(t, g.Gateway, strings.Replace(upgrade, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))); len(got) != 1 || got[0] != "200" {
			t.Errorf("a request for an upgrade: %v", got)
		}
		g.blameless(t, "a request for an upgrade")
		c := dialH2(t, g.Gateway)
		if got := c.answer(c.request(true, ":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/", "trailer", "x-sum")); got != "200" {
			t.Errorf("a trailer without a body: %s", got)
		}
		g.blameless(t, "a trailer without a body")
		takeNothingOut(t, g)
	})
}

func takeNothingOut(t *testing.T, g *gateway) {
	t.Helper()
	rng := seeds.Of(t.Name())
	for round := range 20 {
		for range 10 {
			raw := anyHTTP1(rng)
			conn, err := net.Dial("tcp", g.Gateway)
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(servers.Patience))
			io.WriteString(conn, raw)
			conn.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, conn)
			conn.Close()
			anyHTTP2(t, rng, g.Gateway)
		}
		if g.blameless(t, fmt.Sprintf("round %d", round)); t.Failed() {
			return
		}
	}
}

// odd draws a text that some parser may reject.
func odd(rng *rand.Rand) string {
	all := []string{"", "a", "foo bar", "a\tb", "a:b", "(a)", "é", "\x7f", "%", "a_b", "a,b", "/", "[evil", "a@b", "a#b", "a\\b", "Content-Length", "Transfer-Encoding", "Trailer", "Host", "TE", "chunked", "0", "5, 5",
		"100-continue", "h2c", "upgrade", "websocket", "upgrade, close", "close", strings.Repeat("a", 9000)}
	return all[rng.IntN(len(all))]
}

// now returns a usual text, and sometimes an odd one.
func now(rng *rand.Rand, usual string) string {
	if rng.IntN(4) > 0 {
		return usual
	}
	return odd(rng)
}

func pick(rng *rand.Rand, all ...string) string { return all[rng.IntN(len(all))] }

func anyHTTP1(rng *rand.Rand) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", now(rng, pick(rng, "GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")), "/"+now(rng, "x"), now(rng, "h"))
	for range rng.IntN(4) {
		fmt.Fprintf(&b, "%s: %s\r\n", now(rng, pick(rng, "X-A", "Trailer", "Expect", "TE", "Upgrade", "Connection", "Cookie", "Content-Type")), odd(rng))
	}
	switch rng.IntN(4) {
	case 0:
		fmt.Fprintf(&b, "Content-Length: %s\r\n\r\nhello", now(rng, "5"))
	case 1:
		fmt.Fprintf(&b, "Transfer-Encoding: chunked\r\nTrailer: %s\r\n\r\n5\r\nhello\r\n%s\r\n%s: %s\r\n\r\n", odd(rng), now(rng, "0"), odd(rng), odd(rng))
	case 2: // a part of a body
		b.WriteString("Content-Length: 10\r\n\r\nhello")
	default:
		b.WriteString("\r\n")
	}
	return b.String()
}

func anyHTTP2(t *testing.T, rng *rand.Rand, addr string) {
	t.Helper()
	c := dialH2(t, addr)
	defer c.Close()
	fields := []string{":method", now(rng, pick(rng, "GET", "POST", "PUT", "DELETE", "OPTIONS")), ":scheme", now(rng, "http"), ":authority", now(rng, "h"), ":path", now(rng, "/"+odd(rng))}
	for range rng.IntN(4) {
		fields = append(fields, strings.ToLower(now(rng, pick(rng, "x-a", "trailer", "expect", "te", "upgrade", "connection", "cookie", "content-length"))), odd(rng))
	}
	body := rng.IntN(2) == 0
	id := c.request(!body, fields...)
	if body {
		trailers := rng.IntN(2) == 0
		c.WriteData(id, !trailers, []byte("hello"))
		if trailers {
			c.trailers(id, strings.ToLower(odd(rng)), odd(rng))
		}
	}
	c.answer(id)
}

// limited is a weir command with a limit of descriptors.
func limited(t *testing.T, descriptors int) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "weir")
	text := fmt.Sprintf("#!/bin/sh\nulimit -n %d\nexec %s \"$@\"\n", descriptors, binary)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return script
}

// TestDescriptorsRunOut: clients that use up all descriptors do not lock operators out, and take no
// target down. When they leave, all is as before.
func TestDescriptorsRunOut(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	releaseAll := sync.OnceFunc(func() { close(release) })
	hold := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			<-release
		}
		io.WriteString(w, "ok")
	}
	g := servePolicy(t, limited(t, 96), fmt.Sprintf(two, httpUpstream(t, hold), httpUpstream(t, hold)))
	t.Cleanup(releaseAll) // before the upstreams are closed
	var clients []net.Conn
	closeAll := func() {
		for _, c := range clients {
			c.Close()
		}
		clients = nil
	}
	defer closeAll()
	for range 200 {
		c, err := net.Dial("tcp", g.Gateway)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	refused, notSent := `weir_connections_refused_total{reason="descriptors"}`, "weir_gateway_not_sent_total"
	servers.Poll(t, "all clients are in, or refused", func() bool {
		m := g.Samples(t)
		return m[refused] > 0 && m[refused]+m["weir_connections_open"] == float64(len(clients))
	})
	for _, c := range clients {
		io.WriteString(c, "GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
	}
	servers.Poll(t, "descriptors run out", func() bool { return g.Samples(t)[notSent] > 0 })
	anew := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, page := range []string{"/healthz", "/readyz", "/metrics", "/v1/status"} {
		resp, err := anew.Get("http://" + g.Admin + page)
		if err != nil {
			t.Fatalf("%s while there are no descriptors: %v", page, err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Errorf("%s while there are no descriptors: %s", page, resp.Status)
		}
	}
	m := g.Samples(t)
	t.Logf("%v clients were refused, %v requests were not sent", m[refused], m[notSent])
	releaseAll()
	closeAll()
	servers.Poll(t, "clients are gone", func() bool { return g.Samples(t)["weir_connections_open"] < 5 })
	for name, v := range g.Samples(t) {
		if strings.HasPrefix(name, "weir_upstream_failures_total") && v != 0 || strings.HasPrefix(name, "weir_upstream_up") && v != 1 {
			t.Errorf("%s %v", name, v)
		}
	}
	for range 10 {
		if got := statuses(send(t, g.Gateway, last)); len(got) != 1 || got[0] != "200" {
			t.Fatalf("afterwards: %v", got)
		}
	}
}

// TestServicesLeaveDescriptors: clients of the service's addresses lock operators out as little as
// those of the gateway do. They once took all descriptors, and the admin pages did not respond.
func TestServicesLeaveDescriptors(t *testing.T) {
	t.Parallel()
	g := servePolicy(t, limited(t, 96), `
listen:
  admin: 127.0.0.1:0
  gateway: 127.0.0.1:0
  http: 127.0.0.1:0
  resp: 127.0.0.1:0
  rls: { address: 127.0.0.1:0, http: 127.0.0.1:0 }
limits: { all: { token_bucket: { rate: 1/s, burst: 1 } } }
upstreams: { up: { url: "http://127.0.0.1:1" } }
routes: [{ match: /, upstream: up, limits: [all] }]
`)
	for _, face := range []string{"http", "resp", "rls"} {
		for _, address := range g.ByFace[face] {
			var clients []net.Conn
			for range 200 {
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				clients = append(clients, c)
			}
			anew := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
			for _, page := range []string{"/readyz", "/v1/status"} {
				resp, err := anew.Get("http://" + g.Admin + page)
				if err != nil {
					t.Fatalf("%s while clients of listen.%s hold all descriptors: %v", page, face, err)
				}
				if resp.Body.Close(); resp.StatusCode != http.StatusOK {
					t.Errorf("%s while clients of listen.%s hold all descriptors: %s", page, face, resp.Status)
				}
			}
			for _, c := range clients {
				c.Close()
			}
		}
		if m := g.Samples(t); m[`weir_face_connections_refused_total{face="`+face+`",reason="descriptors"}`] == 0 {
			t.Errorf("listen.%s: no refusal is counted", face)
		}
	}
}
