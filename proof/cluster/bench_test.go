package cluster

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weircluster"
	"github.com/weirflow/weir/weirkv"
)

// BenchmarkDecisions measures three nodes in this process. The callers are spread over the nodes. docs/cluster.md has
// the figures.
func BenchmarkDecisions(b *testing.B) {
	var nodes []string
	for range 3 {
		a, err := servers.FreeAddress()
		if err != nil {
			b.Fatal(err)
		}
		defer a.Release()
		nodes = append(nodes, a.Host)
	}
	folder := b.TempDir()
	var stores []*weirkv.Store
	for _, node := range nodes {
		n, err := weircluster.Embed(weircluster.Options{Node: node, Nodes: nodes, Secret: secret("bench"), Folder: folder})
		if err != nil {
			b.Fatal(err)
		}
		defer n.Close()
		s, err := n.Open(weirkv.Options{Timeout: servers.Patience, Attempts: 1 << 20})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		stores = append(stores, s)
	}
	for _, s := range stores {
		if err := s.Ready(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range []struct {
		name           string
		nodes, callers int // callers of each node
		leased         bool
	}{
		{"one_node_1_caller", 1, 1, false}, {"one_node_64_callers", 1, 64, false}, {"three_nodes_1_caller_each", 3, 1, false},
		{"three_nodes_21_callers_each", 3, 21, false}, {"leased_three_nodes_1_caller_each", 3, 1, true}, {"leased_three_nodes_21_callers_each", 3, 21, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			var mu sync.Mutex
			var all []time.Duration
			var wg sync.WaitGroup
			calls := max(b.N/(c.nodes*c.callers), 1)
			for _, kv := range stores[:c.nodes] {
				var s weir.Store = kv
				if c.leased {
					l, err := lease.New(kv, lease.Options{Timeout: 5 * time.Second})
					if err != nil {
						b.Fatal(err)
					}
					defer l.Close()
					s = l
				}
				for range c.callers {
					wg.Go(func() {
						took := make([]time.Duration, 0, calls)
						batch, out := []weir.Charge{{Name: c.name, Key: "hot", Limit: weir.TokenBucket{Rate: weir.PerSecond(1e6), Burst: 1e6}, Cost: 1}}, make([]weir.Decision, 1)
						for range calls {
							began := time.Now()
							if err := s.Do(b.Context(), batch, out); err != nil {
								b.Error(err)
								return
							}
							took = append(took, time.Since(began))
						}
						mu.Lock()
						all = append(all, took...)
						mu.Unlock()
					})
				}
			}
			wg.Wait()
			if slices.Sort(all); len(all) > 0 {
				b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "decisions/s")
				b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-us")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us")
			}
		})
	}
}
