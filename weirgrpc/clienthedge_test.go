package weirgrpc_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirgrpc"
)

// takes ends after a time with a result, unless the call ends before.
func takes(ctx context.Context, d time.Duration, code codes.Code) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	return status.Error(code, "")
}

// TestClientHedgeCutsTheTail: of a server of which 2 % of the responses take a hundred times as long,
// hardly a caller notices, for at most 5 % more calls.
func TestClientHedgeCutsTheTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := seeds.Of(t.Name())
		var sent atomic.Int64
		server := invoker(func(ctx context.Context, reply *wrapperspb.StringValue) error {
			sent.Add(1)
			d := 10*time.Millisecond + time.Duration(rng.Int64N(int64(5*time.Millisecond)))
			if rng.IntN(50) == 0 {
				d = time.Second
			}
			reply.Value = "hello"
			return takes(ctx, d, codes.OK)
		})
		var counts weirgrpc.Counts
		i := weirgrpc.UnaryClient(nil, weirgrpc.Hedge(weirgrpc.Hedging{}, say), weirgrpc.CountIn(&counts))
		late := 0
		for n := range 10_000 {
			began := time.Now()
			if text, err := server.sends(t.Context(), i, say); err != nil || text != "hello" {
				t.Fatal(text, err)
			}
			if time.Since(began) > 100*time.Millisecond && n >= 1000 {
				late++
			}
		}
		synctest.Wait()
		if t.Logf("%d of 9000 are late, %d are sent", late, sent.Load()); late > 20 || sent.Load() > 10_500 || sent.Load() < 10_120 || counts.Hedged.Load() != uint64(sent.Load()-10_000) || counts.HedgesWon.Load() < 120 {
			t.Errorf("%d of 9000 are late, %d are sent", late, sent.Load())
		}
	})
}

// TestClientHedgeResults: the caller gets the first good result, and otherwise that of the first
// attempt. The other attempt is cancelled, and no place is held afterwards.
func TestClientHedgeResults(t *testing.T) {
	type attempt struct {
		d    time.Duration
		code codes.Code
	}
	for name, c := range map[string]struct {
		first, second attempt // the second is made after 100 ms
		want          string
		code          codes.Code
		took          time.Duration
	}{
		"the first in time":      {attempt{50, codes.OK}, attempt{}, "first", codes.OK, 50},
		"the first is late":      {attempt{1000, codes.OK}, attempt{20, codes.OK}, "second", codes.OK, 120},
		"the second is refused":  {attempt{1000, codes.OK}, attempt{20, codes.Unavailable}, "first", codes.OK, 1000},
		"the first is refused":   {attempt{110, codes.Unavailable}, attempt{500, codes.OK}, "second", codes.OK, 600},
		"both are":               {attempt{110, codes.Internal}, attempt{500, codes.Unavailable}, "first", codes.Internal, 600},
		"not found is an answer": {attempt{1000, codes.OK}, attempt{20, codes.NotFound}, "second", codes.NotFound, 120},
	} {
		synctest.Test(t, func(t *testing.T) {
			var n atomic.Int64
			places, _ := keyed.NewConcurrency[string](weir.Concurrency{Limit: 10}, keyed.Options{})
			bucket := must(weir.New(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 100}))(t)
			i := weirgrpc.UnaryClient(weirgrpc.Limits{weirgrpc.InFlight(places, weirgrpc.Global()), weirgrpc.One(bucket)},
				weirgrpc.Hedge(weirgrpc.Hedging{Delay: 100 * time.Millisecond}, "/test.Echo/*"))
			began := time.Now()
			text, err := invoker(func(ctx context.Context, reply *wrapperspb.StringValue) error {
				of, text := c.first, "first"
				if n.Add(1) == 2 {
					of, text = c.second, "second"
				}
				reply.Value = text
				return takes(ctx, of.d*time.Millisecond, of.code)
			}).sends(t.Context(), i, say)
			if took := time.Since(began); text != c.want || status.Code(err) != c.code || took != c.took*time.Millisecond {
				t.Errorf("%s: %q, %v after %v", name, text, err, took)
			}
			synctest.Wait()
			attempts := int64(2)
			if c.took <= 100 {
				attempts = 1
			}
			if left := bucket.Peek(0).Remaining; n.Load() != attempts || left != 100-attempts || places.Holding("") != 0 {
				t.Errorf("%s: %d attempts, %d remain, %d places are held", name, n.Load(), left, places.Holding(""))
			}
		})
	}
}

// TestClientHedgeOnlyWhen: there is no second attempt of other methods, none while the server holds back
// calls or has done so lately, and none that a limit does not admit.
func TestClientHedgeOnlyWhen(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		rest   time.Duration // after a pushback
		limits weirgrpc.Limits
		want   int64
	}{
		"named":             {method: say, want: 2},
		"not named":         {method: talk, want: 1},
		"after a pushback":  {method: say, rest: 15 * time.Second, want: 1},
		"long after it":     {method: say, rest: time.Minute, want: 2},
		"beyond our limits": {method: say, limits: weirgrpc.Limits{weirgrpc.One(must(weir.New(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}))(t))}, want: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			i := weirgrpc.UnaryClient(c.limits, weirgrpc.Hedge(weirgrpc.Hedging{Delay: 100 * time.Millisecond}, say))
			if c.rest > 0 {
				refuses := invoker(func(context.Context, *wrapperspb.StringValue) error { return retryIn(codes.Unavailable, 2*time.Second) })
				_, _ = refuses.sends(t.Context(), i, c.method)
				after(c.rest)
			}
			var n atomic.Int64
			if _, err := invoker(func(ctx context.Context, _ *wrapperspb.StringValue) error {
				n.Add(1)
				return takes(ctx, time.Second, codes.OK)
			}).sends(t.Context(), i, c.method); err != nil {
				t.Error(err)
			}
			if synctest.Wait(); n.Load() != c.want {
				t.Errorf("%s: %d attempts, want %d", name, n.Load(), c.want)
			}
		})
	}
}

// TestClientHedgePanics: an interceptor that panics in the second attempt does not end the call, and one
// in the first does; no place is held afterwards.
func TestClientHedgePanics(t *testing.T) {
	for _, in := range []int64{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			var n atomic.Int64
			places, _ := keyed.NewConcurrency[string](weir.Concurrency{Limit: 10}, keyed.Options{})
			i := weirgrpc.UnaryClient(weirgrpc.Limits{weirgrpc.InFlight(places, weirgrpc.Global())}, weirgrpc.Hedge(weirgrpc.Hedging{Delay: 100 * time.Millisecond}, say))
			func() {
				defer func() {
					if p := recover(); (p != nil) != (in == 1) {
						t.Errorf("panic in attempt %d: %v", in, p)
					}
				}()
				if _, err := invoker(func(ctx context.Context, _ *wrapperspb.StringValue) error {
					if n.Add(1) == in {
						after(200 * time.Millisecond)
						panic("interceptor")
					}
					return takes(ctx, time.Second, codes.OK)
				}).sends(t.Context(), i, say); err != nil {
					t.Error(err)
				}
			}()
			if synctest.Wait(); places.Holding("") != 0 {
				t.Errorf("panic in attempt %d: %d places are held", in, places.Holding(""))
			}
		})
	}
}

// TestClientHedgeOverTheNetwork: header, trailer and peer are those of the attempt that won, and the
// server sees that the other one is cancelled.
func TestClientHedgeOverTheNetwork(t *testing.T) {
	var begun sync.Map
	var cancelled atomic.Int64
	e := &echo{say: func(ctx context.Context, text string) (string, error) {
		if _, again := begun.LoadOrStore(text, true); !again {
			_ = grpc.SetTrailer(ctx, metadata.Pairs("attempt", "first"))
			<-ctx.Done()
			cancelled.Add(1)
			return "", ctx.Err()
		}
		_ = grpc.SetHeader(ctx, metadata.Pairs("attempt", "second"))
		_ = grpc.SetTrailer(ctx, metadata.Pairs("attempt", "second"))
		return text + "!", nil
	}}
	cc := dial(t, serve(t, e), grpc.WithUnaryInterceptor(weirgrpc.UnaryClient(nil, weirgrpc.Hedge(weirgrpc.Hedging{Delay: time.Millisecond, Percent: 100, Burst: 100}, say))))
	var all sync.WaitGroup
	for n := range 40 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			var header, trailer metadata.MD
			var from peer.Peer
			in, out := wrapperspb.String(fmt.Sprint(n)), new(wrapperspb.StringValue)
			err := cc.Invoke(ctx, say, in, out, grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&from))
			in.Value = "the caller's own again"
			if err != nil || out.GetValue() != fmt.Sprintf("%d!", n) || fmt.Sprint(header["attempt"], trailer["attempt"]) != "[second] [second]" || from.Addr == nil {
				t.Errorf("%v, %v, %v, %v, %v", out, header, trailer, from, err)
			}
		})
	}
	all.Wait()
	for deadline := time.Now().Add(5 * time.Minute); cancelled.Load() < 40; {
		if time.Now().After(deadline) {
			t.Fatalf("the server has seen %d of 40 attempts cancelled", cancelled.Load())
		}
		<-time.After(time.Millisecond)
	}
}

// filled is a reply that nobody else may look at while an attempt fills it in.
type filled struct {
	*wrapperspb.StringValue
	busy, seen *atomic.Bool
}

func (f filled) ProtoReflect() protoreflect.Message {
	if f.busy.Load() {
		f.seen.Store(true)
	}
	return f.StringValue.ProtoReflect()
}

// TestClientHedgeLeavesTheReplyAlone: the second attempt read the caller's reply while the first one could fill it
// in, which was a data race.
func TestClientHedgeLeavesTheReplyAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		reply := filled{new(wrapperspb.StringValue), new(atomic.Bool), new(atomic.Bool)}
		i := weirgrpc.UnaryClient(nil, weirgrpc.Hedge(weirgrpc.Hedging{Delay: 100 * time.Millisecond}, say))
		err := i(t.Context(), say, wrapperspb.String("hello"), reply, nil, func(ctx context.Context, _ string, _, to any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			if n.Add(1) == 1 {
				reply.busy.Store(true)
				<-ctx.Done()
				reply.busy.Store(false)
				return status.FromContextError(ctx.Err()).Err()
			}
			to.(*wrapperspb.StringValue).Value = "second"
			return nil
		})
		if err != nil || reply.Value != "second" || reply.seen.Load() {
			t.Errorf("%q, %v; looked at: %v", reply.Value, err, reply.seen.Load())
		}
	})
}
