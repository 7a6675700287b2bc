package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// dashboardPolicy has a limit by a header that clients choose, one that is a shadow, and one of requests
// in flight.
const dashboardPolicy = `
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
admin: { token_file: token }
limits:
  per-user: { key: header.user-id, token_bucket: { rate: 1/h, burst: 2 }, on_missing: skip }
  tried: { key: client.ip, token_bucket: { rate: 1/h, burst: 1 }, shadow: true }
  at-once: { key: client.ip, concurrency: { limit: 10 } }
routes: [{ match: /, limits: [per-user, tried, at-once], respond: { body: ok } }]
`

// watched starts a server with that policy, and sends it requests of users.
func watched(t *testing.T, users ...string) api {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.yaml")
	write(t, path, dashboardPolicy)
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := serve(t, Options{Path: path})
	t.Cleanup(func() { r.end(t) })
	for _, user := range users {
		req, err := http.NewRequest("GET", "http://"+r.Gateway+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User-Id", user)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	return api{t: t, url: "http://" + r.Admin, token: token}
}

// TestDashboardKeys: the most refused key is found, its name is masked unless it is asked for, a key that
// is too long is not shown, and resetting it admits it again.
func TestDashboardKeys(t *testing.T) {
	long := strings.Repeat("<b>", 20_000)
	a := watched(t, "anna@example.com", "anna@example.com", "anna@example.com", "anna@example.com", "<script>x</script>", long[:60_000], long[:60_000], long[:60_000])
	masked := a.ask("GET", "/v1/keys?limit=per-user", "")
	if masked.Status != 200 || strings.Contains(masked.text, "anna") || strings.Contains(masked.text, "script") || !strings.Contains(masked.text, `"count": 2`) {
		t.Errorf("%d %s", masked.Status, masked.text)
	}
	open := a.ask("GET", "/v1/keys?limit=per-user&identities=1", "")
	if !strings.Contains(open.text, `"anna@example.com"`) || !strings.Contains(open.text, `"long": true`) || len(open.text) > 4000 {
		t.Errorf("%d bytes: %.4000s", len(open.text), open.text)
	}
	for path, want := range map[string]int{
		"/v1/keys": 200, "/v1/keys?limit=nothing": 404, "/v1/keys?n=0": 400, "/v1/keys?n=101": 400, "/v1/keys?identities=yes": 400,
		"/v1/explain?limit=per-user&key=anna@example.com": 200, "/v1/explain?limit=nothing&key=a": 422, "/v1/explain?limit=per-user": 422, "/v1/explain": 422,
	} {
		if got := a.ask("GET", path, ""); got.Status != want {
			t.Errorf("%s: %d %s", path, got.Status, got.text)
		}
	}
	x := a.ask("GET", "/v1/explain?limit=per-user&key=anna@example.com", "")
	if !strings.Contains(x.text, `"allowed": false`) || !strings.Contains(x.text, `"clears_at"`) || !strings.Contains(x.text, `"rate": "1/h"`) ||
		!strings.Contains(x.text, `"arithmetic": "2 of 2 used, so 0 left, `) || strings.Count(x.text, `"at": `) != 2 || strings.Count(x.text, `"route": "/"`) != 2 {
		t.Error(x.text)
	}
	for body, want := range map[string]int{
		`{"limit":"per-user","key":["anna@example.com"]}`: 200, `{"limit":"per-user","key":["a"],"for":"1h"}`: 422, `{"limit":"nothing","key":["a"]}`: 422,
		`{"limit":"at-once","key":["127.0.0.1"]}`: 422, `{"limit":"per-user"}`: 422, `{}`: 422, `[]`: 400,
	} {
		if got := a.ask("POST", "/v1/reset", body); got.Status != want {
			t.Errorf("reset %s: %d %s", body, got.Status, got.text)
		}
	}
	if x := a.ask("GET", "/v1/explain?limit=per-user&key=anna@example.com", ""); !strings.Contains(x.text, `"remaining": 2`) {
		t.Error(x.text)
	}
}

// TestKeysThatAreNoText: of a key with bytes that are no text, what JSON would have in place of them is the name of
// another key: it is shown, and not given as one.
func TestKeysThatAreNoText(t *testing.T) {
	a := watched(t, "a\xff\xfe", "a\xff\xfe", "a\xff\xfe")
	got := a.ask("GET", "/v1/keys?limit=per-user&identities=1", "")
	if strings.Contains(got.text, `"key"`) || !strings.Contains(got.text, `"shown": "a\\xff\\xfe"`) {
		t.Error(got.text)
	}
}

// TestResponsesAreASCII: no character of a key that a terminal obeys is in a response, as curl would print it.
func TestResponsesAreASCII(t *testing.T) {
	const hostile = "\u009b31m\u202eevil"
	a := watched(t, hostile, hostile, hostile)
	if got := a.ask("POST", "/v1/ban", `{"limit":"per-user","key":["`+hostile+`"],"for":"1h"}`); got.Status != 200 {
		t.Fatal(got.text)
	}
	for _, path := range []string{"/v1/keys?identities=1", "/v1/keys", "/v1/overrides", "/v1/explain?limit=per-user&key=" + url.QueryEscape(hostile), "/v1/usage?key=" + url.QueryEscape(hostile)} {
		got := a.ask("GET", path, "")
		if got.Status != 200 || strings.ContainsFunc(got.text, func(r rune) bool { return r > '~' || r < ' ' && r != '\n' }) {
			t.Errorf("%s: %q", path, got.text)
		}
		if path != "/v1/keys" && path[:9] != "/v1/usage" && !strings.Contains(got.text, `\u009b31m\u202eevil`) {
			t.Errorf("%s has no key: %s", path, got.text)
		}
	}
}

// TestDashboardLive: the counters of each limit, and nothing about who was counted.
func TestDashboardLive(t *testing.T) {
	a := watched(t, "anna", "anna", "anna")
	got := a.ask("GET", "/v1/live", "")
	for _, want := range []string{`"name": "per-user"`, `"rule": "burst=2 rate=1/h"`, `"limited": 1`, `"shadow": true`, `"key": "header.user-id"`, `"decision_latency": {`} {
		if !strings.Contains(got.text, want) {
			t.Errorf("no %s in %s", want, got.text)
		}
	}
	if strings.Contains(got.text, "anna") || strings.Contains(got.text, "127.0.0.1\"") {
		t.Error(got.text)
	}
}

// TestDashboardAdaptive: the adaptive limits of routes and those of the targets of upstreams.
func TestDashboardAdaptive(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.yaml")
	write(t, path, `listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
upstreams: { app: { url: "http://127.0.0.1:1", adaptive: { knee: { initial: 7 } } } }
routes: [{ match: /, upstream: app, adaptive: {} }]
`)
	r := serve(t, Options{Path: path})
	t.Cleanup(func() { r.end(t) })
	resp, err := http.Get("http://" + r.Gateway + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	got := api{t: t, url: "http://" + r.Admin}.ask("GET", "/v1/live", "")
	var live struct{ Adaptive json.RawMessage }
	if err := json.Unmarshal([]byte(got.text), &live); err != nil {
		t.Fatal(err)
	}
	var flat bytes.Buffer
	if err := json.Compact(&flat, live.Adaptive); err != nil {
		t.Fatal(err)
	}
	const want = `[{"limit":"adaptive:/","now":20,"in_flight":0,"waiting":0,"ok":0,"dropped":1,"refused":0},` +
		`{"limit":"adaptive:app","target":"127.0.0.1:1","now":7,"in_flight":0,"waiting":0,"ok":0,"dropped":1,"refused":0}]`
	if flat.String() != want {
		t.Errorf("%s, want %s", &flat, want)
	}
}

// TestDashboardNeedsTheToken: the files of the page are sent without it, and nothing else is; who sends a
// wrong one gets not even those.
func TestDashboardNeedsTheToken(t *testing.T) {
	a := watched(t)
	a.token = ""
	for path, want := range map[string]int{"/": 200, "/ui/app.js": 200, "/v1/live": 401, "/v1/keys": 401, "/v1/explain?limit=per-user&key=a": 401, "/ui/nothing.js": 401, "/metrics": 401} {
		if got := a.ask("GET", path, ""); got.Status != want {
			t.Errorf("%s without a token: %d", path, got.Status)
		}
		a.token = "wrong-wrong-wrong-wrong"
		if got := a.ask("GET", path, ""); got.Status != 401 {
			t.Errorf("%s with a wrong token: %d", path, got.Status)
		}
		a.token = ""
	}
	if got := a.ask("POST", "/v1/reset", `{"limit":"per-user","key":["a"]}`); got.Status != 401 {
		t.Errorf("reset: %d", got.Status)
	}
}
