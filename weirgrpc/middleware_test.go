package weirgrpc_test

import (
	"strings"
	"testing"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirflow/weir/weirgrpc"
)

var _ ratelimit.Limiter = (*weirgrpc.MiddlewareLimiter)(nil)

// TestGoGRPCMiddleware: our limits in the interceptors of go-grpc-middleware, at a server and at a
// client. Keys and methods are those of the call, and the errors say when to retry.
func TestGoGRPCMiddleware(t *testing.T) {
	limits := weirgrpc.Limits{weirgrpc.Keyed(perHour(t, "per-key", 1), weirgrpc.Join(weirgrpc.ByMethod(), weirgrpc.ByMetadata("x-api-key")), weirgrpc.Methods("/test.Echo/*"))}
	l := weirgrpc.ForMiddleware(limits)
	addr := serve(t, &echo{}, grpc.UnaryInterceptor(ratelimit.UnaryServerInterceptor(l)), grpc.StreamInterceptor(ratelimit.StreamServerInterceptor(l)))
	cc := dial(t, addr)
	for _, key := range []string{"ann", "bob"} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", key)
		if err := call(ctx, cc, ""); err != nil {
			t.Error(err)
		}
		if err := exchange(open(ctx, t, cc)); err != nil {
			t.Error(err)
		}
		var trailer metadata.MD
		err := call(ctx, cc, "", grpc.Trailer(&trailer))
		if status.Code(err) != codes.ResourceExhausted || len(trailer["grpc-retry-pushback-ms"]) != 1 || strings.Contains(err.Error(), key) {
			t.Errorf("%v, %v", err, trailer)
		}
		s := open(ctx, t, cc)
		if err := s.RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.ResourceExhausted || len(s.Trailer()["grpc-retry-pushback-ms"]) != 1 {
			t.Errorf("%v, %v", err, s.Trailer())
		}
	}
	ours := weirgrpc.ForMiddleware(weirgrpc.Limits{weirgrpc.Keyed(perHour(t, "outgoing", 1), weirgrpc.ByMetadata("tenant"))})
	cc = dial(t, serve(t, &echo{}), grpc.WithUnaryInterceptor(ratelimit.UnaryClientInterceptor(ours)))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "tenant", "acme")
	if err := call(ctx, cc, ""); err != nil {
		t.Error(err)
	}
	if err := call(ctx, cc, ""); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	if err := call(metadata.AppendToOutgoingContext(t.Context(), "tenant", "other"), cc, ""); err != nil {
		t.Error(err)
	}
}
