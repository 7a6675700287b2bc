package server

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestQuotasSurviveARestart: what is used of a quota in memory is used after a restart. A broken
// snapshot is named in the log and kept aside, and the server starts.
func TestQuotasSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	path, snapshot := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "quotas.snapshot")
	write(t, path, `
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
snapshot_file: quotas.snapshot
limits:
  monthly: { key: header.x-team, on_missing: deny, fixed_window: { limit: 5, align: month } }
  pace: { key: header.x-team, on_missing: deny, token_bucket: { rate: 100/s, burst: 100 } }
routes: [{ match: /, limits: [monthly, pace], respond: { status: 200 } }]
`)
	get := func(r *running, team string) int {
		req, err := http.NewRequest("GET", "http://"+r.Gateway+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Team", team)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	r := serve(t, Options{Path: path})
	if _, err := os.Stat(snapshot); err != nil {
		t.Errorf("a file that cannot be written would be noticed late: %v", err)
	}
	for range 3 {
		get(r, "red")
	}
	r.end(t)

	r = serve(t, Options{Path: path})
	a := api{t: t, url: "http://" + r.Admin}
	if got := strings.Join(strings.Fields(a.ask("GET", "/v1/usage?key=red&limit=monthly", "").text), ""); !strings.Contains(got, `"allowed":5,"used":3,"remaining":2,"reset_at":"`) {
		t.Errorf("%s", got)
	}
	for i, want := range []int{200, 200, 429} {
		if got := get(r, "red"); got != want {
			t.Errorf("request %d with 2 left: %d", i, got)
		}
	}
	for format, want := range map[string]string{
		"csv":   "limit,key,allowed,used,remaining,reset_at,error\nmonthly,\"[\"\"red\"\"]\",5,5,0,",
		"jsonl": `{"limit":"monthly","key":["red"],"allowed":5,"used":5,"remaining":0,"reset_at":"`,
	} {
		if status, got := fetch(t, "http://"+r.Admin+"/v1/usage/export?format="+format); status != 200 || !strings.HasPrefix(got, want) || strings.Count(got, "red") != 1 {
			t.Errorf("%s: %d %s", format, status, got)
		}
	}
	for _, wrong := range []string{"/v1/usage", "/v1/usage?key=a&key=b", "/v1/usage?key=a&limit=none"} {
		if got := a.ask("GET", wrong, ""); got.Status != 400 && got.Status != 404 {
			t.Errorf("%s: %+v", wrong, got)
		}
	}
	r.end(t)

	good, err := os.ReadFile(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	write(t, snapshot, string(good[:len(good)/2]))
	r = serve(t, Options{Path: path})
	if !strings.Contains(r.log.String(), "snapshot not restored: quotas start unused") || !strings.Contains(r.log.String(), "quotas.snapshot.broken-") {
		t.Errorf("the log: %s", r.log.String())
	}
	if get(r, "red") != 200 {
		t.Error("quotas start unused")
	}
	r.end(t)
	aside, err := filepath.Glob(snapshot + ".broken-*")
	if err != nil || len(aside) != 1 {
		t.Fatalf("%v, %v", aside, err)
	}
	if kept, err := os.ReadFile(aside[0]); err != nil || string(kept) != string(good[:len(good)/2]) {
		t.Errorf("the file aside: %v", err)
	}
}
