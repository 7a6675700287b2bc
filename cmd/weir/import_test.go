package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImportExitCodes: critical notes exit with 1, unless --partial; and the policy goes through the checks of weir check, which refuse one that
// proxies to itself.
func TestImportExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		want    string // on the standard error
		code    int
		partial int
	}{
		"fine":          {"location / { proxy_pass http://127.0.0.1:9000; }", "the upstream gets the Host", 0, 0},
		"critical":      {"location / { proxy_pass http://127.0.0.1:9000; } location /x { fastcgi_pass unix:/x; }", "CRITICAL: fastcgi_pass is left out", 1, 0},
		"no route":      {"location / { root /srv; }", "CRITICAL: there is no route", 1, 0},
		"to itself":     {"location / { proxy_pass http://127.0.0.1:8080; }", "CRITICAL: weir check refuses the policy: policy:", 1, 0},
		"an include":    {"include gone.conf; location / { proxy_pass http://127.0.0.1:9000; }", "gone.conf cannot be read", 1, 0},
		"no nginx.conf": {"location / { limit_req zone=one; }", `there is no zone "one"`, 1, 1},
	} {
		file := filepath.Join(t.TempDir(), "nginx.conf")
		if err := os.WriteFile(file, []byte("events {} http { server { listen 127.0.0.1:8080; "+c.text+" } }"), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs := weir(t, "", "import", "nginx", file)
		if code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit code %d, want %d\n%s", name, code, c.code, errs)
		}
		if name == "critical" && !strings.HasPrefix(out, "# ") {
			t.Errorf("%s: the policy begins with %.80q", name, out)
		}
		if code, _, errs := weir(t, "", "import", "nginx", "--partial", file); code != c.partial {
			t.Errorf("%s: exit code %d with --partial, want %d\n%s", name, code, c.partial, errs)
		}
	}
}
