package weirgrpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// MiddlewareLimiter is a Limiter of github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit,
// for programs that use its interceptors:
//
//	ratelimit.UnaryServerInterceptor(weirgrpc.ForMiddleware(limits))
//
// These interceptors replace the error, and with it google.rpc.RetryInfo. At a server, the trailer
// grpc-retry-pushback-ms is set all the same. A client's call has no method here: the limits of some
// methods do not apply to it.
type MiddlewareLimiter struct{ s *server }

// ForMiddleware returns limits for the interceptors of go-grpc-middleware. It panics for InFlight,
// PerMessage and PerResponse, which those interceptors cannot carry out.
func ForMiddleware(limits Limits, options ...ServerOption) *MiddlewareLimiter {
	for _, l := range limits {
		if l.places || l.perMessage || l.perAnswer {
			panic("weirgrpc: ForMiddleware of InFlight, PerMessage or PerResponse: use UnaryServer and StreamServer, which know when a call ends")
		}
	}
	return &MiddlewareLimiter{newServer(limits, options)}
}

// Limit returns nil if the call may go on, and otherwise an error with the status of UnaryServer.
func (m *MiddlewareLimiter) Limit(ctx context.Context) error {
	method, atServer := grpc.Method(ctx)
	stay, err := m.s.admission.admit(&Call{Context: ctx, Method: method, client: !atServer}, m.s.of(method).all)
	if err != nil {
		return withTrailer(err, func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) })
	}
	stay.done(0)
	return nil
}
