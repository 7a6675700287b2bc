package lease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/weirtest"
)

// A hot key needs few round trips: tokens are leased ahead of demand.
func Example() {
	store := weirtest.NewStore(nil) // a program would use one of weirredis
	leased, err := lease.New(store, lease.Options{Lifetime: 500 * time.Millisecond, Timeout: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	limit := weir.FixedWindow{Limit: 10_000, Window: 24 * time.Hour, Align: weir.AlignFirst}
	perItem, err := weir.NewShared(limit, leased, weir.Named("per-item"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	here := 0
	for range 1000 {
		d, err := perItem.Take(ctx, "item-7", 1)
		if err != nil || !d.Allowed {
			fmt.Println(d, err)
			return
		}
		if d.Source == weir.SourceLease {
			here++
		}
	}
	if err := leased.Close(); err != nil { // unused tokens are returned
		fmt.Println(err)
		return
	}
	exact, err := weir.NewShared(limit, store, weir.Named("per-item"))
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := exact.Peek(ctx, "item-7", 1)
	fmt.Println(here > 900, d.Remaining, err)
	// Output: true 9000 <nil>
}

func ExampleLeasable() {
	fmt.Println(lease.Leasable(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}))
	fmt.Println(errors.Is(lease.Leasable(weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 20}), lease.ErrLimit))
	// Output:
	// <nil>
	// true
}
