package traffic

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// binary is the weir command, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weir")
	if err == nil {
		defer os.RemoveAll(dir)
		binary, err = servers.BuildWeir(context.Background(), dir, buildFlags...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Parallel tests here mostly sleep, so they do not need a processor each.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// patience bounds everything that takes no time on an idle machine.
const patience = 2 * time.Minute

// poll waits until a condition is true, and fails the test if it never is.
func poll(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !is() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// program returns the path of a program that the tests run.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := servers.Program(name, name) // the packages have the programs' names
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func startNginx(t *testing.T, dir, conf string) *servers.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := servers.Nginx(ctx, dir, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s.Process) })
	return s
}

func stop(t *testing.T, p *servers.Process) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

// gateway is a running weir whose policy file can be changed.
type gateway struct {
	*servers.Weir
	policy string // the file
}

// startWeir serves a policy, which is given without listen.
func startWeir(t *testing.T, dir, policy string) *gateway {
	t.Helper()
	g := &gateway{policy: filepath.Join(dir, "policy.yaml")}
	g.write(t, policy)
	g.start(t)
	return g
}

func (g *gateway) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	if g.Weir, err = servers.StartWeir(ctx, binary, g.policy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, g.Process) })
}

// ports begins each policy here: free ports, which weir logs.
const ports = "listen: { gateway: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }\n"

// write replaces the policy file atomically, as an editor does.
func (g *gateway) write(t *testing.T, policy string) {
	t.Helper()
	replace(t, g.policy, ports+policy)
}

func replace(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// metrics reads /metrics: each sample by its name and labels.
func (g *gateway) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	resp, err := http.Get("http://" + g.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(text)) {
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

// curl runs curl and returns what it printed, followed by the status.
func curl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program(t, "curl"), append([]string{"-s", "-w", " %{http_code}"}, args...)...).Output()
	if err != nil {
		t.Errorf("curl %v: %v: %q", args, err, out)
	}
	return string(out)
}

// arrivals reads, from an access log of the format below, when requests reached the upstream, in
// milliseconds, and their statuses.
func arrivals(t *testing.T, file string) (at []int64, statuses map[string]int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	statuses = map[string]int{}
	for line := range strings.Lines(string(text)) {
		var seconds, ms int64
		var status string
		if _, err := fmt.Sscanf(line, "%d.%03d %s", &seconds, &ms, &status); err != nil {
			t.Fatalf("%s: %q: %v", file, line, err)
		}
		at = append(at, seconds*1000+ms)
		statuses[status]++
	}
	return at, statuses
}

// upstream is an nginx that logs when requests come. It has one worker, so the log is in the order
// of time.
const upstream = `
	log_format arrivals '$msec $status';
	access_log access.log arrivals;
	server {
		listen {{.Addr}};
		default_type text/plain;
		location / { return 200 "upstream\n"; }
	}`
