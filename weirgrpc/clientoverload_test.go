package weirgrpc_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/weirgrpc"
)

// invoker is a server as a function.
type invoker func(ctx context.Context, reply *wrapperspb.StringValue) error

func (f invoker) invoke(ctx context.Context, _ string, _, reply any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
	if r, ok := reply.(*wrapperspb.StringValue); ok {
		return f(ctx, r)
	}
	return f(ctx, nil)
}

// sends makes a call through an interceptor.
func (f invoker) sends(ctx context.Context, i grpc.UnaryClientInterceptor, method string) (string, error) {
	reply := new(wrapperspb.StringValue)
	err := i(ctx, method, wrapperspb.String("hello"), reply, nil, f.invoke)
	return reply.GetValue(), err
}

// TestClientThrottle: what tells of too much load throttles the calls of a method, and not those of
// others; what does not throttles none. The error says that the call was not sent.
func TestClientThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context) error {
			<-ctx.Done()
			return status.FromContextError(ctx.Err()).Err()
		}
		for name, c := range map[string]struct {
			reply     func(context.Context) error
			cancel    bool
			throttles bool
		}{
			"unavailable": {func(context.Context) error { return status.Error(codes.Unavailable, "") }, false, true},
			"exhausted":   {func(context.Context) error { return status.Error(codes.ResourceExhausted, "") }, false, true},
			"deadline":    {slow, false, true},
			"cancelled":   {slow, true, false},
			"not found":   {func(context.Context) error { return status.Error(codes.NotFound, "") }, false, false},
			"internal":    {func(context.Context) error { return status.Error(codes.Internal, "") }, false, false},
			"fine":        {func(context.Context) error { return nil }, false, false},
		} {
			var counts weirgrpc.Counts
			i := weirgrpc.UnaryClient(nil, weirgrpc.Throttle(2), weirgrpc.Retry(1, say), weirgrpc.CountIn(&counts))
			refused, sent := 0, 0
			server := invoker(func(ctx context.Context, _ *wrapperspb.StringValue) error { sent++; return c.reply(ctx) })
			for range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				if c.cancel {
					time.AfterFunc(time.Millisecond, cancel)
				}
				_, err := server.sends(ctx, i, say)
				if errors.Is(err, weir.ErrLimited) {
					refused++
					if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "the call was not sent: its server has accepted 0 of ") {
						t.Errorf("%s: %v", name, err)
					}
				}
				cancel()
				after(10 * time.Millisecond)
				if _, err := invoker(func(context.Context, *wrapperspb.StringValue) error { return nil }).sends(t.Context(), i, send); err != nil {
					t.Errorf("%s: another method: %v", name, err)
				}
			}
			if c.throttles != (refused > 100) || !c.throttles && refused > 0 || sent < 200-refused {
				t.Errorf("%s: %d of 200 calls are refused, %d were sent", name, refused, sent)
			}
			if retries := counts.Retried.Load(); counts.Sent.Load() != uint64(sent)+200 || counts.Throttled.Load() < uint64(refused) || retries != uint64(sent+refused-200) || name != "unavailable" && retries > 0 {
				t.Errorf("%s: %d are counted as sent, %d as throttled, %d as retries; %d were sent, %d refused", name, counts.Sent.Load(), counts.Throttled.Load(), retries, sent, refused)
			}
		}
	})
}

// after lets virtual time pass.
func after(d time.Duration) { <-time.After(d) }

// TestClientThrottlesStreams: streams that fail throttle, and those that have sent a message do not.
func TestClientThrottlesStreams(t *testing.T) {
	fails := atomic.Bool{}
	e := &echo{talk: func(ss grpc.ServerStream) error {
		if fails.Load() {
			return status.Error(codes.Unavailable, "")
		}
		return answer(ss)
	}}
	addr := serve(t, e)
	for f, n := range map[bool]int{false: 20, true: 150} {
		fails.Store(f)
		cc := dial(t, addr, grpc.WithStreamInterceptor(weirgrpc.StreamClient(nil, weirgrpc.Throttle(2))))
		refused := 0
		for range n {
			ctx, cancel := context.WithCancel(t.Context())
			s, err := cc.NewStream(ctx, &echoService.Streams[0], talk)
			if err == nil {
				err = exchange(s)
			}
			if errors.Is(err, weir.ErrLimited) {
				refused++
			}
			cancel()
		}
		if f != (refused > 20) {
			t.Errorf("fails %v: %d of %d streams are refused", f, refused, n)
		}
	}
}

// TestClientAdaptUnderOverload: a server with 20 workers gets three times the calls that it can serve.
// Nearly as many are served as is possible, and those that are important first.
func TestClientAdaptUnderOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := make(chan struct{}, 20)
		server := invoker(func(ctx context.Context, _ *wrapperspb.StringValue) error {
			done := make(chan struct{})
			go func() {
				places <- struct{}{}
				after(100 * time.Millisecond)
				<-places
				close(done)
			}()
			select {
			case <-done:
				return nil
			case <-ctx.Done():
				return status.FromContextError(ctx.Err()).Err()
			}
		})
		i := weirgrpc.UnaryClient(nil, weirgrpc.Adapt(adaptive.Options{}))
		var all sync.WaitGroup
		var served, important atomic.Int64
		for n := range 20 * 600 {
			all.Go(func() {
				ctx, end := context.WithTimeout(t.Context(), time.Second)
				defer end()
				if n%6 != 0 {
					ctx = weirgrpc.WithPriority(ctx, adaptive.Sheddable)
				}
				_, err := server.sends(ctx, i, say)
				switch {
				case err == nil && n >= 6000:
					served.Add(1)
					if n%6 == 0 {
						important.Add(1)
					}
				case err != nil && !errors.Is(err, weir.ErrLimited) && status.Code(err) != codes.DeadlineExceeded:
					t.Error(err)
				}
			})
			after(time.Second / 600)
		}
		all.Wait()
		after(10 * time.Minute)
		if t.Logf("%d of 2000 are served, %d of 1000 important ones", served.Load(), important.Load()); served.Load() < 1700 || important.Load() < 970 {
			t.Errorf("%d of 2000 are served, %d of 1000 important ones", served.Load(), important.Load())
		}
	})
}

// TestClientAdaptRefuses: a call that finds no place is charged to no limit, and says that it was not
// sent. A place ends with the call, also if that panics.
func TestClientAdaptRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := must(weir.New(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 100}))(t)
		var counts weirgrpc.Counts
		i := weirgrpc.UnaryClient(weirgrpc.Limits{weirgrpc.One(ours)}, weirgrpc.Adapt(adaptive.Options{Algorithm: adaptive.AIMD{Initial: 1, Max: 1}}), weirgrpc.CountIn(&counts))
		wait := make(chan struct{})
		ended := make(chan any)
		go func() {
			defer func() { ended <- recover() }()
			_, _ = invoker(func(context.Context, *wrapperspb.StringValue) error { <-wait; panic("server") }).sends(t.Context(), i, say)
		}()
		synctest.Wait()
		fine := invoker(func(context.Context, *wrapperspb.StringValue) error { return nil })
		if _, err := fine.sends(t.Context(), i, say); !errors.Is(err, weir.ErrLimited) || status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "the call was not sent: as many are in flight as its server can bear") {
			t.Error(err)
		}
		if left := ours.Peek(0).Remaining; left != 99 {
			t.Errorf("%d remain", left)
		}
		if _, err := fine.sends(t.Context(), i, send); err != nil {
			t.Errorf("another method: %v", err)
		}
		close(wait)
		if p := <-ended; p != "server" {
			t.Error(p)
		}
		if _, err := fine.sends(t.Context(), i, say); err != nil {
			t.Error(err)
		}
		if counts.NoPlace.Load() != 1 || counts.Sent.Load() != 3 {
			t.Errorf("%d refused, %d sent", counts.NoPlace.Load(), counts.Sent.Load())
		}
	})
}

// TestClientOverloadOptions: an option that makes no sense is a mistake of the program.
func TestClientOverloadOptions(t *testing.T) {
	for name, f := range map[string]func(){
		"K below 1":        func() { weirgrpc.Throttle(0.5) },
		"K is no number":   func() { weirgrpc.Throttle(math.NaN()) },
		"no methods":       func() { weirgrpc.Hedge(weirgrpc.Hedging{}) },
		"a bad method":     func() { weirgrpc.Hedge(weirgrpc.Hedging{}, "Get") },
		"Share 1":          func() { weirgrpc.Hedge(weirgrpc.Hedging{Share: 1}, say) },
		"a bad limit":      func() { weirgrpc.Adapt(adaptive.Options{Algorithm: adaptive.AIMD{Min: -1}}) },
		"nothing to count": func() { weirgrpc.CountIn(nil) },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "weirgrpc: ") {
					t.Errorf("%s: %q", name, text)
				}
			}()
			f()
		}()
	}
}

// hanging is a stream of a server that never responds. It notices the end of its context late.
type hanging struct {
	grpc.ClientStream
	ctx context.Context
}

func (h hanging) RecvMsg(any) error {
	<-h.ctx.Done()
	after(time.Millisecond)
	return status.FromContextError(h.ctx.Err()).Err()
}

func (hanging) Trailer() metadata.MD { return nil }

// TestClientThrottlesStreamsThatHang: streams whose deadline came before a message counted as nothing, if
// their context was noticed first to have ended; what the caller cancels still does.
func TestClientThrottlesStreamsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, cancelled := range []bool{false, true} {
			open := weirgrpc.StreamClient(nil, weirgrpc.Throttle(2))
			refused := 0
			for range 150 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				if cancelled {
					time.AfterFunc(time.Millisecond, cancel)
				}
				s, err := open(ctx, &echoService.Streams[0], nil, talk, func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
					return hanging{ctx: ctx}, nil
				})
				if err == nil {
					err = s.RecvMsg(nil)
				}
				if errors.Is(err, weir.ErrLimited) {
					refused++
				}
				cancel()
				synctest.Wait()
			}
			if cancelled != (refused == 0) {
				t.Errorf("cancelled %v: %d of 150 streams are refused", cancelled, refused)
			}
		}
	})
}
