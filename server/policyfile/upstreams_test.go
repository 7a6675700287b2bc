package policyfile

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
)

// TestUpstreams: all settings of an upstream, and of refused and failed requests.
func TestUpstreams(t *testing.T) {
	f, err := Parse("x.yaml", []byte(`
limits: { l: { leaky_bucket: { rate: 1/s, queue: 5 } } }
upstreams:
  plain: { url: "http://a:1" }
  short: { targets: ["http://a:1", "http://b:1"], retries: 2 }
  never: { targets: ["http://a:1", "http://b:1"], retries: 0, health: { failures: 0 } }
  all:
    targets: ["https://a:1", { url: "https://b:1", weight: 3 }, { url: "https://c:1" }]
    protocol: h2
    tls: { server_name: shop.example }
    timeouts: { connect: 1s, response: 2s, idle: 3s }
    max_requests: 100
    max_idle: 10
    retries: { max: 3, budget: 5% }
    health: { path: /healthz, host: shop.example, every: 1s, timeout: 500ms, down_after: 4, up_after: 5, failures: 6, down_for: 7s, all_down: refuse }
routes:
  - match: /
    upstream: all
    limits: [l]
    refused: { stale: 10m, upstream: plain, status: 503 }
    failed: { stale: 1h, body: sorry }
    waiting: { max: 50, per_client: 2 }
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []policy.Upstream{
		{Name: "plain", URL: "http://a:1"},
		{Name: "short", Targets: []policy.Target{{URL: "http://a:1", Weight: 1}, {URL: "http://b:1", Weight: 1}}, Retries: policy.Retries{Max: 2}},
		{Name: "never", Targets: []policy.Target{{URL: "http://a:1", Weight: 1}, {URL: "http://b:1", Weight: 1}}, Retries: policy.Retries{Max: -1}, Health: policy.Health{Failures: -1}},
		{
			Name: "all", Targets: []policy.Target{{URL: "https://a:1", Weight: 1}, {URL: "https://b:1", Weight: 3}, {URL: "https://c:1", Weight: 1}},
			Protocol: "h2", TLS: policy.UpstreamTLS{ServerName: "shop.example"}, Timeouts: policy.Timeouts{Connect: time.Second, Response: 2 * time.Second, Idle: 3 * time.Second},
			MaxRequests: 100, MaxIdle: 10, Retries: policy.Retries{Max: 3, Budget: 5},
			Health: policy.Health{Path: "/healthz", Host: "shop.example", Every: time.Second, Timeout: 500 * time.Millisecond, DownAfter: 4, UpAfter: 5, Failures: 6, DownFor: 7 * time.Second, AllDown: "refuse"},
		},
	}
	got, _ := json.MarshalIndent(f.Policy.Upstreams, "", " ")
	expected, _ := json.MarshalIndent(want, "", " ")
	if string(got) != string(expected) {
		t.Errorf("got\n%s\nwant\n%s", got, expected)
	}
	r := f.Policy.Routes[0]
	if r.Refused != (policy.Refused{Stale: 10 * time.Minute, Upstream: "plain", Status: 503}) || r.Failed != (policy.Refused{Stale: time.Hour, Body: "sorry"}) ||
		r.Waiting != (policy.Waiting{Max: 50, PerClient: 2}) {
		t.Errorf("%+v", r)
	}
	if tls := f.UpstreamTLS["all"].Config; tls == nil || tls.ServerName != "shop.example" || len(f.UpstreamTLS) != 1 {
		t.Errorf("%+v", f.UpstreamTLS)
	}
}

// TestWrongUpstreams: each problem has its position and a fix.
func TestWrongUpstreams(t *testing.T) {
	for text, want := range map[string]string{
		"u: {}": `2:3: error: the upstream has no url, and no targets: url: http://127.0.0.1:9000`,
		"u: { url: \"http://a\", targets: [\"http://b\"] }":                                                 "2:13: error: url and targets exclude each other: put the url among the targets",
		"u: { targets: [\"a:80\"] }":                                                                        `2:18: error: "a:80" does not begin with http:// or https://: write it like http://127.0.0.1:9000`,
		"u: { targets: [\"http://a\", \"http://A/\"] }":                                                     `2:30: error: "a" is there twice: give it a larger weight instead`,
		"u: { targets: [{ url: \"http://a\", weight: 0 }] }":                                                "2:45: error: 0 is not a number for this: write at least 1, or take it out",
		"u: { targets: [{ weight: 1 }] }":                                                                   "2:18: error: url is missing",
		"u: { targets: [\"http://a\", \"http://b\"], retry: 1 }":                                            `2:43: error: there is no key "retry" here`,
		"u: { url: \"http://a\", protocol: http2 }":                                                         `error: "http2" is not known here: did you mean http1?`,
		"u: { url: \"http://a\", protocol: h2 }":                                                            "error: h2 is HTTP/2 over TLS, and a target is http: write h2c, or https:// in the target",
		"u: { url: \"https://a\", protocol: h2c }":                                                          "error: h2c is HTTP/2 without TLS, and a target is https: write h2, or http:// in the target",
		"u: { url: \"http://a\", tls: { server_name: b } }":                                                 "error: no target is https: write https:// in the target, or take tls out",
		"u: { url: \"https://a\", tls: { ca: nope.pem } }":                                                  "error: nope.pem cannot be read: no such file or directory: name a file beside the policy file, that weir may read",
		"u: { url: \"https://a\", tls: { certificate: a.pem } }":                                            "error: certificate and key go together: name the other file too",
		"u: { url: \"https://a\", tls: { insecure: true } }":                                                "warning: any certificate is accepted: an attacker on the network can read and change everything: name a ca instead",
		"u: { url: \"https://a\", tls: { insecure: true, server_name: b } }":                                "error: with insecure nothing is checked that ca and server_name say: take insecure out",
		"u: { url: \"http://a\", retries: 1 }":                                                              "warning: a request is sent again to another target only, and there is none: add a target, or take retries out",
		"u: { url: \"http://a\", retries: { budget: 0.2 } }":                                                "error: this is a number, and must be a text: The most retries as a share of all requests",
		"u: { targets: [\"http://a\", \"http://b\"], retries: { budget: \"200%\" } }":                       `error: "200%" is not a part of the requests: write one from 1% to 100%, like 20%`,
		"u: { targets: [\"http://a\", \"http://b\"], retries: 11 }":                                         "error: 11 retries of one request are too many: write at most 10",
		"u: { url: \"http://a\", timeouts: { response: 0s } }":                                              `error: "0s" is not a duration above 0: write one like 60s`,
		"u: { url: \"http://a\", health: { path: healthz } }":                                               `error: "healthz" is not a path: write it like /healthz`,
		"u: { url: \"http://a\", health: { every: 5s } }":                                                   "error: every is about asking the targets, and there is no path to ask for: add path: /healthz, or take every out",
		"u: { url: \"http://a\", health: { path: /, every: 1ms } }":                                         "error: a check every 1ms keeps targets busy with checks: write at least 100ms",
		"u: { url: \"http://a\", health: { all_down: panic } }":                                             `error: "panic" is not known here: known: try, refuse`,
		"u: { url: \"http://a\", max_requests: 0 }":                                                         "error: 0 is not a number for this: write at least 1, or take it out",
		"u: { url: \"http://a\" }\nroutes: [{ match: /, upstream: u, refused: { upstream: v } }]":           `error: there is no upstream "v"`,
		"u: { url: \"http://a\" }\nroutes: [{ match: /, upstream: u, refused: { upstream: u } }]":           "error: what the route protects its upstream from would go there: name another upstream",
		"u: { url: \"http://a\" }\nroutes: [{ match: /, upstream: u, failed: { upstream: u } }]":            "error: what the route protects its upstream from would go there: name another upstream",
		"u: { url: \"http://a\" }\nroutes: [{ match: /, upstream: u, refused: { stale: soon } }]":           `error: "soon" is not a duration above 0: write one like 10m`,
		"u: { url: \"http://a\" }\nroutes: [{ match: /, upstream: u, failed: { file: x.html } }]":           "error: x.html cannot be read: no such file or directory",
		"u: { url: \"http://a\" }\nroutes: [{ match: /, upstream: u, waiting: { max: 2, per_client: 3 } }]": "error: one client may hold 3, and all together 2: lower per_client",
	} {
		f, _ := Parse(t.TempDir()+"/x.yaml", []byte("upstreams:\n  "+text+"\n"))
		found := false
		var all []string
		for _, p := range f.Problems {
			line := strings.ReplaceAll(strings.TrimPrefix(p.String(), p.File+":"), "\n\tfix: ", ": ")
			all = append(all, line)
			found = found || strings.Contains(line, want)
		}
		if most := 1 + strings.Count(text, "server_name: b } }") + strings.Count(text, "a.pem"); !found || len(all) > most {
			t.Errorf("%s\n  want %s\n  got  %s", text, want, strings.Join(all, "\n       "))
		}
	}
}
