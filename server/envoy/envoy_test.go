package envoy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirflow/weir/server/policyfile"
)

// TestProblems: what is wrong, at its line, with what to write; the texts begin as those of
// envoyproxy/ratelimit do.
func TestProblems(t *testing.T) {
	for text, want := range map[string]string{
		"domain: d\n": "",
		"domain: d\ndescriptors:\n  - key: k\n    value:\n    rate_limit: { unit: Second, requests_per_unit: 1 }\n":             "",
		"domain: d\ndescriptors:\n  - &a { key: k, rate_limit: { unit: day, requests_per_unit: 1 } }\n  - { <<: *a, key: l }\n": "",
		"descriptors: []\n":                                                                                   "f:1:12: error: config file cannot have empty domain",
		"domain: d\nx: 1\n":                                                                                   "f:2:1: error: config error, unknown key 'x'",
		"domain: d\ndescriptors:\n  - { kye: k }\n":                                                           "f:3:7: error: config error, unknown key 'kye'|did you mean key?",
		"domain: d\ndescriptors:\n  - { value: v }\n":                                                         "f:3:",
		"domain: d\ndescriptors: { key: k }\n":                                                                "descriptors must be a list",
		"domain: d\ndescriptors: [k]\n":                                                                       "this must be a map",
		"domain: d\ndescriptors: [{ key: k }, { key: k }]\n":                                                  "duplicate descriptor composite key 'd.k'",
		"domain: d\ndescriptors: [{ key: k, value: v }, { key: k, value: v }]\n":                              "duplicate descriptor composite key 'd.k_v'",
		"domain: d\ndescriptors: [{ key: k, rate_limit: { unit: fortnight } }]\n":                             "invalid rate limit unit 'fortnight'",
		"domain: d\ndescriptors: [{ key: k, rate_limit: { requests_per_unit: 1 } }]\n":                        "invalid rate limit unit ''",
		"domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 4294967296 } }]\n":    `requests_per_unit is "4294967296"`,
		"domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: -1 } }]\n":            `requests_per_unit is "-1"`,
		"domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, unlimited: true } }]\n":                  "should not specify rate limit unit when unlimited",
		"domain: d\ndescriptors: [{ key: k, rate_limit: { unlimited: perhaps } }]\n":                          `unlimited is "perhaps"`,
		"domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, replaces: [{ name: }] } }]\n":            "should not have an empty replaces entry",
		"domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, name: n, replaces: [{ name: n }] } }]\n": "replaces should not contain name of same descriptor",
		"domain: d\ndescriptors: [{ key: k, value: v, share_threshold: true }]\n":                             "share_threshold can only be used with wildcard values",
		"domain: d\ndescriptors: [{ key: k, limit: l, rate_limit: { unit: day } }]\n":                         "and not both",
		"domain: d\ndescriptors: [{ key: k, limit: [l] }]\n":                                                  "f:2:32: error: limit must be the name of a limit of the policy, or parameters|write limit: NAME, or limit: {",
		"domain: d\ndescriptors: [{ key: k, limit: l, shadow_mode: true }]\n":                                 "f:2:48: error: shadow_mode is about rate_limit|write shadow: true beside the parameters of the limit",
		"domain: d\ndescriptors: [{ key: k, settle: [l] }]\n":                                                 "settle must be the name of a limit",
		"domain: [\n": "f:",
		"domain: d\ndescriptors: " + strings.Repeat("[", 100000): "nested more than",
	} {
		_, err := Parse([]File{{"f", []byte(text)}}, false)
		var invalid *policyfile.InvalidError
		if err != nil && !errors.As(err, &invalid) {
			t.Errorf("%.60q: %v", text, err)
			continue
		}
		all := ""
		if invalid != nil {
			for _, p := range invalid.Problems {
				all += p.String() + "\n" + p.Fix + "\n"
			}
		}
		for _, part := range strings.Split(want, "|") {
			if want == "" && all != "" || !strings.Contains(all, part) {
				t.Errorf("%.60q: %s, not %s", text, all, want)
			}
		}
	}
}

// TestMerge: a domain in two files is an error, unless they are to be merged.
func TestMerge(t *testing.T) {
	files := []File{{"a", []byte("domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day } }]\n")}, {"b", []byte("domain: d\ndescriptors: [{ key: l, rate_limit: { unit: day } }]\n")}}
	if _, err := Parse(files, false); err == nil || !strings.Contains(err.Error(), "duplicate domain 'd' in config file: a has it, too") {
		t.Error(err)
	}
	c, err := Parse(files, true)
	if err != nil || len(c.Rules()) != 2 || len(c.domains) != 1 {
		t.Errorf("%v, %v", c, err)
	}
	if _, err := Parse(append(files, files[0]), true); err == nil || !strings.Contains(err.Error(), "duplicate descriptor composite key 'd.k'") {
		t.Error(err)
	}
}

// TestConfigMap: the files of a ConfigMap's mount are those of one version, and never of two.
func TestConfigMap(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to string) {
		t.Helper()
		if err := errors.Join(os.Symlink(to, filepath.Join(folder, "..data_tmp")), os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		write(fmt.Sprintf("..%d/a.yaml", i), fmt.Sprint(i))
		write(fmt.Sprintf("..%d/b.yml", i), fmt.Sprint(i))
	}
	link("..0")
	for _, name := range []string{"a.yaml", "b.yml"} {
		if err := os.Symlink("..data/"+name, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	write("..0/notes.txt", "")
	write("..0/.hidden.yaml", "")
	stop := make(chan struct{})
	swapped := make(chan struct{})
	go func() {
		defer close(swapped)
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			default:
				link(fmt.Sprintf("..%d", i%2))
			}
		}
	}()
	for range 200 {
		files, err := Load(folder)
		if err != nil && strings.Contains(err.Error(), "again and again") {
			continue // it says so, and the next look reads them
		}
		if err != nil || len(files) != 2 || string(files[0].Data) != string(files[1].Data) || files[0].Name != filepath.Join(folder, "a.yaml") {
			t.Errorf("%q, %v", files, err)
			break
		}
	}
	close(stop)
	<-swapped
	testRuntimeRoot(t)
	if _, err := Load(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := Load(filepath.Join(folder, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// testRuntimeRoot: a link above the folder may change, too, as that of RUNTIME_ROOT does.
func testRuntimeRoot(t *testing.T) {
	root := t.TempDir()
	link := func(i int) error {
		return errors.Join(os.Symlink(fmt.Sprint(i), filepath.Join(root, "next")), os.Rename(filepath.Join(root, "next"), filepath.Join(root, "current")))
	}
	for i := range 2 {
		folder := filepath.Join(root, fmt.Sprint(i), "config")
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a.yaml", "b.yaml", "c.yaml"} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(fmt.Sprint(i)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := link(0); err != nil {
		t.Fatal(err)
	}
	stop, swapped := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 1; ; i++ {
			select {
			case <-stop:
				swapped <- nil
				return
			default:
				if err := link(i % 2); err != nil {
					swapped <- err
					return
				}
			}
		}
	}()
	for range 200 {
		files, err := Load(filepath.Join(root, "current", "config"))
		if err != nil && strings.Contains(err.Error(), "again and again") {
			continue
		}
		if err != nil || len(files) != 3 || string(files[0].Data) != string(files[2].Data) {
			t.Errorf("%q, %v", files, err)
			break
		}
	}
	close(stop)
	if err := <-swapped; err != nil {
		t.Error(err)
	}
}

// FuzzParse: no text makes the parser fail without an error, or find a rule for a descriptor of another
// depth.
func FuzzParse(f *testing.F) {
	f.Add("domain: d\ndescriptors:\n  - key: k\n    value: a*b\n    share_threshold: true\n    rate_limit: { unit: day, requests_per_unit: 1 }\n", "k", "ab")
	f.Add("domain: d\ndescriptors: [{ key: k, descriptors: [{ key: k, limit: x }] }]\n", "k", "")
	f.Add("domain: d\ndescriptors: [{ key: k, rate_limit: { unlimited: true, replaces: [{ name: n }] } }]\n", "k", "*")
	f.Fuzz(func(t *testing.T, text, key, value string) {
		c, err := Parse([]File{{"f", []byte(text)}}, false)
		if err != nil {
			var invalid *policyfile.InvalidError
			if !errors.As(err, &invalid) || len(invalid.Problems) == 0 {
				t.Fatalf("%v", err)
			}
			return
		}
		for domain := range c.domains {
			for depth := range 4 {
				entries := make([]pair, depth)
				for i := range entries {
					entries[i] = pair{key, value}
				}
				if m := Find(c, domain, entries); m.Rule != nil && (depth == 0 || m.Rule.Domain != domain || m.Metric == "" || m.Shared != nil && len(m.Shared) != depth) {
					t.Fatalf("%v for %v", m, entries)
				}
			}
		}
	})
}

type pair struct{ key, value string }

func (p pair) GetKey() string   { return p.key }
func (p pair) GetValue() string { return p.value }

// TestFolderAboveTheFiles: RUNTIME_ROOT is above the folder with the files, which the error names.
func TestFolderAboveTheFiles(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "config"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "config", "a.yaml"), []byte("domain: d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(root); err == nil || !strings.Contains(err.Error(), "there are some in "+filepath.Join(root, "config")+": name that folder") {
		t.Error(err)
	}
}
