package policy_test

import (
	"testing"

	"github.com/weirflow/weir/policy"
)

// Each test here is named after a defect of another rate limiter. The root's peers_test.go has
// more.

// envoyproxy/ratelimit and gubernator join the parts of a key with "_", httprate with ":". A client
// that chooses one part can get the key of another client.
func TestPeerAmbiguousCompositeKeys(t *testing.T) {
	for _, pair := range [][2][2]string{{{"a_b", "c"}, {"a", "b_c"}}, {{"a:b", "c"}, {"a", "b:c"}}, {{"a,b", "c"}, {"a", "b,c"}}, {{"", "ab"}, {"ab", ""}}} {
		e, _ := engine(t, policy.Policy{
			Limits: []policy.Limit{{Name: "l", Key: []string{"header.x", "header.y"}, Limit: bucket("1/h", 1)}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"l"}}},
		})
		for _, parts := range pair {
			if v := e.Decide(get("/", "10.0.0.1", "x", parts[0], "y", parts[1])); v.Outcome != policy.Allow {
				t.Errorf("%q shares a key", pair)
			}
		}
	}
}

// ulule/limiter (#230): limits with the same key share its count.
func TestPeerLimitsShareAKey(t *testing.T) {
	e, _ := engine(t, policy.Policy{
		Limits: []policy.Limit{
			{Name: "a", Key: []string{"client.ip"}, Limit: bucket("1/h", 1)},
			{Name: "b", Key: []string{"client.ip"}, Limit: bucket("1/h", 1)},
		},
		Routes: []policy.Route{{Match: "/a", Limits: []string{"a"}}, {Match: "/b", Limits: []string{"b"}}},
	})
	for _, path := range []string{"/a", "/b"} {
		if v := e.Decide(get(path, "10.0.0.1")); v.Outcome != policy.Allow {
			t.Errorf("%s: %+v", path, v.Decision)
		}
	}
}

// didip/tollbooth: a request without the header that identifies the client is not limited.
func TestPeerMissingHeaderIsFree(t *testing.T) {
	e, _ := engine(t, policy.Policy{
		Limits: []policy.Limit{{Name: "l", Key: []string{"header.x-user"}, Limit: bucket("1/h", 1)}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"l"}}},
	})
	e.Decide(get("/", "10.0.0.1"))
	for range 10 {
		if v := e.Decide(get("/", "10.0.0.1")); v.Outcome != policy.Deny {
			t.Errorf("%v", v.Outcome)
		}
	}
}

// oxy cuts an address at its first colon: all of 2001::/16 share one bucket.
func TestPeerAddressesCutAtAColon(t *testing.T) {
	seen := map[string]string{}
	for _, address := range []string{"2001:db8:0:1::1", "2001:db8:0:2::1", "2001:db9::1", "10.0.0.1", "10.0.0.2"} {
		key := policy.ClientKeyOf(address)
		if other, known := seen[key]; known || key == "" {
			t.Errorf("%s has the key %q of %s", address, key, other)
		}
		seen[key] = address
	}
}
