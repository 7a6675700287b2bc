package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirflow/weir"
)

// A gate is the limiter at which a crowd waits: Weir's or x/time's.
type gate struct {
	wait func(context.Context) error
	// ahead charges n at once, and returns the delay of the last one.
	ahead func(n int) (time.Duration, bool)
}

// Subjects of the jobs.
const (
	subjectWeir = "weir"
	subjectPeer = "x/time"
	subjectBare = "goroutine" // blocked, without a limiter
)

// newGate returns a full bucket that gets one token each per.
func newGate(subject string, per time.Duration, burst int) (gate, error) {
	switch subject {
	case subjectWeir:
		l, err := weir.New(weir.TokenBucket{Rate: weir.Rate{N: 1, Per: per}, Burst: int64(burst)})
		if err != nil {
			return gate{}, err
		}
		return gate{
			wait: func(ctx context.Context) error { return l.Wait(ctx, 1) },
			ahead: func(n int) (time.Duration, bool) {
				r, ok := l.Reserve(int64(n), -1)
				return r.Delay(), ok
			},
		}, nil
	case subjectPeer:
		l := rate.NewLimiter(rate.Every(per), burst)
		return gate{
			wait: l.Wait,
			ahead: func(n int) (time.Duration, bool) {
				now := time.Now()
				r := l.ReserveN(now, n)
				return r.DelayFrom(now), r.OK()
			},
		}, nil
	}
	return gate{}, fmt.Errorf("there is no limiter %q", subject)
}

// A crowd is a group of goroutines that all wait.
type crowd struct {
	done     sync.WaitGroup
	entered  atomic.Int64
	returned atomic.Int64
	failed   atomic.Int64
}

// start starts n goroutines that call a function with their numbers. It returns when all of them
// are blocked in it.
func (c *crowd) start(n int, each func(i int) error) {
	for i := range n {
		c.done.Go(func() {
			c.entered.Add(1)
			if each(i) != nil {
				c.failed.Add(1)
			}
			c.returned.Add(1)
		})
	}
	// three times in a row, since a goroutine may be between two places where it blocks
	for quiet := 0; quiet < 3; quiet++ {
		if c.entered.Load() < int64(n) || busy() {
			quiet = -1
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// end waits for all of them.
func (c *crowd) end() error {
	c.done.Wait()
	if n := c.failed.Load(); n > 0 {
		return fmt.Errorf("%d of the waits failed", n)
	}
	return nil
}

// busy reports whether any other goroutine runs or is runnable.
func busy() bool {
	states := []metrics.Sample{{Name: "/sched/goroutines/running:goroutines"}, {Name: "/sched/goroutines/runnable:goroutines"}}
	metrics.Read(states)
	return states[0].Value.Uint64()+states[1].Value.Uint64() > 1
}

// A footprint is the memory of this process as the runtime counts it, in bytes.
type footprint struct{ heap, stack, sys float64 }

// footprintNow collects the garbage first.
func footprintNow() footprint {
	runtime.GC()
	runtime.GC() // the second collection frees what the first one found unused
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{float64(m.HeapAlloc), float64(m.StackInuse), float64(m.Sys)}
}

// since returns how much each of n goroutines has added since before.
func (f footprint) since(before footprint, n int) values {
	each := float64(n)
	return values{
		"heap":  (f.heap - before.heap) / each,
		"stack": (f.stack - before.stack) / each,
		"sys":   (f.sys - before.sys) / each,
	}
}
