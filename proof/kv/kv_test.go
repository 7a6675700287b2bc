package kv

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirkv"
	"github.com/weirflow/weir/weirtest"
)

// TestConforms compares the store over each product with the reference model. What a Store is exact in beyond
// what a value remembers is tested in weirkv.
func TestConforms(t *testing.T) {
	raced.Skip(t)
	each(t, func(t *testing.T, p *product) {
		weirtest.Conform(t, weirtest.Subject{Seed: seeds.Seed(), Walks: 2, Steps: 25, Tick: time.Microsecond, Limits: weirtest.StoredLimits(), Open: func(l weir.Limit, c *weirtest.Clock) (weirtest.Taker, error) {
			// a machine may stand still while the clock of the limits does: keys have to outlive that
			s, end, err := p.open(p.url, weirkv.Options{Prefix: prefix(), Clock: c.Now, Skew: math.MaxInt64, Grace: time.Hour, Timeout: servers.Patience})
			if err != nil {
				return nil, err
			}
			return closing{weirtest.Stored(s, l), end}, nil
		}})
	})
}

// closing closes the connection, too.
type closing struct {
	weirtest.Taker
	end func() error
}

// Close implements io.Closer.
func (c closing) Close() error { return c.end() }

// TestNodes: several nodes that charge one key and many keys at the same time admit exactly what the limits
// allow, by single charges and by groups.
func TestNodes(t *testing.T) {
	each(t, func(t *testing.T, p *product) {
		const nodes, callers, calls, burst = 4, 8, 15, 100
		o := weirkv.Options{Prefix: prefix(), Timeout: time.Minute, Attempts: 1 << 20}
		limit := weir.TokenBucket{Rate: weir.PerHour(1), Burst: burst}
		var hot, groups atomic.Int64
		var wg sync.WaitGroup
		for n := range nodes {
			s := p.opened(t, o)
			for c := range callers {
				wg.Go(func() {
					for i := range calls {
						batch := []weir.Charge{{Name: "hot", Key: "k", Limit: limit, Cost: 1},
							{Name: "other", Key: fmt.Sprint(n, c, i), Limit: limit, Cost: 2, Group: 1}, {Name: "grouped", Key: "k", Limit: limit, Cost: 1, Group: 1}}
						out := make([]weir.Decision, 3)
						if i%5 > 0 {
							batch = batch[:1]
						}
						if err := s.Do(t.Context(), batch, out); err != nil {
							t.Error(err)
							return
						}
						if out[0].Allowed {
							hot.Add(1)
						}
						if out[1].Allowed && out[2].Allowed {
							groups.Add(1)
						}
					}
				})
			}
		}
		wg.Wait()
		if hot.Load() != burst || groups.Load() != min(burst, nodes*callers*calls/5) {
			t.Errorf("%d admitted, %d groups", hot.Load(), groups.Load())
		}
	})
}

// TestManyOnce: a settlement that is repeated counts once, however many others the key had meanwhile.
func TestManyOnce(t *testing.T) {
	each(t, func(t *testing.T, p *product) {
		o := weirkv.Options{Prefix: prefix(), Timeout: servers.Patience, Attempts: 1 << 20}
		a, b := p.opened(t, o), p.opened(t, o)
		limit := weir.FixedWindow{Limit: 1000, Window: 1000 * time.Hour, Align: weir.AlignFirst}
		const n = 400
		var all []weir.Charge
		for i := range n {
			all = append(all, weir.Charge{Name: "l", Key: "k", Limit: limit, Op: weir.OpSettle, Cost: 1, Once: fmt.Sprint(i), OnceFor: time.Hour})
		}
		out := make([]weir.Decision, n)
		for i := 0; i < n; i += 50 {
			if err := []weir.Store{a, b}[i/50%2].Do(t.Context(), all[i:i+50], out); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range []weir.Store{a, b} {
			if err := s.Do(t.Context(), all, out); err != nil || out[n-1].Remaining != 1000-n {
				t.Errorf("%+v after repeats, want %d left: %v", out[n-1], 1000-n, err)
			}
		}
	})
}

// TestRestart: while the server is killed and started again, each charge that was admitted was made once;
// where the server keeps its data, nothing is lost.
func TestRestart(t *testing.T) {
	each(t, func(t *testing.T, p *product) {
		const burst = 800_000
		limit := weir.TokenBucket{Rate: weir.PerHour(1), Burst: burst}
		s := p.opened(t, weirkv.Options{Prefix: prefix(), Timeout: 500 * time.Millisecond})
		var admitted, unknown atomic.Int64
		var wg sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for range 8 {
			wg.Go(func() {
				for ctx.Err() == nil {
					batch, out := []weir.Charge{{Name: "l", Key: "k", Limit: limit, Cost: 1}}, make([]weir.Decision, 1)
					if err := s.Do(t.Context(), batch, out); err != nil {
						unknown.Add(1)
						<-time.After(time.Millisecond)
					} else if out[0].Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		servers.Poll(t, "charges before", func() bool { return admitted.Load() > 100 })
		p.restart(t)
		before := admitted.Load()
		servers.Poll(t, "charges after", func() bool { return admitted.Load() > before+100 })
		stop()
		wg.Wait()
		batch, out := []weir.Charge{{Name: "l", Key: "k", Limit: limit, Op: weir.OpPeek}}, make([]weir.Decision, 1)
		servers.Poll(t, "a call in time", func() bool { return s.Do(t.Context(), batch, out) == nil })
		charged := burst - out[0].Remaining
		if p.keeps && (charged < admitted.Load() || charged > admitted.Load()+unknown.Load()) || charged < 100 || charged > admitted.Load()+unknown.Load() {
			t.Errorf("%d were admitted, %d failed, and %d were charged", admitted.Load(), unknown.Load(), charged)
		}
	})
}

// TestUnreachable: where nothing listens, the errors of calls that run into their deadline, and of Ready without
// waiting, as the status of a gateway has it, say so.
func TestUnreachable(t *testing.T) {
	for url, open := range map[string]func(url string, o weirkv.Options) (*weirkv.Store, func() error, error){
		"memcached://127.0.0.1:1": openMemcached, "etcd://127.0.0.1:1": openEtcd, "nats://127.0.0.1:1": openNATS, "mysql://weir@127.0.0.1:1/weir": openMySQL,
	} {
		s, end, err := open(url, weirkv.Options{Prefix: prefix()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = end() })
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		servers.Poll(t, url, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
			defer cancel()
			charge := weir.Charge{Name: "l", Key: "k", Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1}, Cost: 1}
			if err = s.Do(ctx, []weir.Charge{charge}, make([]weir.Decision, 1)); err == nil || errors.Is(err, weir.ErrCharge) || s.Connected() {
				t.Fatal(err, s.Connected())
			}
			ready := s.Ready(gone)
			return strings.Contains(err.Error(), "connection refused") && errors.Is(err, context.DeadlineExceeded) && strings.Contains(fmt.Sprint(ready), "connection refused")
		})
	}
}

// TestAbove: failover and leases work over each product: a lease makes most decisions in the process, and
// without the server the fallback decides, until the server is back.
func TestAbove(t *testing.T) {
	each(t, func(t *testing.T, p *product) {
		kv := p.opened(t, weirkv.Options{Prefix: prefix()})
		leased, err := lease.New(kv, lease.Options{Lifetime: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		over, err := failover.New(leased, failover.Options{Deadline: 250 * time.Millisecond, Direct: true, Nodes: 1, OnFailure: failover.Local})
		if err != nil {
			t.Fatal(err)
		}
		defer over.Close()
		l, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(10_000), Burst: 10_000}, over, weir.Named("l"))
		if err != nil {
			t.Fatal(err)
		}
		counts := map[weir.Source]int{}
		take := func() weir.Source {
			d, err := l.Take(t.Context(), "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			counts[d.Source]++
			return d.Source
		}
		// If the machine stands still, the fallback decides for a while.
		servers.Poll(t, "decisions from leases", func() bool {
			for range 3000 {
				take()
			}
			return counts[weir.SourceLease] >= 1500
		})
		if tried, _ := kv.Writes(); int(tried) > (counts[weir.SourceLease]+counts[weir.SourceStore])/2 {
			t.Errorf("%d writes for decisions from %v", tried, counts)
		}
		p.restart(t)
		servers.Poll(t, "the store is back", func() bool { s := take(); return s == weir.SourceLease || s == weir.SourceStore })
	})
}
