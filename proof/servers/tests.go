package servers

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/raced"
)

// Patience is how long tests wait for what must happen, on a busy machine too.
const Patience = 2 * time.Minute

// Main builds the weir command, sets *binary to its path, and runs the tests of a package. Under the
// race detector the command is built with it too: it then exits with a code other than 0 after a
// race. Settings are test flags, as name=value.
func Main(m *testing.M, binary *string, settings ...string) (code int) {
	dir, err := os.MkdirTemp("", "weir")
	if err == nil {
		defer os.RemoveAll(dir)
		*binary, err = BuildWeir(context.Background(), dir, raceFlags()...)
	}
	for _, s := range settings {
		if name, value, _ := strings.Cut(s, "="); err == nil {
			err = flag.Set(name, value)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func raceFlags() []string {
	if raced.Enabled {
		return []string{"-race"}
	}
	return nil
}

// Poll waits until a condition is true. The test fails if that takes longer than Patience.
func Poll(t testing.TB, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience) // works at the end of a test, too
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !is() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}

// Replace replaces a file atomically, as an editor does.
func Replace(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// FreePorts begins a policy that is served on free ports.
const FreePorts = "listen: { gateway: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }\n"

// A Reloadable is a weir serve whose policy file can be changed.
type Reloadable struct {
	*Weir
	File string
}

// PolicyIn writes a policy to the file policy.yaml of a directory. Start serves it.
func PolicyIn(t testing.TB, dir, policy string) *Reloadable {
	t.Helper()
	r := &Reloadable{File: filepath.Join(dir, "policy.yaml")}
	r.Write(t, policy)
	return r
}

// Start runs weir serve until the test ends, which fails if it does not exit with code 0, or has printed
// a panic that it recovered from.
func (r *Reloadable) Start(t testing.TB, binary string, args ...string) *Reloadable {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	var err error
	if r.Weir, err = StartWeir(ctx, binary, r.File, args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		if out := r.Output(); strings.Contains(out, "DATA RACE") || strings.Contains(out, "panic") {
			t.Error(out)
		}
	})
	return r
}

// Write replaces the policy.
func (r *Reloadable) Write(t testing.TB, policy string) {
	t.Helper()
	Replace(t, r.File, policy)
}

// Metrics reads /metrics.
func (w *Weir) Metrics(t testing.TB) string {
	t.Helper()
	resp, err := http.Get("http://" + w.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	return string(text)
}

// Samples reads /metrics: each sample by its name and labels.
func (w *Weir) Samples(t testing.TB) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for line := range strings.Lines(w.Metrics(t)) {
		name, value, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found || strings.HasPrefix(line, "#") {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("/metrics: %q: %v", line, err)
		}
		all[name] = v
	}
	return all
}

// Resident reads the resident memory of the process, in bytes, from Linux's /proc.
func (p *Process) Resident(t testing.TB) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	var kilobytes int
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return kilobytes << 10
}
