package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestAPIPlansExample runs examples/api-plans: each plan gets its own limits, a guessed key none, and
// the usage of a customer is what was admitted.
func TestAPIPlansExample(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(bin, "weir"), ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := exec.CommandContext(t.Context(), filepath.Join(root, "examples/api-plans/run"), "--once")
	run.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "TMPDIR="+t.TempDir())
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// a slow machine admits more at 1/s and 10/s, and never fewer
	shown := regexp.MustCompile(`^free +([0-9]+) x 200(?:, [0-9]+ x 429)?\n` +
		`pro +([0-9]+) x 200(?:, [0-9]+ x 429)?\n` +
		`enterprise +30 x 200\n` +
		`a guess +30 x 401\n\n` +
		`LIMIT +USED +ALLOWED +LEFT +ALL BACK AT\n` +
		`pace .*\n` +
		`monthly +([0-9]+) +100000 .*\n$`).FindSubmatch(out)
	switch {
	case shown == nil:
		t.Errorf("it printed:\n%s", out)
	case string(shown[2]) != string(shown[3]):
		t.Errorf("%s were admitted, and %s are used", shown[2], shown[3])
	}
}

// TestOverloadExample: the policy of examples/overload is valid without warnings, and its script holds.
func TestOverloadExample(t *testing.T) {
	var out, words bytes.Buffer
	if code := run(t.Context(), []string{"check", "../../examples/overload/policy.yaml"}, nil, &out, &words); code != 0 || out.String() != "../../examples/overload/policy.yaml: ok: 1 limit, 3 routes\n" || words.Len() > 0 {
		t.Errorf("check ended with %d:\n%s%s", code, &out, &words)
	}
	if code := run(t.Context(), []string{"test", "../../examples/overload/overload.weir"}, nil, &out, &words); code != 0 {
		t.Errorf("test ended with %d:\n%s%s", code, &out, &words)
	}
}
