package traffic

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

// binary is the weir command, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(servers.Main(m, &binary, "test.parallel=8")) } // parallel tests here mostly sleep

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
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
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
type gateway struct{ *servers.Reloadable }

// startWeir serves a policy, which is given without listen.
func startWeir(t *testing.T, dir, policy string) *gateway {
	t.Helper()
	g := &gateway{servers.PolicyIn(t, dir, servers.FreePorts+policy)}
	g.Start(t, binary)
	return g
}

func (g *gateway) write(t *testing.T, policy string) {
	t.Helper()
	g.Write(t, servers.FreePorts+policy)
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
