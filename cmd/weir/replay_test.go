package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"
)

const replayLimits = `limits:
  per-client:
    key: client.ip
    token_bucket: { rate: 1/m, burst: 1 }
routes:
  - match: /
    limits: [per-client]
`

// TestReplayInputs: several logs, in different formats, one of them compressed with zstd.
func TestReplayInputs(t *testing.T) {
	t.Chdir(t.TempDir())
	haproxy := "10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 \"GET / HTTP/1.1\"\n"
	var zipped bytes.Buffer
	z, err := zstd.NewWriter(&zipped)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write([]byte(strings.Repeat(haproxy, 3))); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"p.yaml":   replayLimits,
		"h.zst":    zipped.String(),
		"c.log":    "10.0.1.2 - - [06/Feb/2009:12:14:13 +0000] \"GET / HTTP/1.1\" 200 5\nbad\n",
		"own.log":  "10.0.1.3 1233922454.5 GET /\n",
		"torn.zst": zipped.String()[:len(zipped.String())-6],
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := weir(t, "", "replay", "p.yaml", "h.zst", "c.log")
	for _, want := range []string{"requests  4   2009-02-06T12:14:13Z", "format    haproxy (1), common (1)", "limited   3 "} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d, no %q in %s%s", code, want, out, errs)
		}
	}
	if !strings.Contains(errs, "1 line could not be read") || !strings.Contains(errs, "c.log, line 2: ") {
		t.Errorf("%s", errs)
	}
	code, out, errs = weir(t, "", "replay", "p.yaml", "--format", "$client $msec $method $path", "own.log")
	if code != 0 || !strings.Contains(out, "requests  1   2009-02-06T12:14:14Z") || !strings.Contains(out, "format    custom") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	if code, out, errs := weir(t, "", "replay", "p.yaml", "--format", "nginxx", "c.log"); code != 2 || !strings.Contains(errs, "--format: \"nginxx\" is no format: write one of auto, common") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	if code, _, errs := weir(t, "", "replay", "p.yaml", "torn.zst", "c.log"); code != 1 || !strings.Contains(errs, "torn.zst: ") {
		t.Errorf("a file that is cut off: %d, %s", code, errs)
	}
	if left, err := filepath.Glob(os.TempDir() + "/weir-replay-*"); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// TestReplayPage: --html, --svg and --png write files; what cannot be written is said before the logs are read.
func TestReplayPage(t *testing.T) {
	t.Chdir(t.TempDir())
	log := strings.Repeat("10.0.1.2 - - [06/Feb/2009:12:14:13 +0000] \"GET /a HTTP/1.1\" 200 5 \"-\" \"curl/8\"\n", 5)
	for name, text := range map[string]string{"p.yaml": replayLimits, "a.log": log} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, errs := weir(t, "", "replay", "p.yaml", "--html", "page.html", "--svg", "plots", "--png", "plots", "a.log"); code != 0 || !strings.Contains(out, "limited   4 ") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	page, err := os.ReadFile("page.html")
	if err != nil || !bytes.Contains(page, []byte("5 requests of 1 clients")) {
		t.Errorf("%v, %s", err, page)
	}
	if plots, err := filepath.Glob("plots/*.*"); err != nil || len(plots) != 6 {
		t.Errorf("%v, %v", plots, err)
	}
	for _, texts := range []string{"rate=1/m,2/m burst=1..5", "burst=1,2"} {
		os.Remove("plots/sweep.png")
		if code, _, errs := weir(t, "", "replay", "p.yaml", "--sweep", texts, "--html", "sweep.html", "--png", "plots", "a.log"); code != 0 {
			t.Errorf("%d, %s", code, errs)
		}
		if _, err := os.Stat("plots/sweep.png"); err != nil {
			t.Error(err)
		}
		if page, err := os.ReadFile("sweep.html"); err != nil || !bytes.Contains(page, []byte("<td class=\"n\">100.00 %</td>")) || !bytes.Contains(page, []byte("<svg")) {
			t.Errorf("%v, %s", err, page)
		}
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"replay reads it as a.log", []string{"p.yaml", "--html", "a.log", "a.log"}},
		{"not a directory", []string{"p.yaml", "--svg", "a.log/plots", "a.log"}},
		{"it is a file: name a directory", []string{"p.yaml", "--png", "a.log", "a.log"}},
		{"--html with --suggest", []string{"--suggest", "--html", "x.html", "a.log"}},
		{"--suggest with --compare", []string{"p.yaml", "--suggest", "--compare", "p.yaml", "a.log"}},
		{"is no share of clients", []string{"--suggest=100", "a.log"}},
		{"is missing: write", []string{"--suggest", "p.yaml"}},
		{"write --suggest=99,99.5 for", []string{"--suggest", "99,99.5", "a.log"}},
	} {
		if code, _, errs := weir(t, "", append([]string{"replay"}, c.args...)...); code != 2 || !strings.Contains(errs, c.want) {
			t.Errorf("%v: %d, %s", c.args, code, errs)
		}
	}
	code, out, errs := weir(t, "", "replay", "--suggest", "a.log")
	if err := os.WriteFile("suggested.yaml", []byte(out), 0o600); code != 0 || err != nil {
		t.Errorf("%d, %s, %v", code, errs, err)
	}
	if code, out, errs := weir(t, "", "replay", "suggested.yaml", "a.log"); code != 0 || !strings.Contains(out, "limited   0 ") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
}

// TestReplayOfAPipeIsInterrupted: a named pipe that nobody writes into does not keep replay from being interrupted,
// as the policy or as a log.
func TestReplayOfAPipeIsInterrupted(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("policy.yaml", []byte("limits: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"replay", "policy.yaml", "pipe"}, {"replay", "pipe", "policy.yaml"}, {"replay", "--suggest", "pipe"}} {
		ctx, interrupt := context.WithCancel(t.Context())
		interrupt()
		var out, errs strings.Builder
		if code := run(ctx, args, strings.NewReader(""), &out, &errs); code == 0 || !strings.Contains(errs.String(), "interrupted") {
			t.Errorf("%v: %d, %q", args, code, errs.String())
		}
	}
}

// TestReplayOutputs: two outputs have two files; a file of decisions is not emptied for a log that is not there;
// and a disk that is full is an error.
func TestReplayOutputs(t *testing.T) {
	t.Chdir(t.TempDir())
	const log = `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1` + "\n"
	for name, text := range map[string]string{"policy.yaml": replayLimits, "a.log": log, "old.txt": "kept"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, args := range map[string][]string{
		"--html and --decisions name the same file": {"--decisions", "out", "--html", "./out", "a.log"},
		"no such file or directory":                 {"--decisions", "old.txt", "missing.log"},
		"replay reads it as a.log":                  {"--decisions", "a.log", "a.log"},
		"/dev/full: no space left on device":        {"--decisions", "/dev/full", "a.log"},
		"/missing/x: no such file or directory":     {"--decisions", "/missing/x", "a.log"},
	} {
		if code, _, errs := weir(t, "", append([]string{"replay", "policy.yaml"}, args...)...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%v: %d, %q, want %q", args, code, errs, want)
		}
	}
	if text, err := os.ReadFile("old.txt"); err != nil || string(text) != "kept" {
		t.Errorf("%q %v", text, err)
	}
	if code, _, errs := weir(t, "", "replay", "policy.yaml", "--decisions", "old.txt", "--html", "page.html", "a.log"); code != 0 {
		t.Error(errs)
	}
	if text, err := os.ReadFile("old.txt"); err != nil || string(text) != "1\tallow\t-\n" {
		t.Errorf("%q %v", text, err)
	}
}
