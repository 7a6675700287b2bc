package weirgrpc_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirgrpc"
)

// bucketServer refuses calls over a token bucket, and says when to retry.
func bucketServer(t *testing.T, l weir.TokenBucket, latency time.Duration) grpc.UnaryInvoker {
	bucket := must(weir.New(l))(t)
	return func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		<-time.After(latency)
		d := bucket.Take(1)
		if d.Allowed {
			return nil
		}
		return retryIn(codes.ResourceExhausted, d.RetryAfter)
	}
}

// TestClientRetriesShareTokens: of calls that a server with few tokens refuses together, none spends
// its retries on tokens that another call takes. Two calls went at once when the first after a pause
// had succeeded, in any order, and some calls were refused three times.
func TestClientRetriesShareTokens(t *testing.T) {
	for _, latency := range []time.Duration{0, time.Millisecond, 50 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			ours := must(weir.New(weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 1000}))(t)
			for name, limits := range map[string]weirgrpc.Limits{"no limits": nil, "limits": {weirgrpc.One(ours)}} {
				i := weirgrpc.UnaryClient(limits, weirgrpc.Retry(2, say))
				server := bucketServer(t, weir.TokenBucket{Rate: weir.PerSecond(2), Burst: 3}, latency)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				var all sync.WaitGroup
				for n := range 8 {
					all.Go(func() {
						<-time.After(time.Duration(n)) // the order of arrival, by which retries go
						if err := i(ctx, say, nil, nil, nil, server); err != nil {
							t.Errorf("%s, latency %v: %v", name, latency, err)
						}
					})
				}
				all.Wait()
			}
		})
	}
}

// TestClientSaysNotSent: a refusal by a client's own limit does not look like one of the server.
func TestClientSaysNotSent(t *testing.T) {
	ours := must(weir.New(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1}, weir.Named("ours")))(t)
	ours.Take(1)
	broken := func(*weirgrpc.Call) int64 { return -1 }
	none := func(*weirgrpc.Call) (string, bool) { return "", false }
	for want, limit := range map[string]weirgrpc.Limit{
		`the call was not sent: the limit "ours" admits it only after its deadline`: weirgrpc.One(ours),
		"the call was not sent: the cost of this call is not valid":                 weirgrpc.One(ours, weirgrpc.Cost(broken)),
		"the call was not sent: it lacks what it is counted by":                     weirgrpc.Keyed(perHour(t, "keyed", 1), none, weirgrpc.OnMissing(weirgrpc.MissingRefuse)),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		u := &upstream{}
		err := u.sends(ctx, weirgrpc.UnaryClient(weirgrpc.Limits{limit}))
		if got := status.Convert(err).Message(); got != want || len(u.arrivals) != 0 {
			t.Errorf("%q, and the server got %d; want %q", got, len(u.arrivals), want)
		}
	}
}
