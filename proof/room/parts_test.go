package room

import (
	"os"
	"testing"

	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
)

// binary is the weir command, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(servers.Main(m, &binary, "rapid.seed="+seeds.Text())) }

// gateway is a running weir whose policy file can be changed.
type gateway struct{ *servers.Reloadable }

// startWeir serves a policy, which is given without listen.
func startWeir(t *testing.T, policy string) *gateway {
	t.Helper()
	g := &gateway{servers.PolicyIn(t, t.TempDir(), servers.FreePorts+policy)}
	g.Start(t, binary)
	return g
}

func (g *gateway) write(t *testing.T, policy string) {
	t.Helper()
	g.Write(t, servers.FreePorts+policy)
}
