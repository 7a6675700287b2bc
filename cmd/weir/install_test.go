package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestInstallLines runs the lines below "Install" in the README: it builds the command from the
// repository, and the README's program in a module that uses it.
func TestInstallLines(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## Install\n")
	section, _, _ = strings.Cut(section, "\n## ")
	lines := regexp.MustCompile(`(?m)^    (go .*)$`).FindAllStringSubmatch(section, -1)
	if len(lines) < 3 {
		t.Fatalf("%d lines to install with: %q", len(lines), section)
	}
	bin, module := t.TempDir(), t.TempDir()
	goIn(t, root, bin, strings.Fields(lines[0][1])...)
	if out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "weir"), "--version").CombinedOutput(); err != nil || len(out) == 0 {
		t.Errorf("weir --version: %v: %s", err, out)
	}
	code, err := os.ReadFile(filepath.Join(root, "keyed", "readme_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(code), "func Example() {\n")
	body, _, _ = strings.Cut(body, "\n}\n")
	program := "package main\n\nimport (\n\t\"fmt\"\n\t\"log\"\n\t\"time\"\n\n\t\"github.com/weirflow/weir\"\n\t\"github.com/weirflow/weir/keyed\"\n)\n\nfunc main() {\n" + body + "\n}\n"
	if err := os.WriteFile(filepath.Join(module, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	goIn(t, module, bin, "go", "mod", "init", "example.com/logins")
	for _, line := range lines[1:] {
		command := strings.ReplaceAll(line[1], "/path/to/the/clone", root)
		goIn(t, module, bin, strings.Fields(command)...)
		_, replacement, _ := strings.Cut(command, "-replace ")
		name, dir, _ := strings.Cut(replacement, "=")
		if mod, err := os.ReadFile(filepath.Join(dir, "go.mod")); err != nil || !strings.HasPrefix(string(mod), "module "+name+"\n") {
			t.Errorf("%s: %s is not that module: %v", line[1], dir, err)
		}
	}
	out := goIn(t, module, bin, "go", "run", ".")
	if want := "429 Too Many Requests, retry in 20m0s\n"; !strings.HasSuffix(out, want) {
		t.Errorf("the program printed %q, want it to end with %q", out, want)
	}
}

// goIn runs a command in a directory as a user would: with the workspace, which `make test`
// switches off.
func goIn(t *testing.T, dir, bin string, command ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), command[0], command[1:]...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOBIN="+bin, "GOWORK=", "GOFLAGS=", "GOTOOLCHAIN=local")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}
