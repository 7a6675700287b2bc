package regions_test

import (
	"context"
	"fmt"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/regions"
	"github.com/weirflow/weir/weirtest"
)

// A region has its guaranteed part at once, and more where its demand is, from the next Term on.
func Example() {
	here := weirtest.NewStore(nil) // a program would use one of weirredis, the nearest
	home := weirtest.NewStore(nil) // and for this the same one in all regions
	store, err := regions.New(here, home, regions.Options{
		Here:    "eu",
		Regions: []regions.Region{{Name: "eu", Guaranteed: 10}, {Name: "us", Guaranteed: 10}, {Name: "ap", Guaranteed: 10}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	api, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerMinute(600), Burst: 60}, store, weir.Named("api"))
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := api.Take(context.Background(), "customer-7", 1)
	now, _ := store.Share("api")
	fmt.Println(d.Allowed, d.Limit, now, err)
	fmt.Println(store.Close())
	// Output:
	// true 20 100 <nil>
	// <nil>
}
