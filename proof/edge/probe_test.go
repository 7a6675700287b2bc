package edge

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestProbe: weir check --probe finds what the usual frameworks and servers serve alike, and nothing
// with the line that it prints in the policy. Nothing is bought by it.
func TestProbe(t *testing.T) {
	for name, f := range frameworks(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := func(routes string) (code int, out string) {
				file := filepath.Join(t.TempDir(), "p.yaml")
				text := "limits: { l: { token_bucket: { rate: 1/d, burst: 1 } } }\nroutes:\n" + routes + fmt.Sprintf("  - match: %s.test/\n", name)
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				c := exec.CommandContext(t.Context(), binary, "check", file, "--probe", "http://"+f.addr)
				all, _ := c.Output() // the exit code says what is wrong
				return c.ProcessState.ExitCode(), string(all)
			}
			route := func(match, paths string) string {
				return fmt.Sprintf("  - match: \"%s.test%s\"\n    limits: [l]\n    paths: { %s }\n", name, match, paths)
			}
			for of, match := range f.matches {
				const strict = "ignore_case: false, ignore_trailing_slash: false"
				code, out := check(route(match, strict))
				want := probed[name][of]
				fix := regexp.MustCompile(`fix: .*: paths: { (.*) }`).FindStringSubmatch(out)
				switch {
				case want == "" && (code != 0 || fix != nil):
					t.Errorf("%s: exit code %d, want nothing found:\n%s", match, code, out)
				case want != "" && (code != 1 || fix == nil || strings.ReplaceAll(fix[1], strict+", ", "") != want):
					t.Errorf("%s: exit code %d, want the fix %s:\n%s", match, code, want, out)
				case want != "":
					if code, out := check(route(match, fix[1])); code != 0 {
						t.Errorf("%s: with the fix, exit code %d:\n%s", match, code, out)
					}
				}
				if strings.Contains(out, "orders\":1") {
					t.Errorf("something was bought:\n%s", out)
				}
			}
		})
	}
}

const (
	slashAndCase   = "ignore_case: true, ignore_trailing_slash: true"
	slash          = "ignore_case: false, ignore_trailing_slash: true"
	slashExtension = "ignore_case: false, ignore_trailing_slash: true, ignore_extension: true"
)

// probed are the settings that the probe finds for the routes of each upstream.
var probed = map[string]map[string]string{
	"express":  {"checkout": slashAndCase, "sale": slashAndCase, "item": slashAndCase, "api": slashAndCase},
	"proxied":  {"checkout": slashAndCase, "sale": slashAndCase, "item": slashAndCase, "api": slashAndCase},
	"whatwg":   {"checkout": slashAndCase, "sale": slashAndCase, "item": slashAndCase, "api": slashAndCase},
	"envoy":    {"checkout": slashAndCase, "sale": slashAndCase, "item": slashAndCase, "api": slashAndCase},
	"unmerged": {"checkout": slashAndCase, "sale": slashAndCase, "item": slashAndCase, "api": slashAndCase},
	"spring":   {"checkout": slashExtension, "sale": slashExtension, "item": slash, "api": slash},
	"rails":    {"checkout": slashExtension, "sale": slashExtension, "item": slash, "api": slashExtension},
	"iis":      {"checkout": slashAndCase, "sale": slashAndCase, "item": slashAndCase, "api": slashAndCase},
	"go":       {},
	"wsgi":     {"checkout": slash, "sale": slash, "item": slash, "api": slash},
	"php":      {"checkout": slash, "api": slash},
	"nginx":    {"sale": slashAndCase},
}
