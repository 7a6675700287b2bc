package server

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// trialOf starts a server with a limit of some burst, and a candidate with another one.
func trialOf(t *testing.T, burst, candidate int, rest string) (dir string, r *running, a api) {
	t.Helper()
	dir = t.TempDir()
	write(t, filepath.Join(dir, "policy.yaml"), trialPolicy(burst, rest))
	write(t, filepath.Join(dir, "candidate.yaml"), trialPolicy(candidate, rest))
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = serve(t, Options{Path: filepath.Join(dir, "policy.yaml"), Candidate: filepath.Join(dir, "candidate.yaml"), Watch: 10 * time.Millisecond})
	return dir, r, api{t: t, url: "http://" + r.Admin, token: token}
}

func trialPolicy(burst int, rest string) string {
	return fmt.Sprintf(`
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
admin: { token_file: token, recent: 100 }
limits:
  per-user: { key: header.user-id, token_bucket: { rate: 1/h, burst: %d } }
  queue: { key: header.user-id, leaky_bucket: { rate: 1000/s, queue: 5 } }
  at-once: { key: client.ip, concurrency: { limit: 10 } }
routes: [{ match: /, limits: [per-user, at-once], respond: { body: ok } }, { match: /queue, limits: [queue], respond: { body: ok } }]
%s`, burst, rest)
}

func asUser(t *testing.T, at, user string, times int) (admitted int) {
	t.Helper()
	for range times {
		req, err := http.NewRequest("GET", at, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User-Id", user)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			admitted++
		}
	}
	return admitted
}

// TestCandidate: a candidate decides about the same requests in a state of its own, without an effect; what
// differs is counted and listed; promoting it makes it active, and ends the trial.
func TestCandidate(t *testing.T) {
	dir, r, a := trialOf(t, 2, 5, "")
	at := "http://" + r.Gateway + "/"
	if n := asUser(t, at, "<anna@example.com>", 6); n != 2 {
		t.Fatalf("%d admitted: the candidate has an effect", n)
	}
	got := a.ask("GET", "/v1/candidate", "")
	for _, want := range []string{`"requests": 6`, `"disagreed": 3`, `"at-once"`, `"live_limit": "per-user"`, `token_bucket.burst from 2 to 5`} {
		if !strings.Contains(got.text, want) {
			t.Errorf("no %s in %s", want, got.text)
		}
	}
	if strings.Contains(got.text, "anna") {
		t.Error("a key is not masked:", got.text)
	}
	if _, metrics := fetch(t, a.url+"/metrics"); strings.Contains(metrics, "candidate") {
		t.Error("metrics without the token")
	}
	if m := a.ask("GET", "/metrics", "").text; !strings.Contains(m, `weir_candidate_requests_total{candidate="allow",live="deny"} 3`) {
		t.Error("no counter of disagreements")
	}
	if got := a.ask("POST", "/v1/promote?save=1", ""); got.Status != 200 || !got.Applied || !got.Saved || len(got.Changes) != 1 {
		t.Fatalf("%+v", got)
	}
	if n := asUser(t, at, "<anna@example.com>", 6); n != 3 {
		t.Errorf("%d admitted after the change from 2 to 5, of which 2 were used", n)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "policy.yaml")); err != nil || !strings.Contains(string(text), "burst: 5") {
		t.Errorf("%s %v", text, err)
	}
	if got := a.ask("POST", "/v1/promote", ""); got.Status != 409 {
		t.Errorf("a second time: %+v", got)
	}
	if got := a.ask("GET", "/v1/candidate", ""); got.Status != 404 {
		t.Errorf("%+v", got)
	}
	r.end(t)
}

// TestPromotedOnce: of promotions at the same time, one makes the candidate active, and the others find none on
// trial: a late one would otherwise bring the candidate back over a policy that was sent since then.
func TestPromotedOnce(t *testing.T) {
	_, r, a := trialOf(t, 2, 5, "")
	var work sync.WaitGroup
	var mu sync.Mutex
	results := map[int]int{}
	for range 16 {
		work.Go(func() {
			got := a.ask("POST", "/v1/promote", "")
			mu.Lock()
			defer mu.Unlock()
			results[got.Status]++
		})
	}
	work.Wait()
	if results[200] != 1 || results[409] != 15 {
		t.Errorf("by status: %v", results)
	}
	r.end(t)
}

// TestPromoteWhatWasShown: the candidate is not promoted if its file has changed since the operator looked at it.
func TestPromoteWhatWasShown(t *testing.T) {
	dir, r, a := trialOf(t, 2, 5, "")
	tag := func() string {
		var c struct{ ETag string }
		if err := json.Unmarshal([]byte(a.ask("GET", "/v1/candidate", "").text), &c); err != nil {
			t.Fatal(err)
		}
		return c.ETag
	}
	shown := tag()
	write(t, filepath.Join(dir, "candidate.yaml"), trialPolicy(7, ""))
	until(t, "the new candidate is on trial", func() bool { return strings.Contains(a.ask("GET", "/v1/candidate", "").text, "from 2 to 7") })
	if got := a.ask("POST", "/v1/promote", "", "If-Match", shown); shown == "" || got.Status != 412 {
		t.Errorf("%q: %+v", shown, got)
	}
	if got := a.ask("POST", "/v1/promote", "", "If-Match", tag()); got.Status != 200 || !got.Applied {
		t.Errorf("%+v", got)
	}
	r.end(t)
}

// TestCandidateWithItsOwnKeys: a candidate with other API keys than the active policy, which has none, knows the
// customers of its own keys, on trial as in a preview.
func TestCandidateWithItsOwnKeys(t *testing.T) {
	const secret = "0123456789abcdef0123456789abcdef"
	plans := strings.Replace(trialPolicy(2, "plans: { from: [api_key], api_keys: keys.yaml, unknown: deny, hash_secret_file: hash.secret, default: free }"),
		"per-user: { key: header.user-id", "per-user: { key: customer", 1)
	dir, r, a := trialOf(t, 2, 5, "")
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("key-of-acme"))
	for name, text := range map[string]string{"hash.secret": secret + "\n", "keys.yaml": fmt.Sprintf("- { customer: acme, hmac_sha256: %x }\n", mac.Sum(nil)), "candidate.yaml": plans} {
		write(t, filepath.Join(dir, name), text)
	}
	until(t, "the candidate has plans", func() bool { return strings.Contains(a.ask("GET", "/v1/candidate", "").text, "unknown is set to deny") })
	for range 2 {
		req, err := http.NewRequest("GET", "http://"+r.Gateway+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Api-Key", "key-of-acme")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if got := a.ask("GET", "/v1/candidate", ""); !strings.Contains(got.text, `"requests": 2`) || !strings.Contains(got.text, `"disagreed": 0`) {
		t.Error(got.text)
	}
	r.end(t)
}

// TestCandidateChanges: while requests come, also such as wait in a queue, the candidate's file changes, is
// invalid for a while, and the server ends; each valid file begins a new trial.
func TestCandidateChanges(t *testing.T) {
	dir, r, a := trialOf(t, 1, 2, "")
	var load sync.WaitGroup
	end := make(chan struct{})
	for i := range 4 {
		load.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
					asUser(t, "http://"+r.Gateway+[]string{"/", "/queue"}[i%2], "anna", 1)
				}
			}
		})
	}
	for i, text := range []string{trialPolicy(7, ""), "limits: [", trialPolicy(9, "")} {
		write(t, filepath.Join(dir, "candidate.yaml"), text)
		want := []string{"from 1 to 7", "from 1 to 7", "from 1 to 9"}[i]
		for ends := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if got := a.ask("GET", "/v1/candidate", ""); strings.Contains(got.text, want) {
				break
			} else if time.Now().After(ends) {
				t.Fatalf("no %q in %s", want, got.text)
			}
		}
	}
	close(end)
	load.Wait()
	r.end(t)
}

// TestPreview: a policy that is sent decides about the latest requests without an effect, and says what it
// cannot know.
func TestPreview(t *testing.T) {
	_, r, a := trialOf(t, 2, 2, "")
	asUser(t, "http://"+r.Gateway+"/", "anna", 4)
	asUser(t, "http://"+r.Gateway+"/", strings.Repeat("x", 20_000), 1) // larger than what is kept
	preview := func(policy string) reply {
		return a.ask("POST", "/v1/policy/preview", policy, "Content-Type", "application/yaml")
	}
	next := strings.Replace(trialPolicy(1, ""), "header.user-id, token", "[header.user-id, header.other], token", 1)
	got := preview(next)
	for _, want := range []string{`"requests": 4`, "\"now\": {\n        \"allowed\": 2,\n        \"delayed\": 0,\n        \"limited\": 2", "\"next\": {\n        \"allowed\": 1,", `"Other"`, `"at-once"`} {
		if !strings.Contains(got.text, want) {
			t.Errorf("no %s in %s", want, got.text)
		}
	}
	if strings.Contains(got.text, "anna") {
		t.Error(got.text)
	}
	if got := preview("limits: ["); got.Status != 422 || len(got.Problems) == 0 {
		t.Errorf("%+v", got)
	}
	if n := asUser(t, "http://"+r.Gateway+"/", "anna", 1); n != 0 {
		t.Error("a preview changed something")
	}
	asUser(t, "http://"+r.Gateway+"/", "bert", 200)
	if got := preview(next); !strings.Contains(got.text, `"requests": 100`) {
		t.Errorf("more is kept than 100: %s", got.text)
	}
	a.token = ""
	if got := preview(next); got.Status != 401 {
		t.Errorf("without a token: %d", got.Status)
	}
	r.end(t)
}
