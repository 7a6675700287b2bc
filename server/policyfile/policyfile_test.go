package policyfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/policy"
)

var update = flag.Bool("update", false, "rewrite what the golden files expect")

// TestAllProblemsAreReportedAtOnce compares the messages for a file with every usual mistake with a
// golden file.
func TestAllProblemsAreReportedAtOnce(t *testing.T) {
	_, err := Load("testdata/wrong.yaml")
	var invalid *InvalidError
	if !errors.As(err, &invalid) {
		t.Fatal(err)
	}
	got := []byte(err.Error() + "\n")
	if *update {
		if err := os.WriteFile("testdata/wrong.golden", got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/wrong.golden")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

const page = `
listen:
  gateway: 127.0.0.1:8080
  admin: 127.0.0.1:9090
  rls: 127.0.0.1:8081
  resp: 127.0.0.1:6380
paths: { ignore_semicolons: true, ambiguous: refuse }
trusted_proxies: [10.0.0.0/8, "::1", 192.0.2.7, "::ffff:198.51.100.0/120"]
headers: [ratelimit, x-ratelimit]
stores:
  shared: { url: "redis://127.0.0.1:6379/0", on_failure: local }
limits:
  per-user:
    key: [client.ip, header.user-id]
    token_bucket: { rate: 100/s, burst: 200 }
  per-sku:
    key: [query.sku_id]
    token_bucket: { rate: 500/s, burst: 500, initial: empty }
    store: shared
    tag: query.sku_id
    cost: 1
    on_missing: skip
    max_keys: 5000
  checkout:
    key: client.ip
    leaky_bucket: { rate: 10/m, queue: 5, delay_after: 1 }
    shadow: true
    cost: header.x-cost
upstreams:
  shop: { url: "http://127.0.0.1:9000" }
routes:
  - match: "GET /ratelimit/sku"
    upstream: shop
    limits: [per-user, per-sku]
    refused: { status: 503, body: "Degraded content", type: text/plain }
    paths: { ignore_case: true, ignore_trailing_slash: false, ignore_extension: true, ignore_semicolons: false, ambiguous: allow }
  - match: /{x...}
    limits: [checkout]
    refused: { redirect: /sorry }
`

func TestParse(t *testing.T) {
	f, err := Parse("shop.yaml", []byte(page))
	if err != nil || len(f.Problems) != 0 {
		t.Fatal(err, f.Problems)
	}
	p := f.Policy
	want := policy.Policy{
		Listen:         policy.Listen{Gateway: []policy.Listener{{Address: "127.0.0.1:8080"}}, Admin: "127.0.0.1:9090", Others: []policy.Endpoint{{Face: "rls", Address: "127.0.0.1:8081"}, {Face: "resp", Address: "127.0.0.1:6380"}}},
		Paths:          policy.Paths{IgnoreSemicolons: policy.Yes, Ambiguous: "refuse"},
		TrustedProxies: []netip.Prefix{prefix("10.0.0.0/8"), prefix("::1/128"), prefix("192.0.2.7/32"), prefix("198.51.100.0/24")},
		Headers:        []string{"ratelimit", "x-ratelimit"},
		Stores:         []policy.Store{{Name: "shared", URL: "redis://127.0.0.1:6379/0", Place: policy.Place{Hosts: "127.0.0.1:6379", Rest: "redis/0"}, OnFailure: "local"}},
		Limits: []policy.Limit{
			{Name: "per-user", Key: []string{"client.ip", "header.user-id"}, Limit: weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 200}},
			{Name: "per-sku", Key: []string{"query.sku_id"}, Limit: weir.TokenBucket{Rate: weir.PerSecond(500), Burst: 500, Initial: weir.InitialEmpty},
				Store: "shared", Tag: "query.sku_id", Cost: "1", OnMissing: "skip", MaxKeys: 5000},
			{Name: "checkout", Key: []string{"client.ip"}, Limit: weir.LeakyBucket{Rate: weir.PerMinute(10), Queue: 5, DelayAfter: 1},
				Shadow: true, Cost: "header.x-cost"},
		},
		Upstreams: []policy.Upstream{{Name: "shop", URL: "http://127.0.0.1:9000"}},
		Routes: []policy.Route{
			{Match: "GET /ratelimit/sku", Upstream: "shop", Limits: []string{"per-user", "per-sku"},
				Refused: policy.Refused{Status: 503, Body: "Degraded content", Type: "text/plain"},
				Paths:   policy.Paths{IgnoreCase: policy.Yes, IgnoreTrailingSlash: policy.No, IgnoreExtension: policy.Yes, IgnoreSemicolons: policy.No, Ambiguous: "allow"}},
			{Match: "/{x...}", Limits: []string{"checkout"}, Refused: policy.Refused{Redirect: "/sorry"}},
		},
	}
	got, _ := json.MarshalIndent(p, "", " ")
	expected, _ := json.MarshalIndent(want, "", " ")
	if !bytes.Equal(got, expected) {
		t.Errorf("got\n%s\nwant\n%s", got, expected)
	}
}

// TestStores: all settings of a store.
func TestStores(t *testing.T) {
	f, err := Parse("x.yaml", []byte(`
stores:
  all: { url: "redis+cluster://a,b", on_failure: deny, deadline: 5ms, nodes: 4, prefix: "weir:all:", lease: { lifetime: 100ms, max: 50 } }
  leased: { url: "redis://a", lease: true }
  not-leased: { url: "redis://a", lease: false }
  defaults: { url: "redis://a", lease: {} }
limits:
  l: { token_bucket: { rate: 1/s, burst: 1 }, store: all, on_failure: allow }
routes: [{ match: /, limits: [l] }]
`))
	want := []policy.Store{
		{Name: "all", URL: "redis+cluster://a,b", Place: policy.Place{Hosts: "a:6379,b:6379", Rest: "redis cluster", Slots: true}, OnFailure: "deny", Deadline: 5 * time.Millisecond, Nodes: 4, Prefix: "weir:all:",
			Lease: policy.Lease{On: true, Lifetime: 100 * time.Millisecond, Max: 50}},
		{Name: "leased", URL: "redis://a", Place: policy.Place{Hosts: "a:6379", Rest: "redis/0"}, Lease: policy.Lease{On: true}},
		{Name: "not-leased", URL: "redis://a", Place: policy.Place{Hosts: "a:6379", Rest: "redis/0"}},
		{Name: "defaults", URL: "redis://a", Place: policy.Place{Hosts: "a:6379", Rest: "redis/0"}, Lease: policy.Lease{On: true}},
	}
	if err != nil || !slices.Equal(f.Policy.Stores, want) || f.Policy.Limits[0].OnFailure != "allow" {
		t.Errorf("%v: %+v", err, f.Policy)
	}
}

// TestErrorsHideSecrets: for every invalid URL.
func TestErrorsHideSecrets(t *testing.T) {
	for _, url := range []string{"redis://weir:secret", "redi://weir:secret@h", "redis://weir:secret/@h", "redis://:secret@h/x", "redis://:secret@h?x=secret"} {
		_, err := Parse("x.yaml", []byte("stores: { s: { url: \""+url+"\", on_failure: maybe } }\nlimits: { l: { token_bucket: { rate: 1/s, burst: 1 }, store: t } }\n"))
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func TestAnchorsAndMerges(t *testing.T) {
	f, err := Parse("x.yaml", []byte(`
limits:
  a: &base
    key: client.ip
    token_bucket: &ten { rate: 10/s, burst: 20 }
  b:
    <<: *base
    key: host
  c: { token_bucket: *ten }
  d: *base
routes:
  - { match: /, limits: [a, b, c, d] }
`))
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range []string{"client.ip", "host", "", "client.ip"} {
		l := f.Policy.Limits[i]
		if strings.Join(l.Key, "") != key || l.Limit != weir.Limit(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}) {
			t.Errorf("%+v", l)
		}
	}
}

func TestInvalidPolicies(t *testing.T) {
	raced.Skip(t)
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+",", 9) + "]\n"
	}
	for text, want := range map[string]string{
		"":                                      "x.yaml:1:1: error: the file is empty",
		"# nothing\n":                           "x.yaml:1:1: error: the file is empty",
		"---\n---\n":                            "x.yaml:1:1: error: the file is empty",
		"- a\n":                                 "x.yaml:1:1: error: the file is not a map",
		"just words":                            "x.yaml:1:1: error: the file is not a map",
		"limits: {}\n---\nb: 1":                 "x.yaml:3:",
		"a: [1,\n":                              "x.yaml:1:4: error: this [ is not closed",
		"limits:\n\tx: 1":                       "x.yaml:2:1: error: the line is indented with a tab",
		"limits: {}\nlimits: {}":                `x.yaml:2:1: error: "limits" is there twice, first in line 1`,
		"limits: *x":                            "x.yaml:1:9: error: nothing before this is called &x",
		"limits: !!binary aGk=":                 "x.yaml:1:9: error: the tag !!binary is not used here",
		"limits: .inf":                          "x.yaml:1:9: error: it is not a number",
		"limits: .nan":                          "x.yaml:1:9: error: it is not a number",
		"routes: [,]":                           "x.yaml:1:",
		"routes: [null]":                        "x.yaml:1:10: error: the item is empty",
		"limits: \xff\xfe":                      "x.yaml:1:1: error: the line is not UTF-8",
		"<<: 3":                                 "x.yaml:1:1: error: << does not name a map",
		"? [a]\n: b":                            "invalid key",
		strings.Repeat("[", 100_000):            "nested more than 32 deep",
		"a: " + strings.Repeat("{b: ", 100_000): "nested more than 32 deep",
		strings.Repeat("- ", 100_000):           "nested more than 32 deep",
		deep(5_000):                             "nested more than 32 deep",
		bomb:                                    "the aliases make the file too large",
		"limits: {}\n# " + strings.Repeat("x", maxBytes): "the file has",
		"limits: 5":                        "x.yaml:1:9: error: this is a number, and must be a map",
		"limits: {a: 5}":                   "x.yaml:1:13: error: this is a number, and must be a map",
		"routes: {}":                       "must be a list",
		"limits: {a: {token_bucket: [1]}}": "must be a map",
		"limits: {a: {token_bucket: {rate: [1], burst: 1}}}":                    "must be a text",
		"limits: {a: {token_bucket: {rate: 100, burst: 1}}}":                    "fix: rate: 100/s",
		"limits: {a: {token_bucket: {rate: 1/s, burst: 99999999999999999999}}}": "must be a whole number",
		"limits: {a: {token_bucket: {rate: 1/s, burst: 1.5}}}":                  "must be a whole number",
		"listen: {gateway: nowhere}":                                            `"nowhere" is not an address`,
		"trusted_proxies: [10.0.0.0/33]":                                        "x.yaml:1:19: error: \"10.0.0.0/33\" is neither an address nor a prefix",
		"headers: [x-rate-limit]":                                               "did you mean x-ratelimit?",
		"limts: {}":                                                             "x.yaml:1:1: error: there is no key \"limts\" here\n\tfix: did you mean limits?",
		"limits: {A: {token_bucket: {rate: 1/s, burst: 1}}}":                    "not a name for a limit",
		"stores: {s: {}}":                                                       "url is missing",
		"stores:\n  s:\n    url: http://h":                                      "x.yaml:3:10: error: \"http\" is the scheme of no store\n\tfix: write one of redis",
		"stores:\n  s:\n    url: rediss://weir:secret@h?insecure=1":             "x.yaml:3:10: error: the URL has an unknown parameter \"insecure\"\n\tfix: a server is always verified",
		"stores: {s: {url: ''}}":                                                "the URL has no scheme",
		"stores: {s: {url: 'redis://h', deadline: soon}}":                       "\"soon\" is not a duration above 0\n\tfix: write one like 20ms",
		"stores: {s: {url: 'redis://h', deadline: 0s}}":                         "is not a duration above 0",
		"stores: {s: {url: 'redis://h', nodes: 0}}":                             "0 is not a number of nodes",
		"stores: {s: {url: 'redis://h', nodes: -1}}":                            "-1 is not a number of nodes",
		"stores: {s: {url: 'redis://h', nodes: many}}":                          "must be a whole number",
		"stores: {s: {url: 'redis://h', lease: yes}}":                           "must be true or false or a map",
		"stores: {s: {url: 'redis://h', lease: {lifetime: 2m}}}":                "a lease of 2m0s is too short or too long",
		"stores: {s: {url: 'redis://h', lease: {max: 0}}}":                      "may hold no tokens",
		"stores: {s: {url: 'redis://h', lease: {maximum: 1}}}":                  "there is no key \"maximum\" here\n\tfix: known: lifetime, max",
		"decision_log: {per_second: 0}":                                         "x.yaml:1:28: error: 0 is below 1\n\tfix: per_second: 1",
		"decision_log: {per_second: 1001}":                                      "1001 is above 1000\n\tfix: per_second: 1000",
		"admin: {recent: -1}":                                                   "x.yaml:1:17: error: -1 is below 0\n\tfix: recent: 0",
		"admin: {recent: 99999999999}":                                          "99999999999 is above 1000000\n\tfix: recent: 1000000",
		"stores: {s: {url: 'redis://h', on_failure: refuse}}":                   "\"refuse\" is not known here",
		"stores: {s: {url: 'redis://h', lease: true}}\nlimits:\n  l: {leaky_bucket: {rate: 1/s}, store: s}":                              "x.yaml:3:41: error: the store \"s\" has leases, and tokens of leaky_bucket cannot be leased",
		"stores: {s: {url: 'redis://h'}}\nlimits:\n  l: {concurrency: {limit: 1, max_hold: 5ms}, store: s}":                              "x.yaml:3:54: error: the limit cannot be kept in a store: a max_hold of 5ms leaves no time for heartbeats",
		"stores: {s: {url: 'redis://h'}}\nlimits:\n  l: {nginx_bucket: {rate: 1/s}, store: s}":                                           "x.yaml:3:41: error: no store keeps a nginx_bucket: nginx keeps it in the memory of one machine: use leaky_bucket, which is the same algorithm in exact arithmetic\n\tfix: take store out",
		"limits: {l: {token_bucket: {rate: 1/s, burst: 1}, on_failure: allow}}":                                                          "the limit is in no store that could fail",
		"stores: {s: {url: 'redis://h'}}\nlimits:\n  l:\n    token_bucket: {rate: 1000000000/s, burst: 18014398509481984}\n    store: s": "x.yaml:5:12: error: the limit cannot be kept in a store: ",
		"upstreams: {s: {url: x}}": "does not begin with http",
	} {
		f, err := Parse("x.yaml", []byte(text))
		var invalid *InvalidError
		if !errors.As(err, &invalid) || f == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v\nwant one with %q", text, err, want)
		}
	}
}

// deep returns a block map of the given depth.
func deep(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
		if b.Len() > maxBytes-10_000 {
			break
		}
	}
	return b.String()
}

func TestWarningsAreNoErrors(t *testing.T) {
	f, err := Parse("x.yaml", []byte("limits:\n  a: { token_bucket: { rate: 1/s, burst: 1 } }\n"))
	if err != nil || len(f.Problems) != 1 || !f.Problems[0].Warning {
		t.Fatal(err, f.Problems)
	}
	if got := f.Problems[0].String(); got != "x.yaml:2:3: warning: no route uses the limit \"a\": take it out, or add it to a route\n\tfix: limits: [a]" {
		t.Error(got)
	}
}

func TestFilesForTheRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("sorry.html", "<h1>Sorry</h1>")
	write("empty.txt", "")
	f, err := Load(write("ok.yaml", "routes:\n  - { match: /a, refused: { file: sorry.html } }\n  - { match: /b, refused: { file: empty.txt } }\n"))
	if err != nil || string(f.Bodies["sorry.html"]) != "<h1>Sorry</h1>" || f.Bodies["empty.txt"] == nil {
		t.Errorf("%v, %q", err, f.Bodies)
	}
	write("big.html", strings.Repeat("x", maxBody+1))
	for name, want := range map[string]string{"none.html": "no such file", "big.html": "larger than", ".": "not a regular file"} {
		if _, err := Load(write("bad.yaml", "routes:\n  - match: /\n    refused:\n      file: "+name+"\n")); err == nil ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "bad.yaml:4:13: error: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Load(filepath.Join(dir, "nothing.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestSchemaKnowsEveryLimit compares the schema with the structs: the same algorithms with the same
// fields, and a description for every key.
func TestSchemaKnowsEveryLimit(t *testing.T) {
	s, err := newSchema()
	if err != nil {
		t.Fatal(err)
	}
	limit := []string{"limits", "x"}
	if n := len(s.find(limit)["oneOf"].([]any)); n != len(policy.Algorithms()) {
		t.Errorf("one of %d kinds, of %d", n, len(policy.Algorithms()))
	}
	for _, kind := range policy.Algorithms() {
		fields := policy.Fields(kind)
		slices.Sort(fields)
		if got := s.properties(append(slices.Clone(limit), kind)); !slices.Equal(got, fields) {
			t.Errorf("%s: the schema has %v, the struct %v", kind, got, fields)
		}
	}
	for _, one := range s.find(limit)["oneOf"].([]any) {
		required := one.(map[string]any)["required"].([]any)
		if !slices.Contains(policy.Algorithms(), required[0].(string)) {
			t.Errorf("the schema knows a %s", required)
		}
	}
	var walk func(path []string)
	walk = func(path []string) {
		for _, name := range s.properties(path) {
			p := append(slices.Clone(path), name)
			if s.describe(p) == "" {
				t.Errorf("%s has no description", strings.Join(p, "."))
			}
			walk(p)
			if _, ok := s.find(p)["items"]; ok {
				walk(append(p, "0"))
			}
			if _, ok := s.find(p)["additionalProperties"].(map[string]any); ok {
				walk(append(p, "x"))
			}
		}
	}
	walk(nil)
	if len(Schema()) == 0 {
		t.Error("no schema")
	}
}

func FuzzParse(f *testing.F) {
	wrong, err := os.ReadFile("testdata/wrong.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(wrong))
	f.Add(page)
	f.Add("a: &a [*a]\nb: {<<: *a}")
	f.Add("limits: {a: {key: [[x]], token_bucket: {rate: {a: 1}, burst: [2]}, leaky_bucket: 5}}")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse("fuzz.yaml", []byte(text))
		if err == nil {
			if _, err := policy.New(file.Policy, policy.Options{}); err != nil {
				t.Errorf("%q is valid and cannot be compiled: %v", text, err)
			}
			return
		}
		var invalid *InvalidError
		if !errors.As(err, &invalid) || len(invalid.Problems) == 0 {
			t.Fatalf("%q: %v", text, err)
		}
		for _, p := range invalid.Problems {
			if p.Line < 1 || p.Col < 1 || p.Message == "" {
				t.Errorf("%q: %+v", text, p)
			}
		}
	})
}

// TestEveryKindIsRead reads each algorithm from a file.
func TestEveryKindIsRead(t *testing.T) {
	f, err := Parse("kinds.yaml", []byte(`
limits:
  a: { interval_bucket: { burst: 10, refill: 5, every: 1m } }
  b: { fixed_window: { limit: 1000, window: 1d } }
  c: { fixed_window: { limit: 1000, align: "month:Europe/Berlin" } }
  d: { sliding_window: { limit: 100, window: 1s, slots: 10, slot_limit: 20 } }
  e: { sliding_counter: { limit: 100, window: 1h30m } }
  f: { sliding_log: { limit: 5, window: 1w, max_entries: 3 } }
  g: { smooth_bursty: { rate: 10/s, max_burst: none } }
  h: { smooth_bursty: { rate: unlimited } }
  i: { warm_up: { rate: 10/s, period: 10s, cold_factor: 2.5 } }
  j: { warm_up: { rate: 10/s, period: 10s } }
routes:
  - { match: /, limits: [a, b, c, d, e, f, g, h, i, j] }
`))
	if err != nil || len(f.Problems) != 0 {
		t.Fatal(err, f.Problems)
	}
	for i, want := range []weir.Limit{
		weir.IntervalBucket{Burst: 10, Refill: 5, Every: time.Minute},
		weir.FixedWindow{Limit: 1000, Window: 24 * time.Hour},
		weir.FixedWindow{Limit: 1000, Align: "month:Europe/Berlin"},
		weir.SlidingWindow{Limit: 100, Window: time.Second, Slots: 10, SlotLimit: 20},
		weir.SlidingCounter{Limit: 100, Window: 90 * time.Minute},
		weir.SlidingLog{Limit: 5, Window: 7 * 24 * time.Hour, MaxEntries: 3},
		weir.SmoothBursty{Rate: weir.PerSecond(10), MaxBurst: -1},
		weir.SmoothBursty{Rate: weir.Unlimited},
		weir.WarmUp{Rate: weir.PerSecond(10), Period: 10 * time.Second, ColdFactor: 2.5},
		weir.WarmUp{Rate: weir.PerSecond(10), Period: 10 * time.Second},
	} {
		if got := f.Policy.Limits[i].Limit; got != want {
			t.Errorf("%s: %#v, want %#v", f.Policy.Limits[i].Name, got, want)
		}
	}
}
