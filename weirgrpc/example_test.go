package weirgrpc_test

import (
	"fmt"
	"log"
	"net/netip"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirgrpc"
)

// The code of docs/go.md is that of these examples: see TestGoPageShowsTheExamples in weirhttp.

func ExampleUnaryServer() {
	perClient, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, keyed.Options{Name: "per-client"})
	if err != nil {
		log.Fatal(err)
	}
	checkouts, err := keyed.NewConcurrency[string](weir.Concurrency{Limit: 100}, keyed.Options{Name: "checkouts"})
	if err != nil {
		log.Fatal(err)
	}
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	limits := weirgrpc.Limits{
		weirgrpc.Keyed(perClient, weirgrpc.ByIP(proxies...), weirgrpc.Except("/grpc.health.v1.Health/*")),
		weirgrpc.InFlight(checkouts, weirgrpc.Global(), weirgrpc.Methods("/shop.Cart/Checkout")),
	}
	server := grpc.NewServer(
		grpc.UnaryInterceptor(weirgrpc.UnaryServer(limits, weirgrpc.Wait(time.Second))),
		grpc.StreamInterceptor(weirgrpc.StreamServer(limits)))
	//
	server.Stop()
	// Output:
}

func ExampleUnaryClient() {
	target := "127.0.0.1:1"
	credentials := grpc.WithTransportCredentials(insecure.NewCredentials())
	ours, err := weir.New(weir.TokenBucket{Rate: weir.PerSecond(50), Burst: 10}, weir.Named("ours"))
	if err != nil {
		log.Fatal(err)
	}
	limits := weirgrpc.Limits{weirgrpc.One(ours)}
	client, err := grpc.NewClient(target, credentials,
		grpc.WithUnaryInterceptor(weirgrpc.UnaryClient(limits, weirgrpc.Retry(2, "/shop.Cart/Get"))),
		grpc.WithStreamInterceptor(weirgrpc.StreamClient(limits)))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	//
	fmt.Println(client.Target())
	// Output:
	// 127.0.0.1:1
}

func ExampleHedge() {
	target := "127.0.0.1:1"
	credentials := grpc.WithTransportCredentials(insecure.NewCredentials())
	overload := []weirgrpc.ClientOption{
		weirgrpc.Throttle(2),
		weirgrpc.Adapt(adaptive.Options{}),
		weirgrpc.Hedge(weirgrpc.Hedging{}, "/shop.Cart/Get"),
	}
	client, err := grpc.NewClient(target, credentials, grpc.WithUnaryInterceptor(weirgrpc.UnaryClient(nil, overload...)))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	//
	fmt.Println(client.Target())
	// Output:
	// 127.0.0.1:1
}

func ExampleForMiddleware() {
	perClient, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, keyed.Options{Name: "per-client"})
	if err != nil {
		log.Fatal(err)
	}
	limits := weirgrpc.Limits{weirgrpc.Keyed(perClient, weirgrpc.ByIP())}
	limit := grpc.UnaryInterceptor(ratelimit.UnaryServerInterceptor(weirgrpc.ForMiddleware(limits)))
	//
	grpc.NewServer(limit).Stop()
	// Output:
}
