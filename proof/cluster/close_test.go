package cluster

import (
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weircluster"
	"github.com/weirflow/weir/weirkv"
)

// TestCloseLeavesNothing: when nodes that have decided, and one that never finds another, have closed, no
// goroutine of theirs runs, and nobody listens at their addresses.
func TestCloseLeavesNothing(t *testing.T) {
	// not parallel: goroutines are of no test in particular
	nodes, folder := addresses(t, 4), t.TempDir()
	var all []*weircluster.Node
	for _, node := range nodes[:3] {
		all = append(all, embed(t, weircluster.Options{Node: node, Nodes: nodes[:3], Folder: folder, Secret: secret("a")}))
	}
	all = append(all, embed(t, weircluster.Options{Node: nodes[3], Nodes: []string{nodes[3], "127.0.0.1:1", "127.0.0.1:2"}, Folder: folder}))
	s, err := all[0].Open(weirkv.Options{Timeout: servers.Patience, Attempts: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	ready(t, s)
	if _, err := take(t.Context(), s, "k", 10); err != nil {
		t.Error(err)
	}
	if goroutines() == 0 {
		t.Error("the goroutines of running nodes are not found")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, n := range all {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, node := range nodes {
		l, err := net.Listen("tcp", node)
		if err != nil {
			t.Errorf("%s is still in use: %v", node, err)
			continue
		}
		_ = l.Close()
	}
	servers.Poll(t, "the end of all goroutines of the nodes", func() bool { return goroutines() == 0 })
}

// goroutines counts those of nodes, of their servers and of their stores.
func goroutines() (n int) {
	buffer := make([]byte, 4<<20)
	for g := range strings.SplitSeq(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		if strings.Contains(g, "nats-io/") || strings.Contains(g, "weir/weircluster.") || strings.Contains(g, "weir/weirkv.") {
			n++
		}
	}
	return n
}
