package rls

import (
	"fmt"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// checkOf describes a request as Envoy does.
func checkOf(method, path, from string, headers ...string) *auth.CheckRequest {
	fields := map[string]string{":method": method, ":path": path}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		fields[name] = value
	}
	return &auth.CheckRequest{Attributes: &auth.AttributeContext{
		Source:  &auth.AttributeContext_Peer{Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: from, PortSpecifier: &core.SocketAddress_PortValue{PortValue: 1234}}}}},
		Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{Method: method, Path: path, Host: "shop.example", Headers: fields, Size: -1}},
	}}
}

// TestExtAuthz: the routes of the policy decide. Refused requests get 429 with Retry-After and the
// RateLimit fields, admitted ones the fields; what no route matches may go on.
func TestExtAuthz(t *testing.T) {
	s := &service{t: t, folder: t.TempDir(), registry: prometheus.NewRegistry()}
	s.open(`
listen: { rls: { address: "127.0.0.1:0" } }
trusted_proxies: [10.0.0.0/8]
limits:
  per-client: { key: client.ip, token_bucket: { rate: 1/h, burst: 2 } }
  per-user: { key: header.x-user, token_bucket: { rate: 1/h, burst: 1 }, on_missing: skip }
  places: { concurrency: { limit: 1 } }
routes:
  - { match: "GET /busy", limits: [places] }
  - { match: "GET /own", limits: [per-user], refused: { status: 503, body: "later" } }
  - { match: /shop/, limits: [per-client, per-user] }
`)
	client := auth.NewAuthorizationClient(s.conn)
	ask := func(r *auth.CheckRequest) string {
		t.Helper()
		out, err := client.Check(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(codes.Code(out.Status.Code))
		fields := out.GetOkResponse().GetResponseHeadersToAdd()
		if d := out.GetDeniedResponse(); d != nil {
			text += fmt.Sprint(" ", int(d.Status.Code), " ", strings.TrimSpace(d.Body))
			fields = d.Headers
		}
		for _, f := range fields {
			if f.Header.Key != "ratelimit-policy" {
				text += fmt.Sprintf(" %s: %s", f.Header.Key, f.Header.Value)
			}
		}
		return text
	}
	for _, c := range []struct {
		request *auth.CheckRequest
		want    string
	}{
		{checkOf("GET", "/shop/a?b=c", "192.0.2.1"), `OK ratelimit: "per-client";r=1;t=3600`},
		{checkOf("POST", "/shop/b", "192.0.2.1"), `OK ratelimit: "per-client";r=0;t=7200`},
		{checkOf("GET", "/shop/c", "192.0.2.1"), `ResourceExhausted 429 Too Many Requests cache-control: no-store content-type: text/plain; charset=utf-8 ratelimit: "per-client";r=0;t=3600 retry-after: 3600`},
		{checkOf("GET", "/shop/c", "192.0.2.1", "x-forwarded-for: 203.0.113.9"), `ResourceExhausted 429 `}, // it is not a trusted proxy
		{checkOf("GET", "/shop/c", "10.0.0.1", "x-forwarded-for: 192.0.2.1"), `ResourceExhausted 429 `},
		{checkOf("GET", "/shop/c", "10.0.0.1", "x-forwarded-for: 203.0.113.9"), `OK ratelimit: "per-client";r=1`},
		{checkOf("GET", "/own", "192.0.2.1", "x-user: ann"), `OK ratelimit: "per-user";r=0`},
		{checkOf("GET", "/own", "192.0.2.1", "x-user: ann"), `PermissionDenied 503 later cache-control: no-store content-type: text/plain; charset=utf-8 ratelimit: "per-user";r=0`},
		{checkOf("GET", "/own", "192.0.2.1", "x-user: bob"), `OK ratelimit: "per-user";r=0`},
		{checkOf("GET", "/busy", "192.0.2.1"), "OK"},
		{checkOf("GET", "/busy", "192.0.2.1"), "OK"}, // the place was left at once
		{checkOf("GET", "/elsewhere", "192.0.2.1"), "OK"},
		{checkOf("GET", "no-path", "192.0.2.1"), "PermissionDenied 400 "},
		// paths that the application may read as /shop/a, where another route, or none, decided
		{checkOf("GET", "/shop/a#b", "192.0.2.1"), "PermissionDenied 400 "},
		{checkOf("GET", "/shop\\a", "192.0.2.1"), "PermissionDenied 400 "},
		{checkOf("GET", "/shop/a b", "192.0.2.1"), "PermissionDenied 400 "},
		{&auth.CheckRequest{}, "PermissionDenied 400 "},
	} {
		got := ask(c.request)
		if !strings.HasPrefix(got, c.want) || c.want == "OK" && got != "OK" {
			t.Errorf("%v\ngot  %s\nwant %s", c.request, got, c.want)
		}
	}
}
