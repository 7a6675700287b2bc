package cluster

import (
	"strings"
	"sync"
	"testing"

	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weircluster"
)

// warned collects the warnings of a node.
type warned struct {
	mu  sync.Mutex
	all []string
}

func listen(n *weircluster.Node) *warned {
	w := &warned{}
	n.OnWarning(func(text string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all = append(w.all, text)
	})
	return w
}

func (w *warned) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.all, "\n")
}

// TestWarnings: another list of nodes, and another secret, are told at both nodes, once, without the secret.
func TestWarnings(t *testing.T) {
	t.Parallel()
	all, folder := addresses(t, 4), t.TempDir()
	start := func(i int, of string, nodes ...string) *warned {
		return listen(embed(t, weircluster.Options{Node: all[i], Nodes: nodes, Secret: secret(of), Folder: folder}))
	}
	first := start(0, "a", all[0], all[1], all[2])
	other := start(1, "a", all[0], all[1], all[3])
	stranger := start(2, "b", all[0], all[1], all[2])
	for _, c := range []struct {
		who  *warned
		want string
	}{
		{first, all[1] + " has another list of nodes than this one: it lists " + all[3] + ", this one does not; it does not list " + all[2]},
		{other, all[0] + " has another list of nodes than this one: it lists " + all[2] + ", this one does not; it does not list " + all[3]},
		{first, "has another secret than this node"},
		{stranger, "has another secret than this node"},
	} {
		servers.Poll(t, "the warning: "+c.want, func() bool { return strings.Contains(c.who.text(), c.want) })
	}
	for _, w := range []*warned{first, other, stranger} {
		if strings.Contains(w.text(), string(secret("a"))) || strings.Contains(w.text(), string(secret("b"))) {
			t.Error("a warning tells the secret")
		}
	}
}
