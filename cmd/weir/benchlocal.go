package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lib "github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// benchRow is how long one limiter takes.
type benchRow struct {
	Name     string  `json:"name"`
	Alone    float64 `json:"ns"`      // by one goroutine
	Together float64 `json:"ns_busy"` // by a goroutine for each thread, all at this limiter: the time divided by their decisions
}

// benchKeys is how long a table of keys takes.
type benchKeys struct {
	Keys     int     `json:"keys"`
	Alone    float64 `json:"ns"`
	Together float64 `json:"ns_busy"`
	Bytes    float64 `json:"bytes_per_key,omitempty"` // memory of the process; 0 where the system does not say
}

// loop makes n decisions by one goroutine, which has the number g.
type loop func(g, n int)

// measureLoop returns the medians of a loop by one goroutine and by all threads, in ns for each decision.
func measureLoop(ctx context.Context, o benchOptions, do loop) (alone, together float64, err error) {
	for _, k := range []int{1, runtime.GOMAXPROCS(0)} {
		n := 1000
		for d := timed(k, n, do); d < o.Round && n < 1<<34; d = timed(k, n, do) { // as many decisions as take a round
			n = max(2*n, int(float64(n)*min(float64(o.Round)/float64(max(d, 1)), 100)))
			if err := ctx.Err(); err != nil {
				return 0, 0, err
			}
		}
		figures := make([]float64, o.Rounds)
		for i := range figures {
			if err := ctx.Err(); err != nil {
				return 0, 0, err
			}
			figures[i] = float64(timed(k, n, do)) / float64(k*n)
		}
		if k == 1 {
			alone = median(figures)
		}
		together = median(figures)
	}
	return alone, together, nil
}

// timed returns how long k goroutines take for n decisions each, from the time at which all are there.
func timed(k, n int, do loop) time.Duration {
	if k == 1 {
		start := time.Now()
		do(0, n)
		return time.Since(start)
	}
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	ready.Add(k)
	for g := range k {
		done.Go(func() {
			ready.Done()
			<-begin
			do(g, n)
		})
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	done.Wait()
	return time.Since(start)
}

// benchRate admits whatever one machine can ask for.
var benchRate = lib.PerSecond(1_000_000_000)

// benchLimits are limits that admit every decision of a measurement, and one that refuses all.
func benchLimits() []struct {
	name     string
	limit    lib.Limit
	admitted bool
} {
	const most = 1 << 30
	return []struct {
		name     string
		limit    lib.Limit
		admitted bool
	}{
		{"TokenBucket", lib.TokenBucket{Rate: benchRate, Burst: most}, true},
		{"TokenBucket, refused", lib.TokenBucket{Rate: lib.Rate{N: 1, Per: 24 * time.Hour}, Burst: 1}, false},
		{"LeakyBucket, as a meter", lib.LeakyBucket{Rate: benchRate, Queue: most, DelayAfter: most}, true},
		{"IntervalBucket", lib.IntervalBucket{Burst: most, Refill: most, Every: time.Second}, true},
		{"FixedWindow", lib.FixedWindow{Limit: most, Window: 100 * time.Millisecond}, true},
		{"SlidingWindow, 10 slots", lib.SlidingWindow{Limit: most, Window: time.Second, Slots: 10}, true},
		{"SlidingCounter", lib.SlidingCounter{Limit: most / 10, Window: 100 * time.Millisecond}, true},
		{"SmoothBursty", lib.SmoothBursty{Rate: benchRate, MaxBurst: time.Second}, true},
	}
}

// measureLimiters measures the floor, which is a reading of the clock and a compare-and-swap, and one limiter
// of each algorithm.
func measureLimiters(ctx context.Context, o benchOptions) ([]benchRow, error) {
	var word atomic.Int64
	base := time.Now()
	floor := func(_, n int) {
		for range n {
			old := word.Load()
			word.CompareAndSwap(old, old+int64(time.Since(base)&1))
		}
	}
	alone, together, err := measureLoop(ctx, o, floor)
	if err != nil {
		return nil, err
	}
	rows := []benchRow{{"(clock and compare-and-swap)", alone, together}}
	for _, b := range benchLimits() {
		l, err := lib.New(b.limit, lib.Named("weir-bench"))
		if err != nil {
			return nil, err
		}
		if !b.admitted {
			l.Take(1)
		}
		var wrong atomic.Bool
		row := benchRow{Name: b.name}
		row.Alone, row.Together, err = measureLoop(ctx, o, func(_, n int) {
			for range n {
				if l.Take(1).Allowed != b.admitted {
					wrong.Store(true)
				}
			}
		})
		if err != nil {
			return nil, err
		}
		if wrong.Load() {
			return nil, fmt.Errorf("bench: %s did not decide as it should have: the figure would mean nothing", b.name)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// measureKeyed measures a table in which all keys are known, each used as often as the others.
func measureKeyed(ctx context.Context, o benchOptions) (*benchKeys, error) {
	names := make([]string, o.Keys)
	for i := range names {
		names[i] = "client-" + strconv.Itoa(i)
	}
	before := residentBytes()
	l, err := keyed.New[string](lib.TokenBucket{Rate: lib.PerMinute(1), Burst: 1_000_000}, keyed.Options{MaxKeys: o.Keys + o.Keys/20 + 1})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	for i, name := range names {
		if i%4096 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		l.Take(name, 1)
	}
	k := &benchKeys{Keys: o.Keys, Bytes: max(residentBytes()-before, 0) / float64(o.Keys)}
	k.Alone, k.Together, err = measureLoop(ctx, o, func(g, n int) {
		rng := rand.New(rand.NewPCG(uint64(g), 1))
		for range n {
			l.Take(names[rng.IntN(len(names))], 1)
		}
	})
	return k, err
}

// residentBytes is the memory of this process, and 0 where the system does not say.
func residentBytes() float64 {
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	if fields := strings.Fields(string(text)); len(fields) > 1 {
		pages, _ := strconv.ParseFloat(fields[1], 64)
		return pages * float64(os.Getpagesize())
	}
	return 0
}
