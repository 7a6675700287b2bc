// Package weirhttp limits the requests that an HTTP server gets, and those that a client sends. Limit
// is a middleware with one limit, Policy one with the routes and limits of a policy:
//
//	perClient, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, keyed.Options{Name: "per-client"})
//	...
//	handler = weirhttp.Limit(weirhttp.Keyed(perClient), weirhttp.ByIP())(handler)
//
// A middleware is a func(http.Handler) http.Handler, as net/http, chi and most routers use it. A
// refused request gets 429 with Retry-After, and problem+json if the client accepts it. All
// responses have the fields RateLimit and RateLimit-Policy.
//
// Transport is an http.RoundTripper that keeps to limits, and to what servers say about theirs:
//
//	client := &http.Client{Transport: weirhttp.NewTransport(nil, weirhttp.Pace(weirhttp.One(requests), weirhttp.Global()))}
//
// The package also finds the address of a client behind trusted proxies (ClientIP), and sets the
// header fields about limits.
package weirhttp
