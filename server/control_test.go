package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const token = "0123456789abcdef0123456789abcdef"

// api calls the API, with the token if there is one.
type api struct {
	t      *testing.T
	url    string
	token  string
	client *http.Client
}

// reply has the fields of all responses of the API.
type reply struct {
	Status    int
	ETag      string
	Title     string
	Detail    string
	Applied   bool
	Saved     bool
	Lifted    bool
	Kind      string
	Changes   []struct{ Text, Counts, Why string }
	Warnings  []struct{ Message string }
	Problems  []struct{ Line, Column int }
	Overrides []struct {
		Limit, Kind, Until string
		Key                []string
	}
	text string
}

func (a api) ask(method, path, body string, header ...string) (r reply) {
	a.t.Helper()
	req, err := http.NewRequest(method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if req.Header.Get("Host") != "" {
		req.Host = req.Header.Get("Host")
	}
	client := a.client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	if strings.HasPrefix(path, "/v1/") && path != "/v1/status" {
		if err := json.Unmarshal(text, &r); err != nil {
			a.t.Fatalf("%s %s: %s: %v: %s", method, path, resp.Status, err, text)
		}
		if want := "application/problem+json"; resp.StatusCode >= 400 && resp.Header.Get("Content-Type") != want {
			a.t.Errorf("%s %s: %s of type %s", method, path, resp.Status, resp.Header.Get("Content-Type"))
		}
	}
	r.Status, r.ETag, r.text = resp.StatusCode, resp.Header.Get("ETag"), string(text)
	return r
}

// controlled starts a server with a policy file that can be changed, a token, and a state file.
func controlled(t *testing.T) (path string, with func(int) string, r *running, a api) {
	path, plain := newPolicy(t)
	with = func(burst int) string { return plain(burst) + "admin: { token_file: token, state_file: bans.json }\n" }
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "token"), []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, path, with(2))
	r = serve(t, Options{Path: path})
	return path, with, r, api{t: t, url: "http://" + r.Admin, token: token}
}

// end stops a server and waits for it.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

// TestAdminPolicy: a policy is previewed, applied if the active one is still the expected one, and
// saved.
func TestAdminPolicy(t *testing.T) {
	path, with, r, a := controlled(t)
	seen := a.ask("GET", "/v1/policy", "")
	if seen.Status != 200 || seen.ETag == "" || !strings.Contains(seen.text, `"burst": 2`) {
		t.Fatalf("%+v", seen)
	}
	for range 3 { // used up
		fetch(t, "http://"+r.Gateway)
	}
	if plan := a.ask("PUT", "/v1/policy?dry_run=1", with(4), "Content-Type", "application/yaml"); plan.Status != 200 || plan.Applied || len(plan.Changes) != 1 ||
		plan.Changes[0].Text != "limit per-ip: token_bucket.burst from 2 to 4; its counts are kept" || plan.ETag != seen.ETag {
		t.Errorf("%+v", plan)
	}
	if status, _ := fetch(t, "http://"+r.Gateway); status != 429 {
		t.Errorf("a dry run changed something: %d", status)
	}
	if got := a.ask("PUT", "/v1/policy", with(4)); got.Status != 428 {
		t.Errorf("without If-Match: %+v", got)
	}
	applied := a.ask("PUT", "/v1/policy", with(4), "If-Match", seen.ETag, "Content-Type", "application/yaml")
	if applied.Status != 200 || !applied.Applied || applied.Saved || applied.ETag == seen.ETag {
		t.Fatalf("%+v", applied)
	}
	for i, want := range []int{200, 200, 429} { // the counts are kept: two of four
		if status, _ := fetch(t, "http://"+r.Gateway); status != want {
			t.Errorf("%d: %d", i, status)
		}
	}
	for _, query := range []string{"", "?dry_run=1"} {
		if got := a.ask("PUT", "/v1/policy"+query, with(9), "If-Match", seen.ETag); got.Status != 412 {
			t.Errorf("somebody else's policy was replaced: %+v", got)
		}
	}
	if got := a.ask("GET", "/v1/status", ""); !strings.Contains(got.text, `"from": "api"`) {
		t.Errorf("%+v", got)
	}
	if text, _ := os.ReadFile(path); string(text) != with(2) {
		t.Error("it was written to the file unasked")
	}
	if got := a.ask("PUT", "/v1/policy?save=1", with(5), "If-Match", `"other", `+applied.ETag); got.Status != 200 || !got.Saved {
		t.Errorf("%+v", got)
	}
	if text, _ := os.ReadFile(path); string(text) != with(5) {
		t.Errorf("the file holds %s", text)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if got := a.ask("GET", "/v1/status", ""); !strings.Contains(got.text, `"from": "file"`) {
		t.Errorf("%+v", got)
	}
	// The policy that GET returns can be sent back.
	now := a.ask("GET", "/v1/policy", "")
	if got := a.ask("PUT", "/v1/policy?dry_run=1", now.text); got.Status != 200 || len(got.Changes) != 0 {
		t.Errorf("%+v", got)
	}
	r.end(t)
	if strings.Contains(r.log.String(), token) || !strings.Contains(r.log.String(), "admin: changed") {
		t.Error(r.log.String())
	}
}

// TestAdminPolicyIsAllOrNothing: the error has the place of each problem, and the old policy stays
// active.
func TestAdminPolicyIsAllOrNothing(t *testing.T) {
	path, with, r, a := controlled(t)
	for name, c := range map[string]struct {
		query, body string
		header      []string
		want        int
	}{
		"no policy":           {"", "limits: [", nil, 422},
		"a mistake":           {"", strings.Replace(with(3), "rate: 1/h", "rate: 0/h", 1), nil, 422},
		"another address":     {"", strings.Replace(with(3), `gateway: "127.0.0.1:0"`, `gateway: "127.0.0.1:1"`, 1), nil, 422},
		"no gateway":          {"", strings.Replace(with(3), `gateway: "127.0.0.1:0", `, "", 1), nil, 422},
		"no upstream":         {"", strings.Replace(with(3), "upstream: up, ", "", 1), nil, 422},
		"no such token file":  {"", strings.Replace(with(3), "token_file: token", "token_file: nowhere", 1), nil, 422},
		"too large":           {"", strings.Repeat("#", 2<<20), nil, 413},
		"a form":              {"", with(3), []string{"Content-Type", "text/plain"}, 415},
		"a flag that is none": {"?save=yes", with(3), nil, 400},
		"from elsewhere":      {"", with(3), []string{"Origin", "https://evil.example"}, 403},
		"by another name":     {"", with(3), []string{"Host", "evil.example"}, 403},
		"without the token":   {"", with(3), []string{"Authorization", "Bearer no"}, 401},
	} {
		for _, dry := range []bool{true, false} {
			query := c.query
			if dry {
				query = "?" + strings.TrimPrefix(query+"&dry_run=1", "?")
			}
			got := a.ask("PUT", "/v1/policy"+query, c.body, append([]string{"If-Match", "*"}, c.header...)...)
			if got.Status != c.want || got.Title == "" || got.Detail == "" {
				t.Errorf("%s, dry %v: %+v", name, dry, got)
			}
			if name == "a mistake" && (len(got.Problems) != 1 || got.Problems[0].Line == 0 || got.Problems[0].Column == 0) {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
	for i, want := range []int{200, 200, 429} {
		if status, _ := fetch(t, "http://"+r.Gateway); status != want {
			t.Errorf("request %d: %d", i, status)
		}
	}
	// A file that was changed since it was read is not overwritten.
	write(t, path, with(7))
	if got := a.ask("PUT", "/v1/policy?save=1", with(8), "If-Match", "*"); got.Status == 200 {
		if text, _ := os.ReadFile(path); string(text) != with(8) { // the server has not read it yet
			t.Errorf("%+v: %s", got, text)
		}
	} else if text, _ := os.ReadFile(path); got.Status != 409 || string(text) != with(7) {
		t.Errorf("%+v: %s", got, text)
	}
	for path, c := range map[string]struct {
		method string
		want   int
	}{"/v1/nothing": {"GET", 404}, "/v1/policy": {"DELETE", 405}, "/v1/reload": {"GET", 405}, "/v1/": {"GET", 404}} {
		if got := a.ask(c.method, path, ""); got.Status != c.want {
			t.Errorf("%s %s: %+v", c.method, path, got)
		}
	}
	r.end(t)
}

// TestAdminWithoutToken: programs on this machine may read, preview, reload, ban and grant. They
// cannot replace the policy, and a preview reads no file that it names.
func TestAdminWithoutToken(t *testing.T) {
	path, with := newPolicy(t)
	r := serve(t, Options{Path: path})
	a := api{t: t, url: "http://" + r.Admin}
	if got := a.ask("PUT", "/v1/policy", with(4), "If-Match", "*"); got.Status != 403 || !strings.Contains(got.Detail, "admin.token_file") {
		t.Errorf("%+v", got)
	}
	if got := a.ask("PUT", "/v1/policy?dry_run=1", with(4)); got.Status != 200 || len(got.Changes) != 1 {
		t.Errorf("%+v", got)
	}
	foreign := strings.Replace(with(4), "upstream: up,", "upstream: up, refused: { file: /etc/hostname },", 1)
	if got := a.ask("PUT", "/v1/policy?dry_run=1", foreign); got.Status != 200 || len(got.Changes) != 2 { // the file is not opened
		t.Errorf("%+v", got)
	}
	for _, name := range []string{"/etc/hostname", "/nowhere"} {
		if got := a.ask("PUT", "/v1/policy?dry_run=1", with(4)+"admin: { token_file: "+name+" }"); got.Status != 200 {
			t.Errorf("what a file is like can be found out: %+v", got)
		}
	}
	write(t, path, with(3))
	if got := a.ask("POST", "/v1/reload", ""); got.Status != 200 || !got.Applied {
		t.Errorf("%+v", got)
	}
	write(t, path, "limits: 5")
	if got := a.ask("POST", "/v1/reload", ""); got.Status != 422 || len(got.Problems) == 0 {
		t.Errorf("%+v", got)
	}
	if got := a.ask("POST", "/v1/reload?dry_run=1", ""); got.Status != 422 || len(got.Problems) == 0 {
		t.Errorf("%+v", got)
	}
	if status, _ := fetch(t, a.url+"/metrics"); status != 200 {
		t.Errorf("/metrics: %d", status)
	}
	r.end(t)
}

// TestAdminBansSurvive: a reload and a restart. Neither the log nor the metrics contain the keys.
func TestAdminBansSurvive(t *testing.T) {
	path, with, r, a := controlled(t)
	if got := a.ask("POST", "/v1/ban", `{"limit":"per-ip","key":["127.0.0.1"],"for":"1h"}`); got.Status != 200 || got.Kind != "ban" {
		t.Fatalf("%+v", got)
	}
	if got := a.ask("POST", "/v1/grant", `{"limit":"per-ip","key":["198.51.100.7"],"for":"7d","set":{"burst":"50"}}`); got.Status != 200 {
		t.Fatalf("%+v", got)
	}
	banned := func(r *running) {
		t.Helper()
		resp, err := http.Get("http://" + r.Gateway)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if after := resp.Header.Get("Retry-After"); resp.StatusCode != 429 || len(after) != 4 {
			t.Errorf("%s, Retry-After %s", resp.Status, after)
		}
	}
	banned(r)
	write(t, path, with(5))
	if got := a.ask("POST", "/v1/reload", ""); got.Status != 200 {
		t.Fatalf("%+v", got)
	}
	banned(r)
	if _, text := fetch(t, "http://"+r.Admin+"/healthz"); text != "ok\n" {
		t.Error("/healthz needs a token")
	}
	metrics := a.ask("GET", "/metrics", "")
	for _, want := range []string{"weir_overrides 2", `weir_limit_requests_total{limit="per-ip",outcome="banned"} 2`, `weir_admin_changes_total{change="ban",result="ok"} 1`} {
		if !strings.Contains(metrics.text, want+"\n") {
			t.Errorf("/metrics has no %s", want)
		}
	}
	if status, _ := fetch(t, "http://"+r.Admin+"/metrics"); status != 401 {
		t.Errorf("/metrics without the token: %d", status)
	}
	r.end(t)
	for _, secret := range []string{"198.51.100.7", `"key"`} {
		if strings.Contains(r.log.String(), secret) || strings.Contains(metrics.text, secret) {
			t.Errorf("%s is in the log or the metrics: %s", secret, r.log)
		}
	}
	info, err := os.Stat(filepath.Join(filepath.Dir(path), "bans.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	again := serve(t, Options{Path: path})
	a.url = "http://" + again.Admin
	banned(again)
	if got := a.ask("GET", "/v1/overrides", ""); len(got.Overrides) != 2 || got.Overrides[0].Key[0] != "127.0.0.1" || got.Overrides[1].Kind != "grant" {
		t.Errorf("%+v", got)
	}
	if got := a.ask("POST", "/v1/lift", `{"limit":"per-ip","key":["127.0.0.1"]}`); got.Status != 200 || !got.Lifted {
		t.Errorf("%+v", got)
	}
	if got := a.ask("POST", "/v1/lift", `{"limit":"per-ip","key":["127.0.0.1"]}`); got.Status != 404 {
		t.Errorf("%+v", got)
	}
	if status, _ := fetch(t, "http://"+again.Gateway); status != 200 {
		t.Errorf("after it was lifted: %d", status)
	}
	again.end(t)

	// The server does not start with a broken state file, and does not overwrite it.
	broken := []byte(`{"version":1,"overrides":[{"li`)
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "bans.json"), broken, 0o600); err != nil {
		t.Fatal(err)
	}
	err = Serve(t.Context(), Options{Path: path, Log: again.logger()})
	if err == nil || !strings.Contains(err.Error(), "bans.json cannot be read") {
		t.Error(err)
	}
	if data, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "bans.json")); !bytes.Equal(data, broken) {
		t.Errorf("it holds %s", data)
	}
}

func TestAdminBansAreChecked(t *testing.T) {
	_, _, r, a := controlled(t)
	for body, want := range map[string]int{
		`{"limit":"per-ip","key":["10.0.0.1"],"for":"1h"}`:                 400, // with more text after it
		`{"limit":"per-ip","key":["10.0.0.1"],"for":"1h","kind":"ban"}`:    422,
		`{"limit":"per-ip","key":["10.0.0.1"],"for":"soon"}`:               422,
		`{"limit":"per-ip","key":["10.0.0.1"]}`:                            422,
		`{"limit":"per-ip","key":["10.0.0.1","x"],"for":"1h"}`:             422,
		`{"limit":"per-ip","key":"10.0.0.1","for":"1h"}`:                   400,
		`{"limit":"per-ip","key":["10.0.0.1"],"for":"1h","until":"x"}`:     422,
		`{"limit":"per-ip","key":["10.0.0.1"],"for":"1h","bann":true}`:     400,
		`{"limit":"shadow","for":"1h"}`:                                    422,
		`{"limit":"nowhere","for":"1h"}`:                                   422,
		`{"limit":"per-ip","key":["` + strings.Repeat("x", 70_000) + `"]}`: 413,
	} {
		if want == 400 && strings.HasSuffix(body, `"1h"}`) && strings.Contains(body, `["10.0.0.1"]`) {
			body += "{}"
		}
		if got := a.ask("POST", "/v1/ban", body); got.Status != want {
			t.Errorf("%.80s: %+v", body, got)
		}
	}
	if got := a.ask("GET", "/v1/overrides", ""); got.Status != 200 || len(got.Overrides) != 0 {
		t.Errorf("%+v", got)
	}
	r.end(t)
}

// TestAdminChangesUnderLoad: policies, reloads, bans and requests at the same time. If several
// callers replace the same policy, one succeeds.
func TestAdminChangesUnderLoad(t *testing.T) {
	_, with, r, a := controlled(t)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if status, _ := fetch(t, "http://"+r.Gateway); status != 200 && status != 429 {
					t.Error(status)
				}
			}
		}
	})
	for round := range 5 {
		seen := a.ask("GET", "/v1/policy", "").ETag
		won := make(chan int, 3)
		var racing sync.WaitGroup
		for i := range 3 {
			racing.Go(func() {
				if got := a.ask("PUT", "/v1/policy", with(100+10*round+i), "If-Match", seen); got.Status == 200 {
					won <- i
				} else if got.Status != 412 {
					t.Errorf("%+v", got)
				}
			})
			racing.Go(func() {
				a.ask("POST", "/v1/ban", fmt.Sprintf(`{"limit":"per-ip","key":["10.0.%d.%d"],"for":"1h"}`, round, i))
			})
		}
		racing.Wait()
		if len(won) != 1 {
			t.Errorf("%d of three replaced the same policy", len(won))
		}
	}
	close(stop)
	wg.Wait()
	if got := a.ask("GET", "/v1/overrides", ""); len(got.Overrides) != 15 {
		t.Errorf("%d bans", len(got.Overrides))
	}
	r.end(t)
}

// TestMetricsOfRollOut: both groups are counted under the limit's name, and no metric is there
// twice, which would be an error.
func TestMetricsOfRollOut(t *testing.T) {
	path, with := newPolicy(t)
	rolled := strings.Replace(with(2), "per-ip: {", "at-once: { key: client.ip, roll_out: 0%, concurrency: { limit: 1 } }\n  per-ip: { roll_out: 0%,", 1)
	write(t, path, strings.Replace(rolled, "limits: [per-ip,", "limits: [at-once, per-ip,", 1))
	r := serve(t, Options{Path: path})
	for i := range 3 {
		if status, _ := fetch(t, "http://"+r.Gateway); status != 200 {
			t.Errorf("request %d: %d", i, status)
		}
	}
	status, text := fetch(t, "http://"+r.Admin+"/metrics")
	for _, want := range []string{
		`weir_shadow_requests_total{limit="per-ip",outcome="allowed"} 2`, `weir_shadow_requests_total{limit="per-ip",outcome="limited"} 1`,
		`weir_limit_requests_total{limit="per-ip",outcome="allowed"} 0`, `weir_shadow_requests_total{limit="at-once",outcome="allowed"} 3`,
	} {
		if status != 200 || !strings.Contains(text, want+"\n") {
			t.Errorf("%d: there is no %s in\n%s", status, want, text)
		}
	}
	r.end(t)
}
