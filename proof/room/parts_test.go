package room

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
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
	if err == nil {
		err = flag.Set("rapid.seed", seeds.Text())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// until polls a condition until it is true.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !is() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// gateway is a running weir whose policy file can be changed.
type gateway struct {
	*servers.Weir
	policy string
}

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

// write replaces the policy file atomically.
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
