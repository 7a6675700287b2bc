// Package regions has the test of limits that are divided between regions, for the tests of each store.
package regions

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/regions"
)

// Check has two regions with two nodes each divide a limit, and demand that moves from one region to the
// other. Each share has to follow, also for a node that starts later, and the sum has to stay within the
// bound. open returns a Store of its own for a node; stores with different names share no states.
func Check(t *testing.T, open func(t *testing.T, name string) weir.Store) {
	const rate, burst = 100, 25
	limit := weir.TokenBucket{Rate: weir.PerSecond(rate), Burst: burst}
	both := []regions.Region{{Name: "eu", Guaranteed: 10}, {Name: "us", Guaranteed: 10}}
	var mu sync.Mutex
	var admitted []admission
	var busy atomic.Int32 // the region with demand
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var callers sync.WaitGroup
	defer callers.Wait()
	defer end()
	node := func(region int) *regions.Store {
		name := both[region].Name
		s, err := regions.New(open(t, name), open(t, "home"), regions.Options{Here: name, Regions: both, Term: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		l, err := weir.NewShared(limit, s, weir.Named("l"))
		if err != nil {
			t.Fatal(err)
		}
		callers.Go(func() {
			for {
				every := 100 * time.Millisecond
				if int(busy.Load()) == region {
					every = 8 * time.Millisecond
				}
				if pause.For(ctx, every) != nil {
					return
				}
				began := time.Now()
				// A machine that stands still lets calls fail; these are not admitted.
				if d, err := l.Take(ctx, "k", 1); err == nil && d.Allowed {
					mu.Lock()
					admitted = append(admitted, admission{began, time.Now()})
					mu.Unlock()
				}
			}
		})
		return s
	}
	nodes := []*regions.Store{node(0), node(0), node(1), node(1)}
	defer func() {
		for _, s := range nodes {
			t.Logf("%+v", s.Stats())
		}
	}()
	follows := func(region int) func() bool {
		return func() bool {
			for i, s := range nodes {
				now, _ := s.Share("l")
				if here := i/2 == region; here && now < 800 || !here && now > 200 {
					return false
				}
			}
			return true
		}
	}
	servers.Poll(t, "the first region has the share", follows(0))
	busy.Store(1)
	servers.Poll(t, "the second region has the share", follows(1))
	late := node(1)
	servers.Poll(t, "a node that starts has the share of its region", func() bool {
		now, _ := late.Share("l")
		return now >= 800
	})
	end()
	callers.Wait()
	slices.SortFunc(admitted, func(a, b admission) int { return a.began.Compare(b.began) })
	for i := range admitted {
		latest := admitted[i].ended
		for j := i; j < len(admitted); j++ {
			if e := admitted[j].ended; e.After(latest) {
				latest = e
			}
			if bound := burst + rate*(latest.Sub(admitted[i].began)+10*time.Millisecond).Seconds(); float64(j-i+1) > bound {
				t.Fatalf("%d admitted in %v, and at most %.0f may be", j-i+1, latest.Sub(admitted[i].began), bound)
			}
		}
	}
	t.Logf("%d admitted", len(admitted))
}

// An admission is a call that was admitted at some time between these.
type admission struct{ began, ended time.Time }
