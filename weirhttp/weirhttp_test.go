package weirhttp_test

import (
	"math"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirhttp"
)

var proxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}

func TestClientIP(t *testing.T) {
	for _, c := range []struct {
		peer    string
		forward []string
		trusted []netip.Prefix
		want    string
	}{
		{"192.0.2.1:99", nil, nil, "192.0.2.1"},
		{"[2001:db8::1]:99", nil, nil, "2001:db8::1"},
		{"[::ffff:192.0.2.1]:99", nil, nil, "192.0.2.1"},
		{"[fe80::1%eth0]:99", nil, nil, "fe80::1"},
		{"192.0.2.1:99", []string{"1.1.1.1"}, nil, "192.0.2.1"},
		{"192.0.2.1:99", []string{"1.1.1.1"}, proxies, "192.0.2.1"}, // the peer is not trusted
		{"10.0.0.1:99", []string{"1.1.1.1"}, proxies, "1.1.1.1"},
		{"10.0.0.1:99", []string{"6.6.6.6, 1.1.1.1"}, proxies, "1.1.1.1"}, // the part that the client wrote is left of what a trusted proxy wrote
		{"10.0.0.1:99", []string{"6.6.6.6, 1.1.1.1, 10.2.3.4"}, proxies, "1.1.1.1"},
		{"10.0.0.1:99", []string{"6.6.6.6", "1.1.1.1,2001:db8::7"}, proxies, "1.1.1.1"},
		{"10.0.0.1:99", []string{"10.9.9.9, 10.8.8.8"}, proxies, "10.9.9.9"},
		{"10.0.0.1:99", []string{"6.6.6.6, garbage, 10.8.8.8"}, proxies, "10.8.8.8"},
		{"10.0.0.1:99", []string{"garbage"}, proxies, "10.0.0.1"},
		{"10.0.0.1:99", []string{""}, proxies, "10.0.0.1"},
		{"10.0.0.1:99", []string{"1.1.1.1:8080"}, proxies, "1.1.1.1"},
		{"10.0.0.1:99", []string{"[2001:db9::1]:8080"}, proxies, "2001:db9::1"},
		{"10.0.0.1:99", []string{"[2001:db9::1]"}, proxies, "2001:db9::1"},
		{"10.0.0.1:99", []string{"[1.1.1.1]"}, proxies, "1.1.1.1"},
		{"10.0.0.1:99", []string{"[1.1.1.1"}, proxies, "10.0.0.1"}, // half a bracket is no address
		{"10.0.0.1:99", []string{"2001:db9::1]"}, proxies, "10.0.0.1"},
		{"10.0.0.1:99", []string{"::ffff:10.0.0.2, ::ffff:1.1.1.1"}, proxies, "1.1.1.1"},
		{"10.0.0.1:99", []string{strings.Repeat("10.0.0.2,", 100_000)}, proxies, "10.0.0.1"},
		{"10.0.0.1:99", []string{"1.1.1.1, " + strings.Repeat("10.0.0.2,", 63) + "10.0.0.2"}, proxies, "10.0.0.2"}, // more hops than are read
		{"@", nil, nil, "invalid IP"},
		{"", []string{"1.1.1.1"}, proxies, "invalid IP"},
	} {
		r := &http.Request{RemoteAddr: c.peer, Header: http.Header{}}
		if c.forward != nil {
			r.Header["X-Forwarded-For"] = c.forward
		}
		if got := weirhttp.ClientIP(r, c.trusted).String(); got != c.want {
			t.Errorf("%s, %.60q: %s, want %s", c.peer, c.forward, got, c.want)
		}
	}
	if !weirhttp.Trusted(&http.Request{RemoteAddr: "10.0.0.1:9"}, proxies) || weirhttp.Trusted(&http.Request{RemoteAddr: "11.0.0.1:9"}, proxies) {
		t.Error("whom we trust")
	}
}

func FuzzClientIP(f *testing.F) {
	f.Add("10.0.0.1:99", "6.6.6.6, 1.1.1.1, 10.2.3.4")
	f.Fuzz(func(t *testing.T, peer, forward string) {
		r := &http.Request{RemoteAddr: peer, Header: http.Header{"X-Forwarded-For": {forward}}}
		direct := weirhttp.ClientIP(r, nil)
		if got := weirhttp.ClientIP(r, proxies); got != direct && !weirhttp.Trusted(r, proxies) {
			t.Errorf("%s through %q became %v", peer, forward, got)
		}
		// Text that the client puts in front of a trusted proxy's part changes nothing.
		r.Header["X-Forwarded-For"] = []string{forward + ", 1.1.1.1"}
		if got := weirhttp.ClientIP(r, proxies); weirhttp.Trusted(r, proxies) && got.String() != "1.1.1.1" {
			t.Errorf("%q made it %v", forward, got)
		}
	})
}

func TestFields(t *testing.T) {
	refused := []policy.Evaluated{{Name: "per-user", Limit: 200, Window: 2 * time.Second,
		Decision: weir.Decision{Limit: 200, RetryAfter: 10 * time.Millisecond, ResetAfter: 2 * time.Second}}}
	h := http.Header{}
	weirhttp.SetRateLimit(h, refused)
	weirhttp.SetXRateLimit(h, refused)
	weirhttp.SetRetryAfter(h, refused[0].Decision)
	for name, want := range map[string]string{
		"Ratelimit": `"per-user";r=0;t=1`, "Ratelimit-Policy": `"per-user";q=200;w=2`, "Retry-After": "1",
		"X-Ratelimit-Limit": "200", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	two := []policy.Evaluated{
		{Name: "a", Limit: math.MaxInt64, Window: time.Millisecond, Decision: weir.Decision{Allowed: true, Remaining: math.MaxInt64, ResetAfter: 1001 * time.Millisecond}},
		{Name: "b", Limit: 5, Decision: weir.Decision{Remaining: 3, RetryAfter: weir.Never}},
	}
	h = http.Header{}
	weirhttp.SetRateLimit(h, two)
	weirhttp.SetXRateLimit(h, two)
	weirhttp.SetRetryAfter(h, two[1].Decision)
	for name, want := range map[string]string{
		"Ratelimit":        `"a";r=999999999999999;t=2, "b";r=3`,
		"Ratelimit-Policy": `"a";q=999999999999999;w=1, "b";q=5`,
		"Retry-After":      "", "X-Ratelimit-Remaining": "3", "X-Ratelimit-Reset": "",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	h = http.Header{}
	weirhttp.SetRateLimit(h, nil)
	weirhttp.SetXRateLimit(h, nil)
	if len(h) != 0 {
		t.Errorf("%v", h)
	}
}
