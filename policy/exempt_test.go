package policy_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// TestExempt: a limit does not apply to requests that it exempts, by address, header, key, method
// or preflight. All others are limited.
func TestExempt(t *testing.T) {
	e, _ := engine(t, policy.Policy{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Limits: []policy.Limit{{
			Name: "l", Key: []string{"header.x-key"}, Limit: bucket("1/h", 1), OnMissing: "deny",
			Exempt: []string{"10.0.0.0/8", "192.0.2.7", "2001:db8::5", "::ffff:198.51.100.0/120", "header.x-internal=yes", "key.monitor", "method.PURGE", "preflight"},
		}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"l"}}},
	})
	other := "203.0.113.1"
	e.Decide(get("/", other, "X-Key", "k")) // it takes the only token
	for name, c := range map[string]struct {
		request policy.Request
		exempt  bool
	}{
		"no exemption":             {get("/", other, "X-Key", "k"), false},
		"a prefix":                 {get("/", "10.200.0.1", "X-Key", "k"), true},
		"beside the prefix":        {get("/", "11.0.0.1", "X-Key", "k"), false},
		"an address":               {get("/", "192.0.2.7", "X-Key", "k"), true},
		"beside the address":       {get("/", "192.0.2.8", "X-Key", "k"), false},
		"IPv4 in IPv6":             {get("/", "198.51.100.9", "X-Key", "k"), true},
		"without a key":            {get("/", "10.0.0.1"), true},
		"a key":                    {get("/", other, "X-Key", "monitor"), true},
		"a header from nobody":     {get("/", other, "X-Key", "k", "X-Internal", "yes"), false},
		"a header from a proxy":    {trusted(get("/", other, "X-Key", "k", "X-Internal", "yes")), true},
		"another value":            {trusted(get("/", other, "X-Key", "k", "X-Internal", "no")), false},
		"a header twice":           {trusted(get("/", other, "X-Key", "k", "X-Internal", "yes", "X-Internal", "yes")), false},
		"a method":                 {as("PURGE", get("/", other, "X-Key", "k")), true},
		"a preflight":              {as("OPTIONS", get("/", other, "Origin", "https://a", "Access-Control-Request-Method", "PUT")), true},
		"OPTIONS that is no such":  {as("OPTIONS", get("/", other, "X-Key", "k")), false},
		"one address of a /64":     {at("2001:db8::5", get("/", "2001:db8::/64", "X-Key", "k")), true},
		"another of the same /64":  {at("2001:db8::6", get("/", "2001:db8::/64", "X-Key", "k")), false},
		"no address, as in a unit": {get("/", "", "X-Key", "k"), false},
	} {
		if v := e.Decide(c.request); (v.Outcome == policy.Allow) != c.exempt {
			t.Errorf("%s: %v", name, v.Outcome)
		}
	}
	if n := e.Counts()[0]; n.Exempt != 9 || n.Allowed != 1 {
		t.Errorf("%d exempt, %d allowed", n.Exempt, n.Allowed)
	}
}

func trusted(r policy.Request) policy.Request { r.Trusted = true; return r }

func as(method string, r policy.Request) policy.Request { r.Method = method; return r }

func at(addr string, r policy.Request) policy.Request { r.Addr = netip.MustParseAddr(addr); return r }

// TestExemptEverywhere: exemptions also apply to concurrency, to shadows, and beside other limits.
// A ban takes precedence.
func TestExemptEverywhere(t *testing.T) {
	e, _ := engine(t, policy.Policy{
		Limits: []policy.Limit{
			{Name: "rate", Key: []string{"client.ip"}, Exempt: []string{"10.0.0.0/8"}, Limit: bucket("1/h", 1)},
			{Name: "conns", Key: []string{"client.ip"}, Exempt: []string{"10.0.0.0/8"}, Limit: weir.Concurrency{Limit: 1}},
			{Name: "dry", Key: []string{"client.ip"}, Exempt: []string{"10.0.0.0/8"}, Shadow: true, Limit: bucket("1/h", 1)},
			{Name: "all", Limit: bucket("1/h", 4)},
		},
		Routes: []policy.Route{{Match: "/", Limits: []string{"rate", "conns", "dry", "all"}}},
	})
	for i := range 4 {
		v := e.Decide(get("/", "10.0.0.1"))
		if err := v.Enter(t.Context()); err != nil || v.Outcome != policy.Allow {
			t.Fatalf("request %d: %v, %v", i, v.Outcome, err)
		}
	}
	if v := e.Decide(get("/", "10.0.0.1")); v.Outcome != policy.Deny || v.Limit != "all" {
		t.Errorf("the limit for all: %v %q", v.Outcome, v.Limit)
	}
	for _, c := range e.Counts()[:3] {
		if want := uint64(4); c.Limit != "rate" && c.Exempt != want || c.Allowed+c.Limited != 0 {
			t.Errorf("%+v", c)
		}
	}
	if err := e.Override(policy.Override{Limit: "rate", Key: []string{"10.0.0.1"}, Ban: true, For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if v := e.Decide(get("/", "10.0.0.1")); v.Outcome != policy.Deny || v.Limit != "rate" {
		t.Errorf("a ban: %v %q", v.Outcome, v.Limit)
	}
}

// TestExemptInStore: a limit in a store, alone on its route, admits exempt requests without a
// charge.
func TestExemptInStore(t *testing.T) {
	c := new(weirtest.Clock)
	store := newFaulty(c)
	e := sharing(t, policy.Policy{
		Limits: []policy.Limit{{
			Name: "l", Key: []string{"header.x-key"}, Limit: bucket("1/h", 1), OnMissing: "deny", Store: "s",
			Exempt: []string{"10.0.0.0/8", "key.monitor", "preflight"},
		}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"l"}}},
	}, c, map[string]weir.Store{"s": store})
	other := "203.0.113.1"
	for name, r := range map[string]policy.Request{
		"an address":  get("/", "10.0.0.1"),
		"a key":       get("/", other, "X-Key", "monitor"),
		"a preflight": as("OPTIONS", get("/", other, "Origin", "https://a", "Access-Control-Request-Method", "PUT")),
	} {
		if v := e.Decide(r); v.Outcome != policy.Allow {
			t.Errorf("%s: %v", name, v.Outcome)
		}
	}
	if n := e.Counts()[0]; n.Exempt != 3 || n.Allowed+n.Limited != 0 || store.called() != 0 {
		t.Errorf("%d exempt, %d allowed, %d limited, %d calls of the store", n.Exempt, n.Allowed, n.Limited, store.called())
	}
	if v := e.Decide(get("/", other)); v.Outcome != policy.Deny {
		t.Errorf("without a key: %v", v.Outcome)
	}
}

// TestWrongExemptions: the error of an invalid exemption says what would be valid.
func TestWrongExemptions(t *testing.T) {
	for text, want := range map[string]string{
		"internal":        `"internal" is not an exemption: write an address or a prefix like 10.0.0.0/8`,
		"headr.x=1":       `did you mean "header.x=1"?`,
		"header.x":        `write header.NAME=VALUE`,
		"header.=1":       `write header.NAME=VALUE`,
		"key.a,b":         `has 2 values, and the key of the limit has 1 parts`,
		"method.get":      `write it like method.OPTIONS`,
		"10.0.0.0/33":     `is not an exemption`,
		"header.x-a=true": `a header exempts no request: it is believed only from trusted_proxies, and there are none`,
	} {
		p := policy.Policy{
			Limits: []policy.Limit{{Name: "l", Key: []string{"host"}, Limit: bucket("1/h", 1), Exempt: []string{text}}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"l"}}},
		}
		var all []string
		for _, problem := range p.Check() {
			all = append(all, problem.String())
		}
		if got := strings.Join(all, "\n"); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
