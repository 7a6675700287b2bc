// Package weirgrpc limits the calls of gRPC servers and clients.
//
// A server refuses calls over its limits with RESOURCE_EXHAUSTED, and says when to retry:
//
//	limits := weirgrpc.Limits{
//		weirgrpc.Keyed(perClient, weirgrpc.ByIP()),
//		weirgrpc.InFlight(checkouts, weirgrpc.Global(), weirgrpc.Methods("/shop.Cart/Checkout")),
//	}
//	server := grpc.NewServer(
//		grpc.UnaryInterceptor(weirgrpc.UnaryServer(limits)),
//		grpc.StreamInterceptor(weirgrpc.StreamServer(limits)))
//
// The limits that apply to a call are charged together or not at all, as package group does it. A
// refused call never reaches its handler, and is not charged.
//
// A client keeps within limits of its own, and obeys what servers say:
//
//	client, err := grpc.NewClient(target,
//		grpc.WithUnaryInterceptor(weirgrpc.UnaryClient(limits, weirgrpc.Retry(2, "/shop.Cart/*"))),
//		grpc.WithStreamInterceptor(weirgrpc.StreamClient(limits)))
//
// Throttle, Adapt and Hedge are options of clients, for overloaded servers and for servers with a few late
// responses.
//
// connect-go serves HTTP: use package weirhttp for it.
package weirgrpc
