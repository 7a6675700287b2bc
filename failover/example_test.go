package failover_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
)

// unplugged is a store that cannot be reached.
type unplugged struct{}

func (unplugged) Do(context.Context, []weir.Charge, []weir.Decision) error {
	return errors.New("connection refused")
}
func (unplugged) Close() error { return nil }

// Each limit names its fallback. A local share starts empty, and refills at a quarter of the rate
// here; with StartFull it would admit 50 at once.
func Example() {
	redis := unplugged{}
	store, err := failover.New(redis, failover.Options{
		OnFailure: failover.Deny,
		ByName:    map[string]failover.OnFailure{"per-user": failover.Local, "search": failover.Allow},
		Nodes:     4,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	for _, name := range []string{"per-user", "search", "login"} {
		limit, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 200}, store, weir.Named(name))
		if err != nil {
			fmt.Println(err)
			return
		}
		d, err := limit.Take(context.Background(), "ann", 1)
		fmt.Println(name, d.Allowed, d.Source, d.Remaining, err)
	}
	// Output:
	// per-user false share 0 <nil>
	// search true allow 200 <nil>
	// login false deny 0 <nil>
}

// What each of four nodes may use while the store is unavailable.
func ExampleShare() {
	fmt.Printf("%+v\n", failover.Share(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 22}, 4))
	fmt.Printf("%+v\n", failover.Share(weir.FixedWindow{Limit: 1000, Align: "day"}, 4))
	// Output:
	// {Rate:5/2s Burst:5 Initial:0}
	// {Limit:250 Window:0s Align:day}
}

// A program can make metrics from each transition.
func ExampleStore_Stats() {
	store, _ := failover.New(unplugged{}, failover.Options{OnFailure: failover.Allow, Probe: time.Minute})
	defer store.Close()
	limit, _ := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 200}, store, weir.Named("api"))
	for range 8 {
		_, _ = limit.Take(context.Background(), "ann", 1)
	}
	s := store.Stats()
	fmt.Println(s.State, "opened", s.Opened, "failed", s.Failed, "skipped", s.Skipped, "allowed", s.Allowed)
	// Output:
	// open opened 1 failed 5 skipped 3 allowed 8
}
