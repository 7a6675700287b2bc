package rls

import (
	"slices"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
)

const inline = `
domain: shop
descriptors:
  - key: user
    limit: { token_bucket: { rate: 1/h, burst: 3 } }
  - key: path
    value: /a b
    descriptors:
      - key: user
        limit: { key: [client.ip], sliding_log: { limit: 2, window: 90m } }
  - key: spent
    value: some
    descriptors: [{ key: user, settle: per-user }]
  - key: work
    value: done
    descriptors: [{ key: user, settle: envoy/shop/user }]
  - key: plain
    rate_limit: { unit: day, requests_per_unit: 10 }
  - key: quiet
    limit: { shadow: true, fixed_window: { limit: 1, align: month } }
`

// withInline serves files of Envoy beside limits of a policy.
func withInline(t *testing.T, rules, settings string) *service {
	s := &service{t: t, folder: t.TempDir()}
	s.registry = prometheus.NewRegistry()
	s.write(rules)
	s.open("listen: { rls: { address: \"127.0.0.1:0\", envoy: rules.yaml" + settings + " } }" + limits)
	return s
}

// names returns the names of the limits that the files of Envoy have.
func (s *service) names() (all []string) {
	for _, l := range s.policy.File().Elsewhere() {
		all = append(all, l.Name)
	}
	return all
}

// TestLimitInPlace: a descriptor may have any limit with its parameters. It is charged together with the
// other limits of Weir, or not at all, and has a name of its own.
func TestLimitInPlace(t *testing.T) {
	s := withInline(t, inline, "")
	for _, c := range []struct{ descriptors, want string }{
		{"user=ann", "OK: OK 2/3"},
		{"user=ann;path=/a b,user=10.0.0.1", "OK: OK 1/3, OK 1/2"},
		{"path=/a b,user=10.0.0.1", "OK: OK 0/2"},
		{"user=ann;path=/a b,user=10.0.0.1", "OVER_LIMIT: OK 1/3, OVER_LIMIT 0/2"}, // all or nothing
		{"user=ann;plain=x", "OK: OK 0/3, OK 9/10"},
		{"user=bob", "OK: OK 2/3"},
		{"work=done,user=bob", "OK: OK 1/3"}, // a cost that is known afterwards
		{"user=bob", "OK: OK 0/3"},
		{"user=bob", "OVER_LIMIT: OVER_LIMIT 0/3"},
		{"path=/a b,user=x", "InvalidArgument"}, // no address
		{"quiet=x", "OK: OK"},
		{"quiet=x", "OK: OK"}, // a shadow limit refuses nothing
	} {
		s.expect(c.want, requestOf("shop", strings.Split(c.descriptors, ";")...))
	}
	want := []string{"envoy/shop/user", "envoy/shop/path=%2Fa%20b/user", "envoy/shop/quiet"}
	if got := s.names(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	d, err := s.policy.Engine().Peek(t.Context(), []policy.Ask{{Limit: "envoy/shop/user", Key: []string{"ann"}, Cost: 1}})
	if err != nil || d.Each[0].Decision.Limit != 3 || d.Each[0].Decision.Remaining != 0 {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestLimitInPlaceChanges: after a change of the files, limits that stay keep what was used, new ones start
// unused, and files that are not valid change nothing.
func TestLimitInPlaceChanges(t *testing.T) {
	s := withInline(t, inline, "")
	s.expect("OK: OK 2/3", requestOf("shop", "user=ann"))
	s.expect("OK: OK 9/10", requestOf("shop", "plain=x"))
	s.write(strings.Replace(inline, "burst: 3", "burst: 30", 1) + "  - key: more\n    limit: { sliding_counter: { limit: 5, window: 9h } }\n")
	s.reread()
	s.expect("OK: OK 28/30, OK 4/5, OK 8/10", requestOf("shop", "user=ann", "more=x", "plain=x"))
	s.write(strings.Replace(inline, "burst: 3", "burst: 0", 1))
	s.reread()
	s.expect("OK: OK 27/30, OK 3/5, OK 7/10", requestOf("shop", "user=ann", "more=x", "plain=x"))
	s.write("domain: shop\ndescriptors: [{ key: more, limit: { sliding_counter: { limit: 5, window: 9h } } }]\n")
	s.reread()
	s.expect("OK: OK, OK 2/5, OK", requestOf("shop", "user=ann", "more=x", "plain=x"))
	if got := s.names(); !slices.Equal(got, []string{"envoy/shop/more"}) {
		t.Errorf("%q", got)
	}
	// a reload of the policy keeps them, too
	if err := s.policy.Update(t.Context(), s.parse("listen: { rls: { address: \"127.0.0.1:0\", envoy: rules.yaml } }"+limits+"  other: { token_bucket: { rate: 1/s, burst: 1 } }\n")); err != nil {
		t.Fatal(err)
	}
	s.expect("OK: OK 1/5", requestOf("shop", "more=x"))
	for _, trusted := range []bool{true, false} {
		if plan, err := s.policy.PlanFor(s.policy.File().Data, trusted); err != nil || len(plan.Changes) > 0 {
			t.Errorf("a policy differs from itself: %+v, %v", plan.Changes, err)
		}
	}
	// and without the files they are gone
	if err := s.policy.Update(t.Context(), s.parse("listen: { rls: { address: \"127.0.0.1:0\" } }"+limits)); err != nil {
		t.Fatal(err)
	}
	if got := s.names(); got != nil {
		t.Errorf("%q", got)
	}
}

// TestNamesInPlace: two descriptors have two names, whatever their keys and values are, and no name is that of a
// limit of the policy.
func TestNamesInPlace(t *testing.T) {
	long := strings.Repeat("x", 300)
	s := withInline(t, `
domain: "shop/a=b"
descriptors:
  - { key: a, value: b_c, limit: { token_bucket: { rate: 1/h, burst: 1 } } }
  - { key: a_b, value: c, limit: { token_bucket: { rate: 1/h, burst: 1 } } }
  - { key: a=b, value: c, limit: { token_bucket: { rate: 1/h, burst: 1 } } }
  - { key: a, value: b=c, limit: { token_bucket: { rate: 1/h, burst: 1 } } }
  - { key: a, value: b/c, limit: { token_bucket: { rate: 1/h, burst: 1 } } }
  - { key: a, value: b, descriptors: [{ key: c, limit: { token_bucket: { rate: 1/h, burst: 1 } } }] }
  - { key: `+long+`1, limit: { token_bucket: { rate: 1/h, burst: 1 } } }
  - { key: `+long+`2, limit: { token_bucket: { rate: 1/h, burst: 1 } } }
`, "")
	names := s.names()
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] || !strings.HasPrefix(name, "envoy/shop%2Fa%3Db/a") && len(name) != 200 {
			t.Errorf("%q among %q", name, names)
		}
		seen[name] = true
	}
	if len(seen) != 8 {
		t.Error(len(seen))
	}
	if _, err := policyfile.Parse("p", []byte("limits: { envoy/shop/user: { token_bucket: { rate: 1/h, burst: 1 } } }\n")); err == nil {
		t.Error("a policy file took the name of a limit of Envoy's files")
	}
}

// TestStoreInPlace: a limit without a store is in that of the rules beside it.
func TestStoreInPlace(t *testing.T) {
	s := &service{t: t, folder: t.TempDir()}
	s.write("domain: d\ndescriptors:\n  - { key: a, limit: { token_bucket: { rate: 1/s, burst: 1 } } }\n  - { key: b, limit: { store: other, token_bucket: { rate: 1/s, burst: 1 } } }\n")
	file, err := Complete(s.parse("listen: { rls: { address: \"127.0.0.1:0\", envoy: rules.yaml, store: shared } }\nstores: { shared: { url: \"redis://127.0.0.1:1\" }, other: { url: \"redis://127.0.0.1:2\" } }\n"))
	if err != nil {
		t.Fatal(err)
	}
	if all := file.Elsewhere(); len(all) != 2 || all[0].Store != "shared" || all[1].Store != "other" {
		t.Errorf("%+v", all)
	}
}

// TestShadowModeOverLimits: with shadow_mode for all rules, limits refuse nothing either, and nobody is told to
// wait.
func TestShadowModeOverLimits(t *testing.T) {
	s := withInline(t, inline, ", shadow_mode: true")
	for range 4 {
		response, err := s.RateLimitServiceClient.ShouldRateLimit(t.Context(), requestOf("shop", "user=ann"))
		if err != nil || response.OverallCode != pb.RateLimitResponse_OK || len(response.ResponseHeadersToAdd) > 0 {
			t.Fatalf("%v, %v", response, err)
		}
	}
}

// TestWrongLimitInPlace: what is wrong is told at its place in Envoy's file, with what to write instead.
func TestWrongLimitInPlace(t *testing.T) {
	for rule, want := range map[string]string{
		"limit: { token_bucket: { rate: 10, burst: 20 } }":  "rules.yaml:4:36: error: a rate is a count and a duration",
		"limit: { token_bucket: { rat: 10/s, burst: 20 } }": "rules.yaml:4:30: error: |fix: did you mean rate?",
		"limit: { tokn_bucket: { rate: 10/s, burst: 20 } }": "rules.yaml:4:14: error: there is no key \"tokn_bucket\"|token_bucket",
		`limit: ""`:  "rules.yaml:4:12: error: limit is empty",
		`settle: ""`: "rules.yaml:4:13: error: settle must be the name of a limit",
		"limit: {}":  "rules.yaml:4:12: error: |the limit has no algorithm",
		"limit: []":  "rules.yaml:4:12: error: limit must be the name of a limit of the policy, or parameters|limit: { token_bucket: { rate: 10/s, burst: 20 } }",
		"limit: { store: none, token_bucket: { rate: 1/s, burst: 2 } }":                "rules.yaml:4:21: error: there is no store \"none\"",
		"limit: { zone: z, token_bucket: { rate: 1/s, burst: 2 } }":                    "rules.yaml:4:20: error: a limit in Envoy's files shares no zone",
		"limit: { concurrency: { limit: 1 } }":                                         "rules.yaml:4:12: error: \"envoy/d/a\" is a concurrency",
		"limit: { key: [client.ip, path], token_bucket: { rate: 1/s, burst: 2 } }":     "rules.yaml:4:12: error: the key of \"envoy/d/a\" has 2 parts",
		"limit: { key: nothing, token_bucket: { rate: 1/s, burst: 2 } }":               "rules.yaml:4:19: error: \"nothing\" is not a part of a key",
		"limit: { token_bucket: { rate: 1/s, burst: 2 }, cost: 3 }":                    "rules.yaml:4:59: error: a cost of 3 never fits a burst of 2",
		"limit: { token_bucket: { rate: 1/s, burst: 2 } }\n    shadow_mode: true":      "rules.yaml:5:18: error: shadow_mode is about rate_limit|shadow: true",
		"limit: { token_bucket: { rate: 1/s, burst: 2 } }\n    quota_mode: true":       "rules.yaml:5:17: error: quota_mode is about rate_limit|shadow: true",
		"settle: { token_bucket: { rate: 1/s, burst: 2 } }":                            "rules.yaml:4:13: error: settle must be the name of a limit",
		"limit: { token_bucket: { rate: 1/s, burst: 2 }, fixed_window: { limit: 1 } }": "rules.yaml:4:53: error: |the limit has ",
		"rate_limit: { unit: day }\n    limit: { token_bucket: { rate: 1/s } }":        "and not both",
	} {
		s := &service{t: t, folder: t.TempDir()}
		s.write("domain: d\ndescriptors:\n  - key: a\n    " + rule + "\n")
		file, err := policyfile.Parse(s.folder+"/policy.yaml", []byte("listen: { rls: { address: \"127.0.0.1:0\", envoy: rules.yaml } }"+limits))
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, p := range Check(file) {
			text += p.String() + "\n"
		}
		for _, part := range strings.Split(want, "|") {
			if !strings.Contains(text, part) {
				t.Errorf("%s\ngot  %swant %s", rule, text, want)
			}
		}
	}
}
