package redis

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	pausing "github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// costNodesFor is how long each row of TestCostsOfNodes lasts. If it is given, the whole grid runs.
var costNodesFor = flag.Duration("cost-nodes", 0, "how long each row of TestCostsOfNodes lasts; runs the whole grid")

// costNodeTask is the environment variable that makes this program a node of TestCostsOfNodes.
const costNodeTask = "WEIR_COST_NODE"

// costLimit is the limit that the nodes share, of units of cost.
var costLimit = weir.TokenBucket{Rate: weir.PerSecond(10_000), Burst: 4_000}

// A costTask is what a node has to do: requests whose true cost is known after a latency.
type costTask struct {
	Addr     string
	Callers  int
	Every    time.Duration // between two requests of a caller
	Latency  time.Duration
	Estimate int64
	True     int64
}

// A costReport is what a node writes at its end.
type costReport struct {
	Offered  int64 // true costs of all requests
	Admitted int64 // and of those that were admitted
	Failed   int64 // calls that failed
}

func (w costTask) run() (costReport, error) {
	store, err := weirrueidis.Open("redis://"+w.Addr+"/0", weirredis.Options{Timeout: patience})
	if err != nil {
		return costReport{}, err
	}
	defer store.Close()
	shared, err := weir.NewShared(costLimit, store, weir.Named("costs"))
	if err != nil {
		return costReport{}, err
	}
	if _, err := shared.Peek(context.Background(), "k", 0); err != nil {
		return costReport{}, err
	}
	over, err := begun()
	if err != nil {
		return costReport{}, err
	}
	var mu sync.Mutex
	var sum costReport
	var all sync.WaitGroup
	for i := range w.Callers {
		all.Go(func() {
			ctx, due := context.Background(), time.Now().Add(w.Every*time.Duration(i)/time.Duration(w.Callers))
			for !over.Load() {
				if pausing.For(ctx, time.Until(due)) != nil {
					return
				}
				due = due.Add(w.Every)
				one := w.request(ctx, shared)
				mu.Lock()
				sum.Offered += one.Offered
				sum.Admitted += one.Admitted
				sum.Failed += one.Failed
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return sum, nil
}

// request reserves the estimate, and settles the true cost after the latency, if it is admitted.
func (w costTask) request(ctx context.Context, shared *weir.Shared) costReport {
	r, ok, err := shared.Reserve(ctx, "k", w.Estimate, 0)
	switch {
	case err != nil:
		return costReport{Failed: 1}
	case !ok:
		return costReport{Offered: w.True}
	}
	if pausing.For(ctx, w.Latency) != nil || r.Settle(ctx, w.True) != nil {
		return costReport{Offered: w.True, Admitted: w.True, Failed: 1}
	}
	return costReport{Offered: w.True, Admitted: w.True}
}

// TestCostsOfNodes: 1, 2 and 4 processes reserve estimates of one key in Redis, in real time, and
// settle the true costs later. What is admitted, in true costs, is never above the limit, but for
// what the estimates in flight lack.
func TestCostsOfNodes(t *testing.T) {
	redis := servers.StartRedis(t, servers.RedisOptions{})
	const trueCost, callers = 100, 60 // callers of all nodes together
	loads, latencies, estimates := []float64{3}, []time.Duration{50 * time.Millisecond}, []int64{2 * trueCost}
	lasts := 500 * time.Millisecond
	if *costNodesFor > 0 {
		loads, latencies = []float64{0.3, 1, 3}, []time.Duration{20 * time.Millisecond, 200 * time.Millisecond}
		estimates, lasts = []int64{trueCost / 2, trueCost, 2 * trueCost, 8 * trueCost}, *costNodesFor
	}
	var table strings.Builder
	for _, nodes := range []int{1, 2, 4} {
		for _, load := range loads {
			for _, latency := range latencies {
				for _, estimate := range estimates {
					w := costTask{Addr: redis.Addr, Callers: callers / nodes, Latency: latency, Estimate: estimate, True: trueCost}
					w.Every = time.Duration(float64(callers*trueCost) / load / float64(costLimit.Rate.N) * float64(time.Second))
					r, took := costsOf(t, w, nodes, lasts)
					most := costLimit.Burst + int64(took.Seconds()*float64(costLimit.Rate.N)) + 1
					name := fmt.Sprintf("%d nodes, load %.1f, latency %v, estimate %.1f of the true cost", nodes, load, latency, float64(estimate)/trueCost)
					oracle := min(r.Offered, most)
					fmt.Fprintf(&table, "%s: %d of %d offered, the limit is %d: %.1f %% of an oracle, %d failed\n",
						name, r.Admitted, r.Offered, most, 100*float64(r.Admitted)/float64(max(oracle, 1)), r.Failed)
					if lacks := callers * max(trueCost-estimate, 0); r.Admitted > most+lacks || r.Admitted == 0 {
						t.Errorf("%s: %d were admitted, the limit is %d", name, r.Admitted, most)
					}
					if _, err := redis.Do(t.Context(), "FLUSHALL"); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	t.Logf("\n%s", table.String())
}

// costsOf runs nodes for a time, and returns their sum, and how long they took together at most.
func costsOf(t *testing.T, w costTask, nodes int, lasts time.Duration) (sum costReport, took time.Duration) {
	t.Helper()
	all := make([]*worker, nodes)
	for i := range all {
		node, err := hire(t.Context(), costNodeTask, w)
		if err != nil {
			t.Fatal(err)
		}
		defer node.end()
		all[i] = node
	}
	for _, node := range all {
		if err := node.ready(); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	for _, node := range all {
		if _, err := io.WriteString(node.tell, begin); err != nil {
			t.Fatal(err)
		}
	}
	if err := pausing.For(t.Context(), lasts); err != nil {
		t.Fatal(err)
	}
	for _, node := range all {
		node.tell.Close()
	}
	for _, node := range all {
		r, err := reportOf[costReport](node)
		if err != nil {
			t.Fatal(err)
		}
		sum.Offered += r.Offered
		sum.Admitted += r.Admitted
		sum.Failed += r.Failed
	}
	return sum, time.Since(start)
}
