package server

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirflow/weir/server/admin"
	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/gateway"
	"github.com/weirflow/weir/server/policyfile"
)

// filePolicy is a policy in which one setting at a time names FILE: see fileWords.
const filePolicy = `
listen: { gateway: { address: "127.0.0.1:0", LISTEN }, admin: "127.0.0.1:0" }
admin: { ADMIN }
ACCESS_LOG
PLANS
stores: { s: { url: "redis://127.0.0.1:1STORE" } }
limits:
  per-ip: { key: client.ip, token_bucket: { rate: 1/h, burst: 2 } }
  shared: { store: s, token_bucket: { rate: 1/h, burst: 2 } }
waiting_rooms: { r: { admit: 5/s, ROOM } }
upstreams: { up: { url: "https://127.0.0.1:1", tls: { UPSTREAM server_name: up } } }
routes:
  - { match: /, upstream: up, limits: [per-ip, shared], waiting_room: r, refused: { REFUSED status: 429 }, failed: { FAILED status: 502 } }
  - { match: /x, respond: { RESPOND status: 200 } }
`

// fileWords are all settings of a policy that name a file.
var fileWords = map[string]struct{ place, text string }{
	"listen.gateway.tls.cert":      {"LISTEN", "tls: { certificates: [{ cert: FILE, key: key }] }"},
	"listen.gateway.tls.key":       {"LISTEN", "tls: { certificates: [{ cert: key, key: FILE }] }"},
	"listen.gateway.tls.client_ca": {"LISTEN", "tls: { certificates: [{ cert: key, key: key }], client_ca: FILE }"},
	"admin.token_file":             {"ADMIN", "token_file: FILE"},
	"admin.tls.cert":               {"ADMIN", "tls: { cert: FILE, key: key }"},
	"admin.tls.key":                {"ADMIN", "tls: { cert: key, key: FILE }"},
	"admin.state_file":             {"ADMIN", "state_file: FILE"},
	"access_log.file":              {"ACCESS_LOG", "access_log: { file: FILE }"},
	"password_file":                {"STORE", "?password_file=FILE"},
	"ca_file":                      {"STORE", "?ca_file=FILE"},
	"waiting_rooms.page":           {"ROOM", "page: FILE"},
	"waiting_rooms.secret_file":    {"ROOM", "secret_file: FILE"},
	"upstream.tls.ca":              {"UPSTREAM", "ca: FILE,"},
	"upstream.tls.certificate":     {"UPSTREAM", "certificate: FILE, key: key,"},
	"upstream.tls.key":             {"UPSTREAM", "certificate: key, key: FILE,"},
	"refused.file":                 {"REFUSED", "file: FILE,"},
	"failed.file":                  {"FAILED", "file: FILE,"},
	"respond.file":                 {"RESPOND", "file: FILE,"},
	"snapshot_file":                {"PLANS", "snapshot_file: FILE"},
	"plans.api_keys":               {"PLANS", "plans: { from: api_key, api_keys: FILE, hash_secret_file: key }"},
	"plans.jwt.jwks":               {"PLANS", "plans: { jwt: { jwks: FILE, issuer: i, audience: a } }"},
	"plans.hash_secret_file":       {"PLANS", "plans: { from: api_key, api_keys: key, hash_secret_file: FILE }"},
}

// naming returns the policy in which one setting names a file; none if word is empty.
func naming(word, file string) string {
	text := filePolicy
	if w := fileWords[word]; word != "" {
		text = strings.Replace(text, w.place, strings.ReplaceAll(w.text, "FILE", file), 1)
		if word == "ca_file" {
			text = strings.Replace(text, "redis://", "rediss://", 1)
		}
	}
	for _, w := range fileWords {
		text = strings.ReplaceAll(text, w.place, "")
	}
	return strings.ReplaceAll(text, ", }", " }")
}

// fileServer serves the policy without files, in a directory with a named pipe, a file and a
// directory. It has no token.
func fileServer(t *testing.T, o Options) (dir string, r *running, a api) {
	dir = t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"key", "file"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("text\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	o.Path = filepath.Join(dir, "policy.yaml")
	write(t, o.Path, naming("", ""))
	r = serve(t, o)
	return dir, r, api{t: t, url: "http://" + r.Admin, client: &http.Client{Timeout: 30 * time.Second}}
}

// TestPreviewsWithoutATokenOpenNothing: a caller without a token gets the same response to a policy, and
// at once, whatever file it names. The case that was found is a named pipe as upstream.tls.ca:
// opening it blocked status, reload, SIGHUP and SIGTERM for minutes.
func TestPreviewsWithoutATokenOpenNothing(t *testing.T) {
	dir, r, a := fileServer(t, Options{Watch: time.Hour})
	columns := regexp.MustCompile(`"column": \d+`) // after the name, so it depends on its length
	for word := range fileWords {
		var first reply
		for i, file := range []string{"pipe", "nothing", "file", "dir", "/etc/passwd", filepath.Join(dir, "pipe")} {
			got := a.ask("PUT", "/v1/policy?dry_run=1", naming(word, file), "Content-Type", "application/yaml")
			got.text = columns.ReplaceAllString(strings.ReplaceAll(got.text, file, "FILE"), "")
			if i == 0 {
				first = got
			}
			if got.Status != first.Status || len(got.Problems) != len(first.Problems) || got.text != first.text && len(got.Problems) > 0 {
				t.Errorf("%s: %s: %d %s\nthe file pipe: %d %s", word, file, got.Status, got.text, first.Status, first.text)
			}
		}
	}
	if got := a.ask("GET", "/v1/status", ""); got.Status != 200 {
		t.Errorf("%+v", got)
	}
	r.end(t)
}

// TestPipesInThePolicyFile: if a file that the policy names, or the policy file itself, is a named
// pipe, a reload fails at once, with no other effect. A caller without a token does not learn why.
func TestPipesInThePolicyFile(t *testing.T) {
	dir, r, a := fileServer(t, Options{Watch: time.Hour})
	path := filepath.Join(dir, "policy.yaml")
	failures := func() int { return strings.Count(r.log.String(), `"policy not reloaded`) }
	reload := func(what string) {
		t.Helper()
		n := failures()
		r.reload <- struct{}{}
		until(t, "the reload by a signal fails: "+what, func() bool { return failures() > n })
		for _, call := range []string{"/v1/reload", "/v1/reload?dry_run=1"} {
			got := a.ask("POST", call, "")
			wantNamed := what == "policy" // its path is in /v1/status, too
			if named := strings.Contains(got.text, "not a regular file"); got.Status == 200 && call == "/v1/reload" || named != wantNamed {
				t.Errorf("%s: %s: %d %s", what, call, got.Status, got.text)
			}
		}
		if got := a.ask("GET", "/v1/status", ""); got.Status != 200 {
			t.Errorf("%s: %+v", what, got)
		}
	}
	for word := range fileWords {
		if word == "admin.state_file" || word == "snapshot_file" { // it is read when the server starts, and replaced by a pipe after that
			continue
		}
		write(t, path, naming(word, "pipe"))
		reload(word)
	}
	if err := os.Rename(filepath.Join(dir, "pipe"), path); err != nil {
		t.Fatal(err)
	}
	reload("policy")
	r.end(t)
}

// A stuck makes a face's check of a policy wait, as a disk that does not respond would.
type stuck struct {
	sync.Mutex
	on      bool
	release chan struct{}
	entered chan struct{}
}

func (s *stuck) wait() {
	s.Lock()
	on := s.on
	s.Unlock()
	if on {
		s.entered <- struct{}{}
		<-s.release
	}
}

// TestStoppedWhileAnUpdateHangs: whatever an update waits for, status and metrics answer, and the
// server stops within the grace.
func TestStoppedWhileAnUpdateHangs(t *testing.T) {
	up := httptest.NewServer(http.NotFoundHandler())
	defer up.Close()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	text := strings.ReplaceAll(strings.ReplaceAll(page, "URL", up.URL), "BURST", "2")
	write(t, path, text)
	s := &stuck{release: make(chan struct{}), entered: make(chan struct{}, 1)}
	defer close(s.release)
	kinds := []face.Kind{gateway.Kind(), admin.Kind()}
	inner := kinds[0].Check
	kinds[0].Check = func(f *policyfile.File) []policyfile.Problem { s.wait(); return inner(f) }
	r := serve(t, Options{Path: path, Watch: time.Hour, Grace: time.Second, kinds: kinds})
	s.Lock()
	s.on = true
	s.Unlock()
	r.reload <- struct{}{}
	<-s.entered
	for _, path := range []string{"/v1/status", "/metrics", "/readyz"} {
		if status, _ := fetch(t, "http://"+r.Admin+path); status != 200 {
			t.Errorf("%s: %d", path, status)
		}
	}
	r.end(t)
	if !strings.Contains(r.log.String(), "it is abandoned") {
		t.Error("the update had ended")
	}
}
