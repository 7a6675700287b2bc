package weirgrpc_test

import (
	"context"
	"strings"
	"testing"
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

// until waits for a condition.
func until(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.After(time.Minute); !done(); {
		select {
		case <-end:
			t.Fatal("it did not happen")
		case <-time.After(time.Millisecond):
		}
	}
}

// TestAdaptiveServer: a server's calls take their places at an adaptive limit together with its other limits, or not at
// all, and what became of them decides what the limit hears.
func TestAdaptiveServer(t *testing.T) {
	l, err := adaptive.New(adaptive.Options{Algorithm: adaptive.Knee{Initial: 1, Max: 1}, Name: "calls"})
	if err != nil {
		t.Fatal(err)
	}
	rate, err := weir.New(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 100}, weir.Named("rate"))
	if err != nil {
		t.Fatal(err)
	}
	entered, leave := make(chan bool), make(chan bool)
	as := func(c *weirgrpc.Call) (r adaptive.Request) {
		md, _ := metadata.FromIncomingContext(c.Context)
		if strings.Join(md.Get("priority"), "") == "batch" {
			r.Priority = adaptive.Sheddable
		}
		return r
	}
	cc := dial(t, serve(t, &echo{say: func(ctx context.Context, text string) (string, error) {
		switch text {
		case "slow":
			entered <- true
			<-leave
		case "late":
			<-ctx.Done()
			return "", status.FromContextError(ctx.Err()).Err()
		case "left":
			entered <- true
			<-ctx.Done()
		case "panic":
			panic("a test")
		case "busy":
			return "", status.Error(codes.ResourceExhausted, "busy")
		case "wrong":
			return "", status.Error(codes.InvalidArgument, "wrong")
		}
		return text, nil
	}}, grpc.ChainUnaryInterceptor(recovers, lates, weirgrpc.UnaryServer(weirgrpc.Limits{weirgrpc.Adaptive(l, as, weirgrpc.Except(talk)), weirgrpc.One(rate)}))))
	slow := make(chan error, 1)
	go func() { slow <- call(t.Context(), cc, "slow") }()
	<-entered
	for range 3 {
		if err := call(t.Context(), cc, "x"); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("without a place: %v", err)
		}
	}
	if err := call(metadata.AppendToOutgoingContext(t.Context(), "priority", "batch"), cc, "x"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("batch, without a place: %v", err)
	}
	if got := rate.Peek(0).Remaining; got != 99 {
		t.Errorf("refused calls were charged: %d remain", got)
	}
	leave <- true
	if err := <-slow; err != nil {
		t.Error(err)
	}
	free := func() bool { return l.InFlight() == 0 }
	until(t, free)
	for _, text := range []string{"busy", "wrong", "x", "panic"} {
		_ = call(t.Context(), cc, text)
		until(t, free)
	}
	_ = call(t.Context(), cc, "late")
	until(t, func() bool { return free() && l.Outcomes().Dropped == 3 })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	_ = call(ctx, cc, "left")
	until(t, func() bool { return free() && l.Outcomes().Ignored == 1 })
	if got, want := l.Outcomes(), (adaptive.Outcomes{OK: 3, Ignored: 1, Dropped: 3, Refused: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if s := l.Stats().Refused; s[len(s)-1].Refused != 1 {
		t.Errorf("by priority: %+v", s)
	}
}

// lates gives the calls that say late a deadline. One of the client would race with its cancellation.
func lates(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if text, ok := req.(*wrapperspb.StringValue); ok && text.Value == "late" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
	}
	return handler(ctx, req)
}

// recovers makes an error of a panic.
func recovers(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (res any, err error) {
	defer func() {
		if recover() != nil {
			err = status.Error(codes.Internal, "a panic")
		}
	}()
	return handler(ctx, req)
}

// TestAdaptiveMistakes: what makes no sense shows when the program starts.
func TestAdaptiveMistakes(t *testing.T) {
	l, err := adaptive.New(adaptive.Options{Queue: adaptive.Queue{Length: 3}})
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(){
		"nil":         func() { weirgrpc.Adaptive(nil, nil) },
		"Cost":        func() { weirgrpc.Adaptive(l, nil, weirgrpc.Cost(func(*weirgrpc.Call) int64 { return 2 })) },
		"PerMessage":  func() { weirgrpc.Adaptive(l, nil, weirgrpc.PerMessage()) },
		"of a client": func() { weirgrpc.UnaryClient(weirgrpc.Limits{weirgrpc.Adaptive(l, nil)}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
	weirgrpc.UnaryServer(weirgrpc.Limits{weirgrpc.Adaptive(l, nil)})
}
