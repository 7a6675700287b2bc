package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	return m.Run()
}

// patience is how long a test waits for something that must happen.
const patience = 2 * time.Minute

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

// upstream is the upstream of the gateways; it records when requests come.
type upstream struct {
	*httptest.Server
	mu   sync.Mutex
	came []time.Time
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		u.came = append(u.came, time.Now())
		u.mu.Unlock()
		io.Copy(io.Discard, r.Body)
	}))
	t.Cleanup(u.Close)
	return u
}

// gateway is a running weir whose policy file can be changed.
type gateway struct {
	*servers.Weir
	policy string // path of the file
}

// startWeir serves a policy, which is given without listen.
func startWeir(t *testing.T, policy string) *gateway {
	t.Helper()
	g := &gateway{policy: filepath.Join(t.TempDir(), "policy.yaml")}
	g.write(t, policy)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	if g.Weir, err = servers.StartWeir(ctx, binary, g.policy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Stop(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// write replaces the policy file atomically, as an editor does.
func (g *gateway) write(t *testing.T, policy string) {
	t.Helper()
	text := "listen: { gateway: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }\n" + policy
	if err := os.WriteFile(g.policy+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(g.policy+".new", g.policy); err != nil {
		t.Fatal(err)
	}
}

// get makes a request, and returns its status and header fields.
func (g *gateway) get(t *testing.T, path string) (int, http.Header) {
	resp, err := http.Get("http://" + g.Gateway + path)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header
}

// has reports whether a line is among the metrics.
func (g *gateway) has(t *testing.T, line string) bool {
	t.Helper()
	return strings.Contains(g.metrics(t), line+"\n")
}

// value returns a metric as text.
func (g *gateway) value(t *testing.T, metric string) string {
	t.Helper()
	_, after, _ := strings.Cut(g.metrics(t), "\n"+metric+" ")
	text, _, _ := strings.Cut(after, "\n")
	return text
}

func (g *gateway) metrics(t *testing.T) string {
	t.Helper()
	resp, err := http.Get("http://" + g.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
