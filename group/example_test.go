package group_test

import (
	"context"
	"fmt"
	"log"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/group"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

// The code of docs/go.md is that of this example: see TestGoPageShowsTheExamples in weirhttp.

func ExampleTake() {
	ctx, tenant, estimate := context.Background(), "acme", int64(4000)
	store := weir.Store(weirtest.NewStore(func() int64 { return 0 }))
	requests, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, keyed.Options{Name: "requests"})
	if err != nil {
		log.Fatal(err)
	}
	workers, err := weir.NewConcurrency(weir.Concurrency{Limit: 8}, weir.Named("workers"))
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerMinute(100_000), Burst: 10_000}, store, weir.Named("tokens"))
	if err != nil {
		log.Fatal(err)
	}
	work := func() (used int64) { return 1200 }
	do := func() error {
		r, d, err := group.Take(ctx,
			group.Keyed(requests, tenant, 1),
			group.InFlight(workers, 1),
			group.Shared(tokens, tenant, estimate))
		switch {
		case err != nil: // a store is unavailable
			return err
		case !d.Allowed:
			return &weir.LimitedError{Decision: d}
		}
		defer r.Done(weir.OK)
		used := work()
		return r.Settle(ctx, 1, 1, used)
	}
	//
	for range 7 {
		if err := do(); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// weir: limited by "tokens": retry in 720ms
}
