package weirclient_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/weirclient"
)

// Ask about limits of the server's policy, by their names.
func Example() {
	c, err := weirclient.New("http://127.0.0.1:8082", weirclient.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	a, err := c.Take(context.Background(), weirclient.Ask{Limit: "per-user", Key: []string{"ann"}, Cost: 5})
	switch {
	case err != nil:
		log.Fatal(err) // no decision
	case !a.Allowed:
		fmt.Println("refused by", a.Limit, "for", a.RetryAfter)
	default:
		fmt.Println("admitted,", a.Limits[0].Remaining, "left")
	}
}

// Charge an estimate, and settle it when the cost is known.
func ExampleClient_Reserve() {
	c, err := weirclient.New("http://127.0.0.1:8082", weirclient.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()
	r, err := c.Reserve(ctx, weirclient.ReserveOptions{Hold: 5 * time.Minute}, weirclient.Ask{Limit: "tokens", Key: []string{"ann"}, Cost: 4000})
	if err != nil || !r.Allowed {
		return
	}
	used := int64(512) // what the work has cost
	if err := r.Settle(ctx, used); err != nil {
		log.Print(err)
	}
}

// Keep limits of this program in the service, with a fallback while it is unavailable.
func ExampleClient_Store() {
	c, err := weirclient.New("http://127.0.0.1:8082", weirclient.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	store, err := failover.New(c.Store(), failover.Options{OnFailure: failover.Local, Nodes: 4, Deadline: 50 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	perUser, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, store, weir.Named("checkout/per-user"))
	if err != nil {
		log.Fatal(err)
	}
	d, err := perUser.Take(context.Background(), "ann", 1)
	fmt.Println(d.Allowed, d.Source, err)
}
