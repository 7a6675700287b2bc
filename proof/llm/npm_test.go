package llm

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// nodeClients is a running clients.mjs.
type nodeClients struct {
	in  io.Writer
	out *bufio.Reader
}

// nodeAnswer is what a client has read.
type nodeAnswer struct {
	Tokens     uint64
	Text, Tool string
	Error      string
	Status     int
}

func (f *front) node(t *testing.T) *nodeClients {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("node is not installed: make needs, or install nodejs")
	}
	if _, err := os.Stat("node_modules/openai"); err != nil {
		t.Fatalf("the clients are not installed: make needs, or npm ci --ignore-scripts in proof/llm (%v)", err)
	}
	cmd := exec.CommandContext(t.Context(), node, "clients.mjs")
	cmd.Env = append(os.Environ(), "BASE_URL="+f.url)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // the context of the test has ended it
	})
	return &nodeClients{in, bufio.NewReader(out)}
}

// do has a client make a call.
func (n *nodeClients) do(t *testing.T, call, model string, most int) nodeAnswer {
	t.Helper()
	if _, err := fmt.Fprintln(n.in, call, model, most); err != nil {
		t.Fatal(err)
	}
	line, err := n.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("%s %s: %v", call, model, err)
	}
	var a nodeAnswer
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return a
}

// TestNodeClients: answers and streams, with tools, of the npm packages openai and @anthropic-ai/sdk
// cost as much as the clients read in them. What the API refuses costs nothing, and a refusal of the
// gateway is the error that the packages have for 429.
func TestNodeClients(t *testing.T) {
	f := start(t)
	n := f.node(t)
	var total uint64
	for _, api := range []struct {
		limit string
		calls []string
		cut   string
	}{
		{"openai", []string{"openai chat", "openai stream", "openai responses", "openai responses-stream"}, "openai stream"},
		{"anthropic-bearer", []string{"anthropic message", "anthropic stream"}, "anthropic stream"},
	} {
		var spent uint64
		for _, call := range api.calls {
			for _, model := range []string{"gpt", "tool"} {
				tools := model == "tool" && !strings.Contains(call, "responses")
				a := n.do(t, call, model, 100)
				if a.Error != "" || a.Tokens == 0 || tools && a.Tool != "weather" || !tools && strings.Count(a.Text, "word") != 20 {
					t.Errorf("%s %s: %+v", call, model, a)
				}
				spent += a.Tokens
				f.charged(t, api.limit, spent)
			}
			if a := n.do(t, call, "error", 100); a.Error != "BadRequestError" || a.Status != 400 {
				t.Errorf("%s: the API's error arrives as %+v", call, a)
			}
			if a := n.do(t, call, "gpt", 1001); a.Error != "RateLimitError" || a.Status != 429 {
				t.Errorf("%s: a refusal arrives as %+v", call, a)
			}
			f.charged(t, api.limit, spent)
		}
		total += spent
		if got := f.upstream.Spent(); uint64(got) != total || f.count(t, api.limit).Unknown != 0 {
			t.Errorf("%s: the upstream has spent %d, the limits charged %d", api.limit, got, total)
		}
		if a := n.do(t, api.cut, "cut", 100); a.Error == "" {
			t.Errorf("%s does not notice that the stream broke off: %+v", api.cut, a)
		}
		waitUnknown(t, f, api.limit, 1)
		total = uint64(f.upstream.Spent())
	}
}
