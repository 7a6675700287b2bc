package weirgrpc_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/weirgrpc"
)

var (
	oneCall   = weir.Concurrency{Limit: 1, Queue: 10}
	halfShare = failover.Options{OnFailure: failover.Local, Nodes: 2}
)

// upstream is a server that an interceptor of a client calls without a network.
type upstream struct {
	mu       sync.Mutex
	arrivals []time.Time
	reply    func(n int) (metadata.MD, error) // of the n-th call, from 0
}

func (u *upstream) invoke(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.arrivals = append(u.arrivals, time.Now())
	if u.reply == nil {
		return nil
	}
	trailer, err := u.reply(len(u.arrivals) - 1)
	for _, o := range opts {
		if o, ok := o.(grpc.TrailerCallOption); ok {
			*o.TrailerAddr = trailer
		}
	}
	return err
}

// sends makes a call through an interceptor.
func (u *upstream) sends(ctx context.Context, i grpc.UnaryClientInterceptor) error {
	return i(ctx, say, nil, nil, nil, u.invoke)
}

// retryIn is a refusal that says when to retry.
func retryIn(code codes.Code, d time.Duration) error {
	st, err := status.New(code, "busy").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
	if err != nil {
		panic(err)
	}
	return st.Err()
}

func sends(md ...string) metadata.MD { return metadata.Pairs(md...) }

// TestClientPaces: a client keeps within its limits, and does not wait beyond a deadline.
func TestClientPaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(weir.New(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 1}, weir.Named("ours")))(t)
		i, u := weirgrpc.UnaryClient(weirgrpc.Limits{weirgrpc.One(l)}), &upstream{}
		began := time.Now()
		var all sync.WaitGroup
		for range 11 {
			all.Go(func() {
				if err := u.sends(t.Context(), i); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took != time.Second {
			t.Errorf("11 calls at 10/s took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 99*time.Millisecond)
		defer cancel()
		began = time.Now()
		err := u.sends(ctx, i)
		if status.Code(err) != codes.ResourceExhausted || !errors.Is(err, weir.ErrLimited) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestClientPauses: when the server refuses one call and says when to retry, all calls of the method
// wait until then, calls whose deadline comes earlier fail at once, and other methods go on.
func TestClientPauses(t *testing.T) {
	for name, refuse := range map[string]func() (metadata.MD, error){
		"RetryInfo": func() (metadata.MD, error) { return nil, retryIn(codes.ResourceExhausted, 3*time.Second) },
		"pushback": func() (metadata.MD, error) {
			return sends("grpc-retry-pushback-ms", "3000"), status.Error(codes.ResourceExhausted, "")
		},
		"unavailable": func() (metadata.MD, error) { return nil, retryIn(codes.Unavailable, 3*time.Second) },
		"both": func() (metadata.MD, error) {
			return sends("grpc-retry-pushback-ms", "3000"), retryIn(codes.ResourceExhausted, time.Second)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			i, u := weirgrpc.UnaryClient(nil), &upstream{reply: func(n int) (metadata.MD, error) {
				if n == 0 {
					return refuse()
				}
				return nil, nil
			}}
			began := time.Now()
			if err := u.sends(t.Context(), i); status.Code(err) != codes.ResourceExhausted && status.Code(err) != codes.Unavailable {
				t.Errorf("%s: %v", name, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2999*time.Millisecond)
			defer cancel()
			if err := u.sends(ctx, i); !errors.Is(err, context.DeadlineExceeded) || status.Code(err) != codes.ResourceExhausted || time.Since(began) != 0 {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
			other := &upstream{}
			if err := i(t.Context(), talk, nil, nil, nil, other.invoke); err != nil || time.Since(began) != 0 {
				t.Errorf("%s: another method: %v after %v", name, err, time.Since(began))
			}
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					if err := u.sends(t.Context(), i); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			all.Wait()
			for _, at := range u.arrivals[1:] {
				if at.Sub(began) < 3*time.Second {
					t.Errorf("%s: a call came after %v", name, at.Sub(began))
				}
			}
			if len(u.arrivals) != 11 {
				t.Errorf("%s: %d calls came", name, len(u.arrivals))
			}
		})
	}
}

// TestRetries: which calls are sent again, and how often.
func TestRetries(t *testing.T) {
	retry := []weirgrpc.ClientOption{weirgrpc.Retry(2, "/test.Echo/*")}
	for name, c := range map[string]struct {
		options []weirgrpc.ClientOption
		err     error
		trailer metadata.MD
		calls   int
	}{
		"not asked for":                       {nil, status.Error(codes.Unavailable, ""), nil, 1},
		"another method":                      {[]weirgrpc.ClientOption{weirgrpc.Retry(2, "/other.Echo/Say")}, status.Error(codes.Unavailable, ""), nil, 1},
		"unavailable":                         {retry, status.Error(codes.Unavailable, ""), nil, 3},
		"exhausted, with a time":              {retry, retryIn(codes.ResourceExhausted, time.Second), nil, 3},
		"exhausted, at once":                  {retry, status.Error(codes.ResourceExhausted, ""), sends("grpc-retry-pushback-ms", "0"), 3},
		"exhausted, without a time":           {retry, status.Error(codes.ResourceExhausted, "message too large"), nil, 1},
		"the server says no":                  {retry, retryIn(codes.Unavailable, time.Second), sends("grpc-retry-pushback-ms", "-1"), 1},
		"the server says what is no number":   {retry, status.Error(codes.Unavailable, ""), sends("grpc-retry-pushback-ms", "soon"), 1},
		"other errors":                        {retry, status.Error(codes.Internal, ""), sends("grpc-retry-pushback-ms", "1"), 1},
		"an error that is no status":          {retry, errors.New("no"), nil, 1},
		"a pause that is longer than allowed": {append(retry, weirgrpc.MaxPause(time.Second)), retryIn(codes.ResourceExhausted, time.Hour), nil, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			i, u := weirgrpc.UnaryClient(nil, c.options...), &upstream{reply: func(int) (metadata.MD, error) { return c.trailer, c.err }}
			began := time.Now()
			if err := u.sends(t.Context(), i); status.Code(err) != status.Code(c.err) {
				t.Errorf("%s: %v", name, err)
			}
			if len(u.arrivals) != c.calls || time.Since(began) > time.Minute {
				t.Errorf("%s: %d calls in %v, want %d", name, len(u.arrivals), time.Since(began), c.calls)
			}
		})
	}
}

// TestRetriesEnd: a call is not sent again if its deadline comes first, and the error is the server's.
// Retries are a tenth of all calls, and ten more.
func TestRetriesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{reply: func(int) (metadata.MD, error) { return nil, retryIn(codes.ResourceExhausted, time.Second) }}
		ctx, cancel := context.WithTimeout(t.Context(), 999*time.Millisecond)
		defer cancel()
		began := time.Now()
		err := u.sends(ctx, weirgrpc.UnaryClient(nil, weirgrpc.Retry(5, say)))
		if status.Convert(err).Message() != "busy" || len(u.arrivals) != 1 || time.Since(began) != 0 {
			t.Errorf("%v after %v and %d calls", err, time.Since(began), len(u.arrivals))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{reply: func(int) (metadata.MD, error) { return nil, status.Error(codes.Unavailable, "") }}
		i := weirgrpc.UnaryClient(nil, weirgrpc.Retry(3, say))
		for range 200 {
			_ = u.sends(t.Context(), i)
		}
		if n := len(u.arrivals); n < 225 || n > 231 {
			t.Errorf("200 calls that fail were sent %d times", n)
		}
	})
}

// TestClientInterceptorsChained: what one interceptor of a client refuses is no word of the server for
// another.
func TestClientInterceptorsChained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(weir.New(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}))(t)
		l.Take(1)
		outer, inner, u := weirgrpc.UnaryClient(nil, weirgrpc.Retry(1, say)), weirgrpc.UnaryClient(weirgrpc.Limits{weirgrpc.One(l)}), &upstream{}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		err := outer(ctx, say, nil, nil, nil, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			return u.sends(ctx, inner)
		})
		if !errors.Is(err, weir.ErrLimited) || len(u.arrivals) != 0 {
			t.Error(err)
		}
		if err := u.sends(t.Context(), outer); err != nil || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestOverTheWire: our client obeys our server. A call is refused at most once, as a retry after the
// time that the server says is admitted.
func TestOverTheWire(t *testing.T) {
	l := must(weir.New(weir.TokenBucket{Rate: weir.PerSecond(20), Burst: 1}))(t)
	var refused atomic.Int64
	addr := serve(t, &echo{}, unary(weirgrpc.Limits{weirgrpc.One(l)}, weirgrpc.Observe(func(r weirgrpc.Response) {
		if !r.Decision.Allowed {
			refused.Add(1)
		}
	})))
	cc := dial(t, addr, grpc.WithUnaryInterceptor(weirgrpc.UnaryClient(nil, weirgrpc.Retry(1, say))))
	for n := range 6 {
		if err := call(t.Context(), cc, ""); err != nil {
			t.Errorf("call %d: %v", n, err)
		}
	}
	if refused.Load() > 5 {
		t.Errorf("%d of 6 calls were refused", refused.Load())
	}
}

// TestClientStream: a stream holds its place until it has ended, each way that it can, and its
// messages wait.
func TestClientStream(t *testing.T) {
	places := placesOf(t, oneCall)
	ends := map[string]func(s grpc.ClientStream, cancel func()){
		"cancelled": func(_ grpc.ClientStream, cancel func()) { cancel() },
		"closed": func(s grpc.ClientStream, _ func()) {
			if err := s.CloseSend(); err != nil {
				t.Error(err)
			}
			if err := s.RecvMsg(new(wrapperspb.StringValue)); err != io.EOF {
				t.Error(err)
			}
		},
	}
	cc := dial(t, serve(t, &echo{}), grpc.WithStreamInterceptor(weirgrpc.StreamClient(weirgrpc.Limits{weirgrpc.InFlight(places, weirgrpc.ByMethod())})))
	for name, end := range ends {
		ctx, cancel := context.WithCancel(t.Context())
		s := open(ctx, t, cc)
		if err := exchange(s); err != nil || places.Holding(talk) != 1 {
			t.Errorf("%s: %v, %d are inside", name, err, places.Holding(talk))
		}
		end(s, cancel)
		next := open(t.Context(), t, cc) // it waits for the place
		if err := exchange(next); err != nil {
			t.Error(err)
		}
		ends["closed"](next, nil)
		cancel()
	}
	if places.Holding(talk) != 0 {
		t.Error("a place is kept")
	}
}

// TestClientSends: a stream with one response has ended with it.
func TestClientSends(t *testing.T) {
	places := placesOf(t, oneCall)
	cc := dial(t, serve(t, &echo{}), grpc.WithStreamInterceptor(weirgrpc.StreamClient(weirgrpc.Limits{weirgrpc.InFlight(places, weirgrpc.Global())})))
	s, err := cc.NewStream(t.Context(), &echoService.Streams[1], send)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SendMsg(wrapperspb.String("one")); err != nil || places.Holding("") != 1 {
		t.Errorf("%v, %d are inside", err, places.Holding(""))
	}
	if err := s.CloseSend(); err != nil {
		t.Error(err)
	}
	if err := s.RecvMsg(new(wrapperspb.StringValue)); err != nil || places.Holding("") != 0 {
		t.Errorf("%v, %d are inside", err, places.Holding(""))
	}
}

// TestPausedClientGivesBack: a call that has waited for the client's own limit, and then finds that
// the server wants a pause beyond its deadline, is not charged.
func TestPausedClientGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(weir.New(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}))(t)
		i, u := weirgrpc.UnaryClient(weirgrpc.Limits{weirgrpc.One(l)}), &upstream{reply: func(int) (metadata.MD, error) {
			<-time.After(time.Second / 2)
			return nil, retryIn(codes.ResourceExhausted, 10*time.Second)
		}}
		go func() { _ = u.sends(t.Context(), i) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		if err := u.sends(ctx, i); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second || len(u.arrivals) != 1 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if left := l.Peek(0).Remaining; left != 1 {
			t.Error("the call that was not sent is charged")
		}
	})
}

// TestClientMessages: the messages of a stream wait for their limit, those that are sent and those
// that are received. One that would wait beyond the deadline fails, and ends the stream.
func TestClientMessages(t *testing.T) {
	for name, option := range map[string]weirgrpc.LimitOption{"sent": weirgrpc.PerMessage(), "received": weirgrpc.PerResponse()} {
		limits := weirgrpc.Limits{weirgrpc.Keyed(perHour(t, "messages", 2), weirgrpc.Global(), option)}
		cc := dial(t, serve(t, &echo{}), grpc.WithStreamInterceptor(weirgrpc.StreamClient(limits)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := open(ctx, t, cc)
		for range 2 {
			if err := exchange(s); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if err := exchange(s); !errors.Is(err, weir.ErrLimited) {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.Canceled {
			t.Errorf("%s: the stream goes on: %v", name, err)
		}
	}
}

// TestClientStreamPauses: a stream that the server refuses makes the next ones wait.
func TestClientStreamPauses(t *testing.T) {
	var arrivals atomic.Int64
	began := time.Now()
	e := &echo{talk: func(ss grpc.ServerStream) error {
		if arrivals.Add(1) == 1 {
			return retryIn(codes.ResourceExhausted, 100*time.Millisecond)
		}
		return answer(ss)
	}}
	cc := dial(t, serve(t, e), grpc.WithStreamInterceptor(weirgrpc.StreamClient(nil)))
	if err := open(t.Context(), t, cc).RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	if err := exchange(open(t.Context(), t, cc)); err != nil || time.Since(began) < 100*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
