package llm

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestExampleRuns: the one command of examples/llm-gateway does what its README shows.
func TestExampleRuns(t *testing.T) {
	// Ports below those of outgoing connections, and of the other tests: they must stay free while the
	// programs are built. The UDP port of the same number is the claim of one.
	var free []string
	for port := 10_000 + os.Getpid()%4000; len(free) < 3; port++ {
		if port == 15_000 {
			t.Fatal("no port is free")
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		claim, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		defer claim.Close()
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			free = append(free, addr)
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
