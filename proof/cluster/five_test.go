package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weircluster"
	"github.com/weirflow/weir/weirkv"
)

// keepers returns the nodes that keep states, which they do in folders of their own.
func keepers(t *testing.T, folder string, nodes []string) (all []int) {
	t.Helper()
	for i, node := range nodes {
		if _, err := os.Stat(filepath.Join(folder, strings.ReplaceAll(node, ":", "_"), "jetstream", "$G", "streams", "KV_weir")); err == nil {
			all = append(all, i)
		}
	}
	return all
}

// TestTwoOfFive: of five nodes any two may be away. Three of the five kept the states, so that no node decided when
// two of these were away.
func TestTwoOfFive(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	nodes, folder := addresses(t, 5), t.TempDir()
	all, s := five(t, nodes, folder)
	charge(t, s, 9)
	away := keepers(t, folder, nodes)[:2]
	for _, i := range away {
		if i == len(nodes)-1 { // that of s
			t.Fatal("the last node is one of the first two that keep states")
		}
		if err := all[i].Close(); err != nil {
			t.Error(err)
		}
	}
	charge(t, s, 8)
}

// TestThreeBecomeFive: where three nodes began to keep the states, all five of a longer list keep them.
func TestThreeBecomeFive(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	nodes, folder := addresses(t, 5), t.TempDir()
	three, s := five(t, nodes[:3], folder)
	charge(t, s, 9)
	for _, n := range three {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	_, s = five(t, nodes, folder)
	charge(t, s, 8)
	servers.Poll(t, "states at all nodes", func() bool { return len(keepers(t, folder, nodes)) == 5 })
	charge(t, s, 7)
}

// five starts nodes, five or fewer. The store is that of the last one.
func five(t *testing.T, nodes []string, folder string) (all []*weircluster.Node, s *weirkv.Store) {
	t.Helper()
	for _, node := range nodes {
		all = append(all, embed(t, weircluster.Options{Node: node, Nodes: nodes, Secret: secret("a"), Folder: folder, Files: true}))
	}
	s = opened(t, all[len(all)-1])
	ready(t, s)
	return all, s
}

// charge takes one of ten tokens.
func charge(t *testing.T, s *weirkv.Store, left int64) {
	t.Helper()
	if d, err := take(t.Context(), s, "k", 10); err != nil || d.Remaining != left {
		t.Errorf("%+v %v, want %d left", d, err, left)
	}
}
