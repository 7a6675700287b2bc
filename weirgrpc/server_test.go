package weirgrpc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirgrpc"
)

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// perHour is a limit per key that does not refill within a test.
func perHour(t *testing.T, name string, burst int64) *keyed.Limiter[string] {
	t.Helper()
	return must(keyed.New[string](weir.TokenBucket{Rate: weir.PerHour(1), Burst: burst}, keyed.Options{Name: name}))(t)
}

func placesOf(t *testing.T, l weir.Concurrency) *keyed.Concurrency[string] {
	t.Helper()
	return must(keyed.NewConcurrency[string](l, keyed.Options{Name: "in-flight"}))(t)
}

func unary(limits weirgrpc.Limits, options ...weirgrpc.ServerOption) grpc.ServerOption {
	return grpc.UnaryInterceptor(weirgrpc.UnaryServer(limits, options...))
}

func stream(limits weirgrpc.Limits) grpc.ServerOption {
	return grpc.StreamInterceptor(weirgrpc.StreamServer(limits))
}

// TestRefusal: a refused call does not reach the handler, is charged nowhere, and its error says
// when to retry, without a word about who the client is.
func TestRefusal(t *testing.T) {
	var handled atomic.Int64
	first, second := perHour(t, "per-key", 3), perHour(t, "per-client", 2)
	addr := serve(t, &echo{say: func(context.Context, string) (string, error) { handled.Add(1); return "", nil }}, unary(weirgrpc.Limits{
		weirgrpc.Keyed(first, weirgrpc.ByMetadata("x-api-key")), weirgrpc.Keyed(second, weirgrpc.ByIP()),
	}))
	cc := dial(t, addr)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", "secret-ann")
	for range 2 {
		if err := call(ctx, cc, "hello"); err != nil {
			t.Fatal(err)
		}
	}
	var trailer metadata.MD
	err := call(ctx, cc, "hello", grpc.Trailer(&trailer))
	st := status.Convert(err)
	if st.Code() != codes.ResourceExhausted || handled.Load() != 2 {
		t.Fatalf("%v; the handler was called %d times", err, handled.Load())
	}
	if left := first.Peek("secret-ann", 0).Remaining; left != 1 {
		t.Errorf("the limit that did not refuse has %d left", left)
	}
	var retry time.Duration
	var subject string
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d.GetRetryDelay().AsDuration()
		case *errdetails.QuotaFailure:
			subject = d.GetViolations()[0].GetSubject()
		}
	}
	if retry < 59*time.Minute || retry > time.Hour || subject != "limit:per-client" {
		t.Errorf("retry in %v, %s", retry, subject)
	}
	if ms := must(time.ParseDuration(strings.Join(trailer["grpc-retry-pushback-ms"], "") + "ms"))(t); ms < retry || ms >= retry+time.Millisecond {
		t.Errorf("pushback %v, and RetryInfo %v", ms, retry)
	}
	if text := st.Proto().String() + err.Error(); strings.Contains(text, "ann") || strings.Contains(text, "127.0.0.1") {
		t.Errorf("an identity in %s", text)
	}
}

// TestHopeless: a refusal that no wait helps says not to retry, and one whose end is not known says nothing.
func TestHopeless(t *testing.T) {
	large := weirgrpc.Cost(func(*weirgrpc.Call) int64 { return 9 })
	full := placesOf(t, weir.Concurrency{Limit: 1})
	full.TryEnter("")
	for name, c := range map[string]struct {
		limit weirgrpc.Limit
		want  string
	}{
		"a cost above the limit": {weirgrpc.Keyed(perHour(t, "l", 3), weirgrpc.Global(), large), "-1"},
		"no key":                 {weirgrpc.Keyed(perHour(t, "l", 3), weirgrpc.ByMetadata("k"), weirgrpc.OnMissing(weirgrpc.MissingRefuse)), "-1"},
		"no place":               {weirgrpc.InFlight(full, weirgrpc.Global()), ""},
	} {
		var trailer metadata.MD
		err := call(t.Context(), dial(t, serve(t, &echo{}, unary(weirgrpc.Limits{c.limit}))), "", grpc.Trailer(&trailer))
		if got := strings.Join(trailer["grpc-retry-pushback-ms"], ","); status.Code(err) != codes.ResourceExhausted || got != c.want {
			t.Errorf("%s: %v, pushback %q", name, err, got)
		}
	}
}

// TestPlaces: a place is held until the handler has returned or panicked, for unary calls and for
// streams.
func TestPlaces(t *testing.T) {
	places := placesOf(t, weir.Concurrency{Limit: 2})
	limits := weirgrpc.Limits{weirgrpc.InFlight(places, weirgrpc.Global())}
	recovered := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (res any, err error) {
		defer func() {
			if recover() != nil {
				err = status.Error(codes.Internal, "panic")
			}
		}()
		return handler(ctx, req)
	}
	inside, leave := make(chan int64, 1), make(chan bool)
	e := &echo{say: func(_ context.Context, text string) (string, error) {
		inside <- places.Holding("")
		if text == "panic" {
			panic("a defect of the handler")
		}
		<-leave
		return "", nil
	}}
	cc := dial(t, serve(t, e, grpc.ChainUnaryInterceptor(recovered, weirgrpc.UnaryServer(limits)), stream(limits)))
	s := open(t.Context(), t, cc)
	if err := exchange(s); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- call(t.Context(), cc, "") }()
	if n := <-inside; n != 2 {
		t.Errorf("%d are inside", n)
	}
	if err := call(t.Context(), cc, ""); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	leave <- true
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := call(t.Context(), cc, "panic"); status.Code(err) != codes.Internal || <-inside != 2 {
		t.Error(err)
	}
	if err := s.CloseSend(); err != nil {
		t.Error(err)
	}
	if err := s.RecvMsg(new(any)); err == nil {
		t.Error("the stream goes on")
	}
	for places.Holding("") != 0 { // the handlers' results are sent before their places are left
		<-time.After(time.Millisecond)
	}
	if d := places.Stats().Outcomes.Dropped; d != 1 {
		t.Errorf("%d were dropped", d)
	}
}

// TestPerMessage: each message is charged, a refused one ends the stream with the refusal, and the
// handler cannot hide that.
func TestPerMessage(t *testing.T) {
	l := perHour(t, "messages", 3)
	limits := weirgrpc.Limits{weirgrpc.Keyed(l, weirgrpc.ByMethod(), weirgrpc.PerMessage(), weirgrpc.Cost(func(c *weirgrpc.Call) int64 {
		if c.Message == nil {
			t.Error("no message")
		}
		return 1
	}))}
	cc := dial(t, serve(t, &echo{}, stream(limits), unary(limits)))
	s := open(t.Context(), t, cc)
	for range 3 {
		if err := exchange(s); err != nil {
			t.Fatal(err)
		}
	}
	err := exchange(s)
	if status.Code(err) != codes.ResourceExhausted || len(s.Trailer()["grpc-retry-pushback-ms"]) != 1 {
		t.Errorf("%v, %v", err, s.Trailer())
	}
	if err := call(t.Context(), cc, ""); err != nil { // another method
		t.Error(err)
	}
	if left := l.Peek(say, 0).Remaining; left != 2 {
		t.Errorf("a unary call left %d of 3", left)
	}
}

// TestPerResponse: each message of the server is charged, also beside those of the client; a refused
// one is not sent, and ends the stream with the refusal, whatever the handler does.
func TestPerResponse(t *testing.T) {
	l := perHour(t, "messages", 5)
	both := weirgrpc.Keyed(l, weirgrpc.ByMethod(), weirgrpc.PerMessage(), weirgrpc.PerResponse())
	served := make(chan int, 2)
	stubborn := func(ss grpc.ServerStream) error {
		n := 0
		for range 20 {
			if ss.RecvMsg(new(wrapperspb.StringValue)) == nil && ss.SendMsg(wrapperspb.String("x")) == nil {
				n++
			}
		}
		served <- n
		return nil
	}
	cc := dial(t, serve(t, &echo{talk: stubborn}, stream(weirgrpc.Limits{both}), unary(weirgrpc.Limits{both})))
	s := open(t.Context(), t, cc)
	for range 2 {
		if err := exchange(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := exchange(s); status.Code(err) != codes.ResourceExhausted || len(s.Trailer()["grpc-retry-pushback-ms"]) != 1 {
		t.Errorf("%v, %v", err, s.Trailer())
	}
	if n := <-served; n != 2 {
		t.Errorf("the handler sent %d messages", n)
	}
	if err := call(t.Context(), cc, ""); err != nil { // another method: charged once
		t.Error(err)
	}
	if left := l.Peek(say, 0).Remaining; left != 4 {
		t.Errorf("a unary call left %d of 5", left)
	}
}

// TestOpening: without PerMessage, a stream is charged once, and a refused one does not reach the
// handler.
func TestOpening(t *testing.T) {
	var handled atomic.Int64
	limits := weirgrpc.Limits{weirgrpc.Keyed(perHour(t, "streams", 1), weirgrpc.Global())}
	cc := dial(t, serve(t, &echo{talk: func(ss grpc.ServerStream) error { handled.Add(1); return answer(ss) }}, stream(limits)))
	s := open(t.Context(), t, cc)
	for range 5 {
		if err := exchange(s); err != nil {
			t.Fatal(err)
		}
	}
	refused := open(t.Context(), t, cc)
	if err := refused.RecvMsg(new(any)); status.Code(err) != codes.ResourceExhausted || handled.Load() != 1 {
		t.Errorf("%v; %d streams were handled", err, handled.Load())
	}
}

// invoke calls an interceptor without a network.
func invoke(ctx context.Context, i grpc.UnaryServerInterceptor, method string) error {
	_, err := i(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
	return err
}

// TestWait: calls over the limit wait for their turn, and a call whose turn comes after its deadline
// or after the bound is refused at once.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(weir.New(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}))(t)
		i := weirgrpc.UnaryServer(weirgrpc.Limits{weirgrpc.One(l)}, weirgrpc.Wait(2*time.Second))
		began := time.Now()
		for n := range 3 {
			if err := invoke(t.Context(), i, say); err != nil || time.Since(began) != time.Duration(n)*time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 999*time.Millisecond)
		defer cancel()
		began = time.Now()
		if err := invoke(ctx, i, say); status.Code(err) != codes.ResourceExhausted || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second/2, leave)
		if err := invoke(ctx, i, say); status.Code(err) != codes.Canceled {
			t.Error(err)
		}
		if err := invoke(t.Context(), i, say); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v: the place of the call that left was not given up", err, time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) { // by default, for a limit with a queue
		l := must(weir.New(weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 1}))(t)
		i := weirgrpc.UnaryServer(weirgrpc.Limits{weirgrpc.One(l)})
		began := time.Now()
		for range 2 {
			if err := invoke(t.Context(), i, say); err != nil {
				t.Error(err)
			}
		}
		if time.Since(began) != time.Second {
			t.Errorf("after %v", time.Since(began))
		}
		none := weirgrpc.UnaryServer(weirgrpc.Limits{weirgrpc.One(l)}, weirgrpc.Waiting(0))
		if err := invoke(t.Context(), none, say); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
	})
}

// TestMethods: a limit counts the methods that it is for.
func TestMethods(t *testing.T) {
	l := perHour(t, "l", 2)
	i := weirgrpc.UnaryServer(weirgrpc.Limits{weirgrpc.Keyed(l, weirgrpc.Global(), weirgrpc.Methods("/a.A/One", "/b.B/*"), weirgrpc.Except("/b.B/Free"))})
	for _, method := range []string{"/a.A/Two", "/a.A/OneMore", "/b.B/Free", "/b.BB/One", "/a.A/One", "/b.B/One"} {
		if err := invoke(t.Context(), i, method); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	for _, method := range []string{"/a.A/One", "/b.B/Two"} {
		if err := invoke(t.Context(), i, method); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// TestCosts: 0 is not counted, and below 0 is a mistake of the client.
func TestCosts(t *testing.T) {
	l := perHour(t, "l", 2)
	cost := int64(0)
	i := weirgrpc.UnaryServer(weirgrpc.Limits{weirgrpc.Keyed(l, weirgrpc.Global(), weirgrpc.Cost(func(*weirgrpc.Call) int64 { return cost }))})
	for range 5 {
		if err := invoke(t.Context(), i, say); err != nil {
			t.Error(err)
		}
	}
	if cost = -1; status.Code(invoke(t.Context(), i, say)) != codes.InvalidArgument {
		t.Error("a cost below 0 passed")
	}
	if left := l.Peek("", 0).Remaining; left != 2 {
		t.Errorf("%d are left", left)
	}
}

// down is a store that is unavailable.
type down struct{}

func (down) Do(context.Context, []weir.Charge, []weir.Decision) error { return errors.New("down") }
func (down) Close() error                                             { return nil }

// TestStoreUnavailable: this node's share decides, and another fallback if that is asked for.
func TestStoreUnavailable(t *testing.T) {
	for name, c := range map[string]struct {
		options []weirgrpc.LimitOption
		passes  int
	}{
		"default": {nil, 0}, // a share starts empty
		"a half":  {[]weirgrpc.LimitOption{weirgrpc.Fallback(failover.Options{OnFailure: failover.Local, Nodes: 2, StartFull: true})}, 5},
		"allow":   {[]weirgrpc.LimitOption{weirgrpc.Fallback(failover.Options{OnFailure: failover.Allow})}, 20},
		"deny":    {[]weirgrpc.LimitOption{weirgrpc.Fallback(failover.Options{OnFailure: failover.Deny})}, 0},
	} {
		shared := must(weir.NewShared(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}, down{}, weir.Named("shared")))(t)
		i := weirgrpc.UnaryServer(weirgrpc.Limits{weirgrpc.Shared(shared, weirgrpc.Global(), c.options...)})
		passes := 0
		for range 20 {
			switch err := invoke(t.Context(), i, say); status.Code(err) {
			case codes.OK:
				passes++
			case codes.ResourceExhausted:
			default:
				t.Errorf("%s: %v", name, err)
			}
		}
		if passes != c.passes {
			t.Errorf("%s: %d passed, want %d", name, passes, c.passes)
		}
	}
}

// TestShadow: a shadow limit decides and refuses no call, and is evaluated only for admitted ones.
func TestShadow(t *testing.T) {
	var would, seen int
	i := weirgrpc.UnaryServer(weirgrpc.Limits{
		weirgrpc.Keyed(perHour(t, "dry", 1), weirgrpc.Global(), weirgrpc.Shadow()),
		weirgrpc.Keyed(perHour(t, "live", 3), weirgrpc.Global()),
		weirgrpc.InFlight(placesOf(t, weir.Concurrency{Limit: 1}), weirgrpc.Global(), weirgrpc.Shadow()),
	}, weirgrpc.Observe(func(r weirgrpc.Response) {
		if seen++; r.Shadow && !r.Decision.Allowed {
			would++
		}
	}))
	refused := 0
	for range 5 {
		if invoke(t.Context(), i, say) != nil {
			refused++
		}
	}
	if refused != 2 || would != 2 || seen != 5+2*3 {
		t.Errorf("%d refused, %d would have been, %d seen", refused, would, seen)
	}
}

// TestObservePanics: a function of Observe that panics keeps no place.
func TestObservePanics(t *testing.T) {
	places := placesOf(t, weir.Concurrency{Limit: 1})
	i := weirgrpc.UnaryServer(weirgrpc.Limits{weirgrpc.InFlight(places, weirgrpc.Global())}, weirgrpc.Observe(func(weirgrpc.Response) { panic("no") }))
	func() {
		defer func() { _ = recover() }()
		_ = invoke(t.Context(), i, say)
	}()
	if places.Holding("") != 0 {
		t.Error("the place is kept")
	}
}

// TestTLS: the same over TLS.
func TestTLS(t *testing.T) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der := must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	roots := x509.NewCertPool()
	roots.AddCert(must(x509.ParseCertificate(der))(t))
	cert := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	addr := serve(t, &echo{}, grpc.Creds(credentials.NewServerTLSFromCert(&cert)), unary(weirgrpc.Limits{weirgrpc.Keyed(perHour(t, "l", 1), weirgrpc.ByIP())}))
	cc := dial(t, addr, grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(roots, "")))
	if err := call(t.Context(), cc, ""); err != nil {
		t.Fatal(err)
	}
	if err := call(t.Context(), cc, ""); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
}
