package weirgrpc_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weirflow/weir/weirgrpc"
)

// from is a call at a server from an address, with metadata.
func from(addr string, pairs ...string) *weirgrpc.Call {
	at := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: at})
	return &weirgrpc.Call{Context: metadata.NewIncomingContext(ctx, metadata.Pairs(pairs...)), Method: say}
}

// verify accepts tokens of the form good-NAME.
func verify(_ context.Context, token string) (map[string]any, error) {
	name, ok := strings.CutPrefix(token, "good-")
	if !ok {
		return nil, errors.New("the signature is wrong")
	}
	return map[string]any{"sub": name}, nil
}

// TestKeys: what each key is for a call.
func TestKeys(t *testing.T) {
	proxies := netip.MustParsePrefix("10.0.0.0/8")
	for name, c := range map[string]struct {
		key  weirgrpc.KeyFunc
		call *weirgrpc.Call
		want string
		none bool
	}{
		"IPv4":                         {weirgrpc.ByIP(), from("192.0.2.1:99"), "192.0.2.1", false},
		"IPv6 by /64":                  {weirgrpc.ByIP(), from("[2001:db8::1:2:3:4]:99"), "2001:db8::/64", false},
		"IPv4 in IPv6":                 {weirgrpc.ByIP(), from("[::ffff:192.0.2.1]:99"), "192.0.2.1", false},
		"a header of no trusted proxy": {weirgrpc.ByIP(), from("10.0.0.1:99", "x-forwarded-for", "192.0.2.9"), "10.0.0.1", false},
		"behind a proxy":               {weirgrpc.ByIP(proxies), from("10.0.0.1:99", "x-forwarded-for", "203.0.113.1, 192.0.2.9, 10.0.0.2"), "192.0.2.9", false},
		"several fields":               {weirgrpc.ByIP(proxies), from("10.0.0.1:99", "x-forwarded-for", "192.0.2.9", "x-forwarded-for", "10.0.0.2"), "192.0.2.9", false},
		"a header of a client":         {weirgrpc.ByIP(proxies), from("192.0.2.1:99", "x-forwarded-for", "203.0.113.1"), "192.0.2.1", false},
		"another field":                {weirgrpc.ByIPFrom("X-Real-IP", proxies), from("10.0.0.1:99", "x-real-ip", "2001:db8::9"), "2001:db8::/64", false},
		"no address":                   {weirgrpc.ByIP(), &weirgrpc.Call{Context: context.Background()}, "", true},
		"a Unix socket":                {weirgrpc.ByIP(), &weirgrpc.Call{Context: peer.NewContext(context.Background(), &peer.Peer{Addr: &net.UnixAddr{Name: "@", Net: "unix"}})}, "", true},
		"metadata":                     {weirgrpc.ByMetadata("X-Api-Key"), from("192.0.2.1:9", "x-api-key", "k"), "k", false},
		"credentials":                  {weirgrpc.ByMetadata("Authorization"), from("192.0.2.1:9", "authorization", "BEARER  Sk"), "bearer Sk", false},
		"metadata twice":               {weirgrpc.ByMetadata("x-api-key"), from("192.0.2.1:9", "x-api-key", "k", "x-api-key", "l"), "", false},
		"no metadata":                  {weirgrpc.ByMetadata("x-api-key"), from("192.0.2.1:9"), "", true},
		"a token":                      {weirgrpc.ByJWT("sub", verify), from("192.0.2.1:9", "authorization", "bearer good-ann"), "ann", false},
		"a forged token":               {weirgrpc.ByJWT("sub", verify), from("192.0.2.1:9", "authorization", "Bearer bad-ann"), "", true},
		"two tokens":                   {weirgrpc.ByJWT("sub", verify), from("192.0.2.1:9", "authorization", "Bearer good-ann", "authorization", "Bearer good-bob"), "", true},
		"no token":                     {weirgrpc.ByJWT("sub", verify), from("192.0.2.1:9", "authorization", "Basic good-ann"), "", true},
		"the method":                   {weirgrpc.ByMethod(), from("192.0.2.1:9"), say, false},
		"all":                          {weirgrpc.Global(), from("192.0.2.1:9"), "", false},
		"a part that is missing":       {weirgrpc.Join(weirgrpc.ByMethod(), weirgrpc.ByMetadata("a")), from("192.0.2.1:9"), "", true},
		"outgoing metadata are no key": {weirgrpc.ByMetadata("k"), &weirgrpc.Call{Context: metadata.AppendToOutgoingContext(context.Background(), "k", "v")}, "", true},
	} {
		if got, ok := c.key(c.call); got != c.want || ok == c.none {
			t.Errorf("%s: %q, %v, want %q", name, got, ok, c.want)
		}
	}
	join := weirgrpc.Join(weirgrpc.ByMetadata("a"), weirgrpc.ByMetadata("b"))
	one, _ := join(from("192.0.2.1:9", "a", "xy", "b", "z"))
	two, _ := join(from("192.0.2.1:9", "a", "x", "b", "yz"))
	if one == two {
		t.Errorf("two lists of parts have the key %q", one)
	}
}

// TestInvalidArguments: mistakes of the program show when it starts.
func TestInvalidArguments(t *testing.T) {
	for want, f := range map[string]func(){
		"without a key":                         func() { weirgrpc.Keyed(perHour(t, "l", 1), nil) },
		"limiter that is nil":                   func() { weirgrpc.Keyed(nil, weirgrpc.Global()) },
		"not a name of metadata":                func() { weirgrpc.ByMetadata("x api") },
		"write a method as":                     func() { weirgrpc.Methods("shop.Cart") },
		"PerMessage or PerResponse of InFlight": func() { weirgrpc.InFlight(placesOf(t, oneCall), weirgrpc.Global(), weirgrpc.PerMessage()) },
		"no limits":                             func() { weirgrpc.UnaryServer(nil) },
		"a Limit that is empty":                 func() { weirgrpc.UnaryServer(weirgrpc.Limits{{}}) },
		"option of Shared": func() {
			weirgrpc.Keyed(perHour(t, "l", 1), weirgrpc.Global(), weirgrpc.Fallback(halfShare))
		},
		"Retry without methods":    func() { weirgrpc.Retry(1) },
		"Retry(-1)":                func() { weirgrpc.Retry(-1, say) },
		"Wait(-1s)":                func() { weirgrpc.Wait(-time.Second) },
		"Waiting(-1)":              func() { weirgrpc.Waiting(-1) },
		"MaxPause(0s)":             func() { weirgrpc.MaxPause(0) },
		"PauseBy without":          func() { weirgrpc.PauseBy(nil) },
		"Join without keys":        func() { weirgrpc.Join() },
		"prefix that is not valid": func() { weirgrpc.ByIP(netip.Prefix{}) },
		"PerResponse of InFlight": func() {
			weirgrpc.InFlight(placesOf(t, oneCall), weirgrpc.Global(), weirgrpc.PerResponse())
		},
		"ByJWT without": func() { weirgrpc.ByJWT("sub", nil) },
		"ForMiddleware of InFlight": func() {
			weirgrpc.ForMiddleware(weirgrpc.Limits{weirgrpc.InFlight(placesOf(t, oneCall), weirgrpc.Global())})
		},
		"write MissingKey":            func() { weirgrpc.OnMissing(7) },
		`/shop.*/Get`:                 func() { weirgrpc.Methods("/shop.*/Get") },
		"Join of a KeyFunc that is n": func() { weirgrpc.Join(nil) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, want) {
					t.Errorf("want a panic with %q, got %q", want, text)
				}
			}()
			f()
		}()
	}
}
