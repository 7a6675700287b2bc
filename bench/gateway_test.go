package main

import (
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const wrkOutput = `Running 1s test @ http://127.0.0.1:1/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.02ms    1.11ms  14.20ms   87.10%
    Req/Sec    58.40k     3.10k   62.00k    70.00%
  Latency Distribution
     50%  850.00us
     75%    1.20ms
     90%    2.10ms
     99%    1.02s
  58162 requests in 1.00s, 12.00MB read
  Socket errors: connect 1, read 2, write 0, timeout 4
  Non-2xx or 3xx responses: 58161
Requests/sec:  58100.25
Transfer/sec:     12.00MB
`

func TestParseWrk(t *testing.T) {
	v, err := parseWrk(wrkOutput)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range (values{"requests": 58162, "rate": 58100.25, "p50": 0.85, "p99": 1020, "errors": 7, "not2xx": 58161}) {
		if v[name] != want {
			t.Errorf("%s: %v, want %v", name, v[name], want)
		}
	}
	for _, bad := range []string{"", "unable to connect", strings.Replace(wrkOutput, "50%  850.00us", "", 1), strings.Replace(wrkOutput, "1.02s", "soon", 1)} {
		if _, err := parseWrk(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestProxyTable: ratios are computed within each round, and only weir's row has a target.
func TestProxyTable(t *testing.T) {
	all := []proxy{{name: subjectUpstream}, {name: "nginx, 3 workers"}, {name: subjectGateway}}
	runs := [][]values{
		{{"rate": 9}, {"rate": 90}, {"rate": 9}},
		{{"rate": 2, "cpu": 1}, {"rate": 20, "cpu": 1}, {"rate": 2, "cpu": 1}},
		{{"rate": 1, "cpu": 3}, {"rate": 14, "cpu": 2}, {"rate": 2, "cpu": 2}},
	}
	rows := proxyTable(traffic{target: 0.6}, all, []string{"nginx, 3 workers"}, runs, 1).Rows
	if got := rows[2].Values; got[0] != 2 || got[4] != 0.7 || got[6] != 2 || rows[2].Target != ">= 0.6 nginx, 3 workers ok" || rows[2].Missed {
		t.Errorf("%+v", rows[2])
	}
	if !math.IsNaN(rows[0].Values[3]) || rows[1].Values[4] != 1 || rows[1].Target != "" {
		t.Errorf("%+v", rows[:2])
	}
}

func TestFamily(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are found in /proc")
	}
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	if pids, err := family(os.Getpid()); err != nil || pids[0] != os.Getpid() || !slices.Contains(pids, child.Process.Pid) {
		t.Errorf("%v, %v: %d is missing", pids, err, child.Process.Pid)
	}
}

// TestGateway runs the section for a short time.
func TestGateway(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes ten seconds")
	}
	for _, program := range []string{"nginx", "wrk"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: install it, with apt install %s on Debian or Ubuntu", err, program)
		}
	}
	var out strings.Builder
	if err := gateway(&report{rounds: 1, cold: true, out: &out}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{": all admitted, ", ": all refused, ", "\n  weir  ", "\n  net/http alone  ", ">= 0.8 nginx, ", ">= 0.95 nginx, "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

func TestGatewayWithoutWrk(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := gateway(&report{}); err == nil || !strings.Contains(err.Error(), "apt install wrk") {
		t.Error(err)
	}
}
