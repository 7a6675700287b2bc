package policy_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// TestFullAddress: client.ip/128 counts each address of a /64 by itself, and client.ip all of them
// together; IPv4, also inside IPv6, and zones make no difference between the two. Bans, grants and asks
// by name use the same keys as requests.
func TestFullAddress(t *testing.T) {
	limit := func(name, part string) policy.Limit {
		return policy.Limit{Name: name, Key: []string{part}, Limit: weir.FixedWindow{Limit: 1, Align: "year"}}
	}
	e, err := policy.New(policy.Policy{
		Limits: []policy.Limit{limit("full", "client.ip/128"), limit("net", "client.ip")},
		Routes: []policy.Route{{Match: "/full", Limits: []string{"full"}}, {Match: "/net", Limits: []string{"net"}}},
	}, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	admits := func(path, address string) bool {
		r := policy.Request{Method: "GET", Host: "a", Path: path, Client: policy.ClientKeyOf(address)}
		r.Addr, _ = netip.ParseAddr(address)
		return e.Decide(r).Outcome == policy.Allow
	}
	for _, c := range []struct {
		address   string
		full, net bool
	}{
		{"2001:db8::1", true, true},
		{"2001:db8::1", false, false},
		{"2001:db8::2", true, false}, // of the same /64
		{"2001:db8:0:1::1", true, true},
		{"2001:0db8:0000:0000:0000:0000:0000:0002%eth0", false, false},
		{"192.0.2.7", true, true},
		{"::ffff:192.0.2.7", false, false},
		{"192.0.2.8", true, true},
	} {
		if full, net := admits("/full", c.address), admits("/net", c.address); full != c.full || net != c.net {
			t.Errorf("%s: client.ip/128 admits: %v, want %v; client.ip: %v, want %v", c.address, full, c.full, net, c.net)
		}
	}

	for _, text := range []string{"2001:DB8::2", "::ffff:192.0.2.7"} {
		if a, err := e.Peek(context.Background(), []policy.Ask{{Limit: "full", Key: []string{text}, Cost: 1}}); err != nil || a.Allowed {
			t.Errorf("%s by name: %+v, %v", text, a, err)
		}
	}
	if _, err := e.Peek(context.Background(), []policy.Ask{{Limit: "full", Key: []string{"2001:db8::/64"}, Cost: 1}}); err == nil {
		t.Error("a /64 is no full address")
	}
	for _, o := range []struct {
		key       string
		is, isNot string
	}{
		{"2001:db8:2::1", "2001:db8:2::1", "2001:db8:2::2"},
		{"2001:db8:3::8/126", "2001:db8:3::b", "2001:db8:3::c"},
		{"198.51.100.0/31", "198.51.100.1", "198.51.100.2"},
	} {
		if err := e.Override(policy.Override{Limit: "full", Key: []string{o.key}, Ban: true, For: time.Hour}); err != nil {
			t.Fatal(o.key, err)
		}
		if admits("/full", o.is) || !admits("/full", o.isNot) {
			t.Errorf("a ban of %s: applies to %s: %v, to %s: %v", o.key, o.is, !admits("/full", o.is), o.isNot, !admits("/full", o.isNot))
		}
	}
}
