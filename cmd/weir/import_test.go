package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImportExitCodes: critical notes exit with 1, unless --partial. The checks of weir check apply
// to the policy, and refuse one that proxies to itself.
func TestImportExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		want    string // on stderr
		code    int
		partial int
	}{
		"fine":          {"location / { proxy_pass http://127.0.0.1:9000; }", "the upstream gets the Host", 0, 0},
		"critical":      {"location / { proxy_pass http://127.0.0.1:9000; } location /x { fastcgi_pass unix:/x; }", "CRITICAL: fastcgi_pass is left out", 1, 0},
		"no route":      {"location / { root /srv; }", "CRITICAL: there is no route", 1, 0},
		"to itself":     {"location / { proxy_pass http://127.0.0.1:8080; }", "CRITICAL: weir check refuses line ", 1, 0},
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

// TestImportSaysWhatCheckRefuses: problems that weir check would find are also comments at the top
// of the policy, with their lines there.
func TestImportSaysWhatCheckRefuses(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "nginx.conf")
	text := `events {} http { server { listen 127.0.0.1:8080; location / { proxy_pass http://127.0.0.1:8080; } location /x { proxy_pass http://127.0.0.1:9000; } }
	server { listen 127.0.0.1:8443 ssl; ssl_certificate gone.crt; ssl_certificate_key gone.key; location / { proxy_pass http://127.0.0.1:9000; } } }`
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, out, errs := weir(t, "", "import", "nginx", conf)
	for _, want := range []string{"gone.crt", "127.0.0.1:8080"} {
		said := false
		for line := range strings.Lines(errs) {
			var n int
			if _, err := fmt.Sscanf(line, "CRITICAL: weir check refuses line %d of", &n); err != nil || !strings.Contains(line, want) {
				continue
			}
			said = true
			if !strings.Contains(out, "# "+strings.TrimSpace(line)) {
				t.Errorf("the policy does not say %s%s", line, out)
			}
			if lines := strings.Split(out, "\n"); !strings.Contains(lines[n-1], want) {
				t.Errorf("%sline %d is %q", line, n, lines[n-1])
			}
		}
		if !said {
			t.Errorf("nothing is said of %s:\n%s", want, errs)
		}
	}
}
