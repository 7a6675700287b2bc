package server

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// auditLine is a line of the audit log.
type auditLine struct {
	Who, From, Action, Request, Result, Detail string
	Status                                     int
	Asked                                      json.RawMessage
	Changes                                    []string
}

// auditedLines reads the audit log.
func auditedLines(t *testing.T, path string) (all []auditLine, text string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var one auditLine
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, one)
	}
	return all, string(data)
}

// TestAuditLog: each change through the API has a line that says who asked for what and what came of it, also
// if it was refused; a flood of requests without the token adds few lines; and the file may be moved.
func TestAuditLog(t *testing.T) {
	path, with, _, a := controlled(t)
	text := strings.Replace(with(2), "state_file: bans.json", "state_file: bans.json, audit_log: audit.jsonl", 1)
	log := filepath.Join(filepath.Dir(path), "audit.jsonl")
	if got := a.ask("PUT", "/v1/policy", text, "If-Match", "*", "Content-Type", "application/yaml"); got.Status != 200 {
		t.Fatal(got.text)
	}
	a.ask("POST", "/v1/ban", `{"limit": "per-ip", "key": ["192.0.2.7"], "for": "1h"}`)
	a.ask("POST", "/v1/ban", `{"limit": "none", "key": ["`+"\u202e\u009b"+`<b>"], "for": "1h"}`)
	a.ask("PUT", "/v1/policy", strings.Replace(text, "burst: 2", "burst: 3", 1), "If-Match", "*", "Content-Type", "application/yaml")
	a.ask("GET", "/v1/keys?identities=1", "")
	a.ask("GET", "/v1/status", "")
	lines, all := auditedLines(t, log)
	want := []struct{ action, result, text string }{
		{"ban", "ok", `"192.0.2.7"`}, {"ban", "refused", `\u202e\u009b\u003cb\u003e`}, {"policy", "ok", "burst from 2 to 3"}, {"keys", "ok", "identities=1"},
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines:\n%s", len(lines), all)
	}
	for i, l := range lines {
		if l.Who != "token" || !strings.HasPrefix(l.From, "127.0.0.1:") || l.Action != want[i].action || l.Result != want[i].result || !strings.Contains(strings.Split(all, "\n")[i], want[i].text) {
			t.Errorf("%d: %+v", i, l)
		}
	}
	if strings.Contains(all, token) {
		t.Error("the token is in the audit log")
	}
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	for range 500 {
		req, err := http.NewRequestWithContext(t.Context(), "POST", a.url+"/v1/ban", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer wrong")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	lines, all = auditedLines(t, log)
	if len(lines) == 0 || len(lines) > 400 || lines[0].Who != "nobody" || lines[0].Status != 401 || lines[0].Result != "refused" || strings.Contains(all, "wrong") {
		t.Errorf("%d lines about 500 requests without the token, the first: %+v", len(lines), lines[0])
	}
	if info, err := os.Stat(log); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// TestAuditOfReaders: each way to read whose keys these are has a line, also with keys=true in place of keys=1,
// and in lists that have no such parameter.
func TestAuditOfReaders(t *testing.T) {
	path, with, _, a := controlled(t)
	text := strings.Replace(with(2), "state_file: bans.json", "state_file: bans.json, audit_log: audit.jsonl", 1)
	if got := a.ask("PUT", "/v1/policy", text, "If-Match", "*", "Content-Type", "application/yaml"); got.Status != 200 {
		t.Fatal(got.text)
	}
	want := []string{"/v1/keys?identities=1", "/v1/keys?identities=true", "/v1/keys?identities=true&identities=0", "/v1/overrides", "/v1/usage/export?format=none"}
	for _, at := range append(slices.Clone(want), "/v1/keys", "/v1/keys?identities=0", "/v1/keys?identities=false", "/v1/live") {
		a.ask("GET", at, "")
	}
	lines, all := auditedLines(t, filepath.Join(filepath.Dir(path), "audit.jsonl"))
	if len(lines) != len(want) {
		t.Fatalf("%d lines:\n%s", len(lines), all)
	}
	for i, l := range lines {
		if l.Request != "GET "+want[i] {
			t.Errorf("%q, want %q", l.Request, want[i])
		}
	}
}

// TestNoPasswordInAuditLog: a policy that is sent as JSON may have the passwords of stores, and is not repeated
// in the audit log or the server's log, whatever becomes of it.
func TestNoPasswordInAuditLog(t *testing.T) {
	path, with, r, a := controlled(t)
	text := strings.Replace(with(2), "state_file: bans.json", "state_file: bans.json, audit_log: audit.jsonl", 1)
	if got := a.ask("PUT", "/v1/policy", text, "If-Match", "*", "Content-Type", "application/yaml"); got.Status != 200 {
		t.Fatal(got.text)
	}
	const password = "neither-here-nor-there"
	var policy map[string]any
	if err := json.Unmarshal([]byte(a.ask("GET", "/v1/policy", "").text), &policy); err != nil {
		t.Fatal(err)
	}
	policy["stores"] = map[string]any{"spare": map[string]any{"url": "redis://weir:" + password + "@127.0.0.1:1/0"}}
	data, err := json.Marshal(policy)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"/v1/policy?dry_run=1", "/v1/policy"} {
		if got := a.ask("PUT", at, string(data), "If-Match", "*", "Content-Type", "application/json"); got.Status != 200 {
			t.Fatal(got.text)
		}
	}
	if got := a.ask("PUT", "/v1/policy", strings.Replace(string(data), "6379", "x", 1)+"}", "If-Match", "*", "Content-Type", "application/json"); got.Status == 200 {
		t.Fatal(got.text)
	}
	a.ask("POST", "/v1/policy/preview", string(data), "Content-Type", "application/json")
	lines, all := auditedLines(t, filepath.Join(filepath.Dir(path), "audit.jsonl"))
	if len(lines) != 4 || !strings.Contains(all, "store spare is added") {
		t.Errorf("%d lines:\n%s", len(lines), all)
	}
	if strings.Contains(all, password) || strings.Contains(r.log.String(), password) {
		t.Error("a password is in a log:", all)
	}
}

// TestAuditPipeThatNobodyReads: a named pipe whose reader has stopped to read makes no request wait: the server's
// log has an error, and the change is made.
func TestAuditPipeThatNobodyReads(t *testing.T) {
	path, with, r, a := controlled(t)
	pipe := filepath.Join(filepath.Dir(path), "audit.pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0) // and reads nothing
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	text := strings.Replace(with(2), "state_file: bans.json", "state_file: bans.json, audit_log: audit.pipe", 1)
	if got := a.ask("PUT", "/v1/policy", text, "If-Match", "*", "Content-Type", "application/yaml"); got.Status != 200 {
		t.Fatal(got.text)
	}
	long := strings.Repeat("k", 3000)
	for range 30 { // more than a pipe holds
		if got := a.ask("POST", "/v1/reset", `{"limit": "per-ip", "key": ["`+long+`"]}`); got.Status != 422 {
			t.Fatal(got.text)
		}
	}
	if !strings.Contains(r.log.String(), "the audit log cannot be written") {
		t.Error("no error in the server's log:", r.log.String())
	}
}

// TestDecisionLog: refusals are logged with hashes of keys, which are those of the secret, and no more than
// per_second of them.
func TestDecisionLog(t *testing.T) {
	path, plain := newPolicy(t)
	for name, text := range map[string]string{"log.secret": strings.Repeat("0123456789abcdef", 4)} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hashes := map[string]bool{}
	for _, keys := range []string{"hashed", "hashed", "shown"} {
		write(t, path, plain(1)+"decision_log: { per_second: 5, secret_file: log.secret, keys: "+keys+" }\n")
		r := serve(t, Options{Path: path})
		for range 30 {
			fetch(t, "http://"+r.Gateway)
		}
		until(t, "decisions are logged", func() bool {
			return strings.Contains(r.log.String(), `"msg":"decision"`) && strings.Contains(r.log.String(), `"msg":"decisions left out"`)
		})
		r.end(t)
		n := 0
		for line := range strings.Lines(r.log.String()) {
			var d struct {
				Msg, Decision, Limit string
				KeyHash              string `json:"key_hash"`
				Key                  []string
			}
			if json.Unmarshal([]byte(line), &d) != nil || d.Msg != "decision" {
				continue
			}
			if n++; d.Decision != "deny" || (keys == "shown") != (len(d.Key) == 1) {
				t.Errorf("%s", line)
			}
			if d.Limit == "per-ip" && d.KeyHash != "" {
				hashes[d.KeyHash] = true
			}
		}
		if n == 0 || n > 60 {
			t.Errorf("%d decisions are logged", n)
		}
		if strings.Contains(r.log.String(), "127.0.0.1\"") != (keys == "shown") {
			t.Errorf("keys: %s:\n%s", keys, r.log)
		}
	}
	if len(hashes) != 1 {
		t.Errorf("after a restart, a key has another hash: %v", hashes)
	}
}
