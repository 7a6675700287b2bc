package llm

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestExampleRuns: the one command of examples/llm-gateway does what its README shows.
func TestExampleRuns(t *testing.T) {
	var open []net.Listener
	var free []string
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		open, free = append(open, l), append(free, l.Addr().String())
	}
	for _, l := range open { // all at once, so that each port is another one
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, "sh", "../../examples/llm-gateway/run")
	run.Env = append(run.Environ(), "GOWORK=off", "UPSTREAM="+free[0], "GATEWAY="+free[1], "ADMIN="+free[2])
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"2 requests with max_tokens 400 got 200 OK\n4 requests with max_tokens 400 got 429 Too Many Requests\n",
		"2 requests with max_tokens 400 got 200 OK\n0 requests with max_tokens 400 got 429 Too Many Requests\n",
		`"usage":{"output_tokens":10}`,
		`"anthropic";r=96`,
		`weir_limit_cost_unknown_total{limit="openai"} 0`,
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}
