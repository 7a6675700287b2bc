package edge

import (
	"fmt"
	"strings"
	"testing"
)

// TestFoldedHeaders: headers that WSGI, PHP and CGI servers read as others are dropped, refused or
// allowed, as the route says. Those that frame a message are dropped by default, too.
func TestFoldedHeaders(t *testing.T) {
	up := newRawUpstream(t)
	g := startWeir(t, t.TempDir(), "  gateway: { address: \"127.0.0.1:0\", h2c: true }\n", up.addr, `
limits: { user: { key: header.user-id, on_missing: deny, token_bucket: { rate: 1/d, burst: 1000 } } }
routes:
  - { match: /drop, upstream: up, limits: [user] }
  - { match: /refuse, upstream: up, limits: [user], underscore_headers: refuse }
  - { match: /allow, upstream: up, limits: [user], underscore_headers: allow }
`)
	for name, matters := range map[string]bool{
		"User_Id": true, "User.Id": true, "uSER_iD": true, "User|Id": true, "Content_Length": true, "Transfer_Encoding": true, "X_Forwarded_For": true, "X_Real_IP": true, "Content_Type": true,
		"X_Other": false, "User__Id": false, "UserId": false, "X_User_Id": false,
	} {
		for path, want := range map[string]struct {
			status  string
			arrives bool
		}{
			"/drop": {"200", !matters}, "/refuse": {map[bool]string{true: "400", false: "200"}[matters], !matters}, "/allow": {"200", true},
		} {
			up.take()
			got := strings.Join(statuses(send(t, g.Gateway, "GET "+path+" HTTP/1.1\r\nHost: h\r\nUser-Id: a\r\n"+name+": 7\r\nConnection: close\r\n\r\n")), " ")
			arrived := strings.Contains(strings.ToLower(up.take()), strings.ToLower("\n"+name+": 7"))
			if got != want.status || arrived != want.arrives {
				t.Errorf("%s %s over HTTP/1: %s, and it arrived: %v", path, name, got, arrived)
			}
			c := dialH2(t, g.Gateway)
			got = c.answer(c.request(true, ":method", "GET", ":scheme", "http", ":authority", "h", ":path", path, "user-id", "a", strings.ToLower(name), "7"))
			arrived = strings.Contains(strings.ToLower(up.take()), strings.ToLower("\n"+name+": 7"))
			if got != want.status || arrived != want.arrives {
				t.Errorf("%s %s over HTTP/2: %s, and it arrived: %v", path, name, got, arrived)
			}
			c.Close()
		}
	}
	if got := statuses(send(t, g.Gateway, "GET /drop HTTP/1.1\r\nHost: h\r\nUser_Id: a\r\nConnection: close\r\n\r\n")); len(got) != 1 || got[0] != "429" {
		t.Errorf("an alias alone counts as missing: %v", got)
	}
	m := g.Samples(t)
	if m[`weir_gateway_alias_headers_total{outcome="dropped"}`] == 0 || m[`weir_gateway_alias_headers_total{outcome="refused"}`] == 0 {
		t.Error("they are not counted")
	}
}

// TestProxyHeaders: headers that only proxies should set are accepted from trusted proxies alone, and
// Proxy, which CGI programs get as HTTP_PROXY, from nobody. Forwarded-For and Remote-Addr were once
// passed on, and with them whatever address a client had made up.
func TestProxyHeaders(t *testing.T) {
	names := []string{"X-Real-IP", "X-Client-IP", "True-Client-IP", "CF-Connecting-IP", "Fastly-Client-IP", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Original-URL", "X-Rewrite-URL", "X-Edge-Client", "Client-IP",
		"Forwarded-For", "X-Forward-For", "Remote-Addr", "CF-Pseudo-IPv4", "X-Vercel-Forwarded-For", "X-HTTP-Host-Override", "Proxy"}
	for trusted, arrives := range map[string]bool{"": false, "trusted_proxies: [127.0.0.0/8]\n": true} {
		up := newRawUpstream(t)
		g := startWeir(t, t.TempDir(), "  gateway: { address: \"127.0.0.1:0\", h2c: true }\n", up.addr, trusted+"client_header: X-Edge-Client\n"+routes)
		for _, name := range names {
			for _, method := range []string{"GET", "POST"} { // each uses another client for upstreams
				up.take()
				send(t, g.Gateway, fmt.Sprintf("%s / HTTP/1.1\r\nHost: h\r\n%s: 6.6.6.6\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", method, name))
				if arrived := strings.Contains(up.take(), "6.6.6.6"); arrived != (arrives && name != "Proxy") {
					t.Errorf("%s %s, %q: it arrived: %v", method, name, trusted, arrived)
				}
			}
		}
	}
}

// TestTrailers: a request's trailers are passed on unless they could be taken for headers.
func TestTrailers(t *testing.T) {
	up := newRawUpstream(t)
	g := startWeir(t, t.TempDir(), "  gateway: { address: \"127.0.0.1:0\", h2c: true }\n", up.addr, `
limits: { user: { key: header.user-id, token_bucket: { rate: 1/d, burst: 1000 } } }
routes: [{ match: /, upstream: up, limits: [user] }]
`)
	for name, passes := range map[string]bool{
		"X-Checksum": true, "Grpc-Status": true, "X_Sum": true,
		"X-Forwarded-For": false, "X_Forwarded_For": false, "X-Real-Ip": false, "User-Id": false, "User_Id": false, "Content-Length": false, "Content_Length": false, "Transfer-Encoding": false, "Host": false,
		"Trailer": false, "Connection": false, "Authorization": false, "Cookie": false, "Content-Type": false, "If-Match": false, "Te": false,
	} {
		up.take()
		raw := fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: %s, X-Also\r\nConnection: close\r\n\r\n1\r\nx\r\n0\r\n%s: 777\r\nX-Also: 888\r\nX-Unannounced: 999\r\n\r\n", name, name)
		got := statuses(send(t, g.Gateway, raw))
		arrived := up.take()
		if strings.Contains(arrived, "777") != passes || strings.Contains(arrived, "999") || len(got) != 1 || got[0] == "200" && !strings.Contains(arrived, "888") {
			t.Errorf("%s over HTTP/1: %v, and the upstream got %q", name, got, arrived)
		}
		c := dialH2(t, g.Gateway)
		id := c.request(false, ":method", "POST", ":scheme", "http", ":authority", "h", ":path", "/", "trailer", name+", x-also")
		c.WriteData(id, false, []byte("x"))
		c.trailers(id, strings.ToLower(name), "777", "x-also", "888", "x-unannounced", "999")
		status := c.answer(id)
		if arrived = up.take(); strings.Contains(arrived, "777") != passes || strings.Contains(arrived, "999") {
			t.Errorf("%s over HTTP/2: %s, and the upstream got %q", name, status, arrived)
		}
		c.Close()
	}
}

// TestMethodsInLowerCase: many upstreams take post for POST. Such a request would get past the routes
// of POST, so it is refused.
func TestMethodsInLowerCase(t *testing.T) {
	up := newRawUpstream(t)
	g := startWeir(t, t.TempDir(), "  gateway: { address: \"127.0.0.1:0\", h2c: true }\n", up.addr, routes)
	for method, want := range map[string]string{"POST": "200", "M-SEARCH": "200", "X!1": "200", "post": "400", "Post": "400", "POSt": "400", "m-search": "400"} {
		got := strings.Join(statuses(send(t, g.Gateway, method+" / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")), " ")
		c := dialH2(t, g.Gateway)
		got2 := c.answer(c.request(true, ":method", method, ":scheme", "http", ":authority", "h", ":path", "/"))
		c.Close()
		if got != want || got2 != want {
			t.Errorf("%s: %s, over HTTP/2 %s", method, got, got2)
		}
	}
}
