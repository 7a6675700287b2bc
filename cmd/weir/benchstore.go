package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	lib "github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/stores"
)

// benchCall is how long a store takes.
type benchCall struct {
	Rows []storeRow `json:"rows"`
}

// storeRow is what some callers at once get of a store.
type storeRow struct {
	Name      string  `json:"name"`
	P50       float64 `json:"p50_seconds"`
	P99       float64 `json:"p99_seconds"`
	PerSecond float64 `json:"per_second"`
}

const (
	storeConnect = 5 * time.Second // until a store must be connected
	storeCalls   = 2000            // at least so many calls are measured, and at most twentyfold
	manyKeys     = 10_000
)

// measureStore measures a token bucket in a store: one caller, and 64 callers on one key and on many.
func measureStore(ctx context.Context, o benchOptions) (*benchCall, error) {
	s, err := stores.Open(policy.Store{Name: "bench", URL: o.Store}, nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	ready, cancel := context.WithTimeout(ctx, storeConnect)
	defer cancel()
	if err := s.Ready(ready); err != nil {
		return nil, fmt.Errorf("the store is not connected: %w", err)
	}
	// the bucket is full again after a nanosecond, so its keys expire as soon as the store forgets repeated calls
	l, err := lib.NewShared(lib.TokenBucket{Rate: lib.PerSecond(1_000_000_000), Burst: 1 << 40}, s, lib.Named("weir-bench"))
	if err != nil {
		return nil, err
	}
	result := &benchCall{}
	for _, b := range []struct {
		name          string
		callers, keys int
	}{
		{"one caller", 1, 1},
		{"64 callers, one key", 64, 1},
		{fmt.Sprintf("64 callers, %s keys", thousands(manyKeys)), 64, manyKeys},
	} {
		row, err := measureCalls(ctx, o, l, b.callers, b.keys)
		if err != nil {
			return nil, err
		}
		row.Name = b.name
		result.Rows = append(result.Rows, *row)
	}
	return result, nil
}

// measureCalls has callers charge keys in turn for the time of all rounds.
func measureCalls(ctx context.Context, o benchOptions, l *lib.Shared, callers, keys int) (*storeRow, error) {
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	took := make([][]float64, callers)
	most := time.Duration(o.Rounds) * o.Round
	start := time.Now()
	for c := range callers {
		all.Go(func() {
			for i := 0; failed.Load() == nil && i < 20*storeCalls/callers && (i < storeCalls/callers || time.Since(start) < most); i++ {
				before := time.Now()
				if _, err := l.Take(ctx, strconv.Itoa((c+i*callers)%keys), 1); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				took[c] = append(took[c], time.Since(before).Seconds())
			}
		})
	}
	all.Wait()
	elapsed := time.Since(start).Seconds()
	if err := failed.Load(); err != nil {
		return nil, fmt.Errorf("the store: %w", *err)
	}
	every := slices.Concat(took...)
	slices.Sort(every)
	return &storeRow{P50: every[len(every)/2], P99: every[len(every)*99/100], PerSecond: float64(len(every)) / elapsed}, nil
}
