package cluster

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weircluster"
	"github.com/weirflow/weir/weirkv"
)

// addresses claims n free addresses until the test ends.
func addresses(t *testing.T, n int) (all []string) {
	t.Helper()
	for range n {
		a, err := servers.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Release)
		all = append(all, a.Host)
	}
	return all
}

// secret is known to the nodes of a test.
func secret(of string) []byte {
	sum := sha256.Sum256([]byte(of))
	return sum[:]
}

// embed starts a node, and closes it when the test ends.
func embed(t *testing.T, o weircluster.Options) *weircluster.Node {
	t.Helper()
	n, err := weircluster.Embed(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// opened is a store of a node, until the test ends.
func opened(t *testing.T, n *weircluster.Node) *weirkv.Store {
	t.Helper()
	s, err := n.Open(weirkv.Options{Timeout: servers.Patience, Attempts: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func ready(t *testing.T, s *weirkv.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	if err := s.Ready(ctx); err != nil {
		t.Fatal(err)
	}
}

// take charges one token of a bucket that does not refill while a test runs.
func take(ctx context.Context, s *weirkv.Store, key string, burst int64) (weir.Decision, error) {
	out := make([]weir.Decision, 1)
	err := s.Do(ctx, []weir.Charge{{Name: "l", Key: key, Limit: weir.TokenBucket{Rate: weir.Rate{N: 1, Per: 1000 * time.Hour}, Burst: burst}, Cost: 1}}, out)
	return out[0], err
}

// TestEmbed: three nodes share their limits exactly, also while one of them is away and after it is back, and a
// leaf node shares them too. One node alone refuses to decide, and says which nodes it misses.
func TestEmbed(t *testing.T) {
	t.Parallel() // they mostly wait for elections
	nodes, folder := addresses(t, 3), t.TempDir()
	leaves := addresses(t, 3)
	options := func(i int) weircluster.Options {
		var port int
		if _, err := fmt.Sscanf(leaves[i][len("127.0.0.1:"):], "%d", &port); err != nil {
			t.Fatal(err)
		}
		return weircluster.Options{Node: nodes[i], Nodes: nodes, Secret: secret("a"), Folder: folder, Leaves: port}
	}
	first := embed(t, options(0))
	stores := []*weirkv.Store{opened(t, first)}
	servers.Poll(t, "an error that says what is missing", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := take(ctx, stores[0], "alone", 1)
		if err == nil {
			t.Fatal("one of three nodes decided alone")
		}
		return strings.Contains(err.Error(), nodes[1]) && strings.Contains(err.Error(), nodes[2])
	})
	second, third := embed(t, options(1)), embed(t, options(2))
	stores = append(stores, opened(t, second), opened(t, third))
	for _, s := range stores {
		ready(t, s)
	}
	const burst = 300
	var admitted atomic.Int64
	charge := func(stores ...*weirkv.Store) {
		var wg sync.WaitGroup
		for _, s := range stores {
			for range 4 {
				wg.Go(func() {
					for range 25 {
						d, err := take(t.Context(), s, "shared", burst)
						if err != nil {
							t.Error(err)
						} else if d.Allowed {
							admitted.Add(1)
						}
					}
				})
			}
		}
		wg.Wait()
	}
	charge(stores[0]) // 100
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	charge(stores[1]) // 200
	again := opened(t, embed(t, options(0)))
	ready(t, again)
	leaf := opened(t, embed(t, weircluster.Options{Leaf: leaves, Secret: secret("a")}))
	ready(t, leaf)
	charge(again, leaf, stores[2])
	if admitted.Load() != burst {
		t.Errorf("%d admitted, limit %d", admitted.Load(), burst)
	}

	stranger := opened(t, embed(t, weircluster.Options{Leaf: leaves, Secret: secret("b")}))
	servers.Poll(t, "the error of a leaf node with another secret", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := take(ctx, stranger, "shared", burst)
		if err == nil {
			t.Fatal("a leaf node with another secret decided")
		}
		return strings.Contains(err.Error(), "another secret") || strings.Contains(err.Error(), "TLS")
	})
}

// TestAllRestart: after a restart of all nodes, states in files go on, and those in memory start over.
func TestAllRestart(t *testing.T) {
	t.Parallel() // they mostly wait for elections
	for _, files := range []bool{false, true} {
		nodes, folder := addresses(t, 3), t.TempDir()
		left := map[bool]int64{}
		for _, again := range []bool{false, true} {
			var all []*weircluster.Node
			var s *weirkv.Store
			for _, node := range nodes {
				all = append(all, embed(t, weircluster.Options{Node: node, Nodes: nodes, Folder: folder, Files: files}))
			}
			s = opened(t, all[0])
			ready(t, s)
			d, err := take(t.Context(), s, "k", 10)
			if err != nil {
				t.Fatal(err)
			}
			left[again] = d.Remaining
			var wg sync.WaitGroup
			for _, n := range all {
				wg.Go(func() { _ = n.Close() })
			}
			wg.Wait()
		}
		want := int64(9)
		if files {
			want = 8
		}
		if left[false] != 9 || left[true] != want {
			t.Errorf("in files: %v: %d left, and %d after a restart, want 9 and %d", files, left[false], left[true], want)
		}
	}
}
