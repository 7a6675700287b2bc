package weirhttp_test

import (
	"log"
	"log/slog"
	"net/netip"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirhttp"
)

func ExamplePolicy() {
	engine, err := policy.New(policy.Policy{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Limits: []policy.Limit{
			{Name: "per-user", Key: []string{"header.x-user"}, Limit: weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}},
			{Name: "per-client", Key: []string{"client.ip"}, Limit: weir.TokenBucket{Rate: weir.PerSecond(50), Burst: 100}, Log: "warn"},
			{Name: "checkouts", Limit: weir.Concurrency{Limit: 100, Queue: 50}},
		},
		Routes: []policy.Route{
			{Match: "POST /checkout/", Limits: []string{"per-user", "per-client", "checkouts"}, Refused: policy.Refused{Status: 503}},
			{Match: "/", Limits: []string{"per-client"}},
		},
	}, policy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	limit, err := weirhttp.Policy(engine, weirhttp.Log(slog.Default()))
	if err != nil {
		log.Fatal(err)
	}
	//
	show(limit(handler))
	// Output:
	// 404, RateLimit: "per-client";r=99;t=1, Retry-After:
}
