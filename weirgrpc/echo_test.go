package weirgrpc_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// echo is a service of three methods, described by hand: Say is unary, Talk answers each message, and
// Send takes many messages and answers with one.
type echo struct {
	say  func(context.Context, string) (string, error)
	talk func(grpc.ServerStream) error
}

const (
	say  = "/test.Echo/Say"
	talk = "/test.Echo/Talk"
	send = "/test.Echo/Send"
)

var echoService = grpc.ServiceDesc{
	ServiceName: "test.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Say", Handler: func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := dec(in); err != nil {
			return nil, err
		}
		handler := func(ctx context.Context, req any) (any, error) {
			text, err := srv.(*echo).say(ctx, req.(*wrapperspb.StringValue).GetValue())
			return wrapperspb.String(text), err
		}
		if interceptor == nil {
			return handler(ctx, in)
		}
		return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: say}, handler)
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: func(srv any, ss grpc.ServerStream) error {
		return srv.(*echo).talk(ss)
	}}, {StreamName: "Send", ClientStreams: true, Handler: func(_ any, ss grpc.ServerStream) error {
		for ss.RecvMsg(new(wrapperspb.StringValue)) == nil {
		}
		return ss.SendMsg(wrapperspb.String("all"))
	}}},
}

// answer sends each message back until there are no more.
func answer(ss grpc.ServerStream) error {
	for {
		m := new(wrapperspb.StringValue)
		if err := ss.RecvMsg(m); err != nil {
			return nil // a handler that takes any error for the end
		}
		if err := ss.SendMsg(m); err != nil {
			return err
		}
	}
}

// serve serves an echo on a free port, and returns its address.
func serve(t *testing.T, e *echo, options ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if e.say == nil {
		e.say = func(_ context.Context, text string) (string, error) { return text, nil }
	}
	if e.talk == nil {
		e.talk = answer
	}
	server := grpc.NewServer(options...)
	server.RegisterService(&echoService, e)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// dial opens a client, in clear unless the options say otherwise.
func dial(t *testing.T, addr string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)
	cc, err := grpc.NewClient(addr, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

// call makes a unary call.
func call(ctx context.Context, cc *grpc.ClientConn, text string, options ...grpc.CallOption) error {
	return cc.Invoke(ctx, say, wrapperspb.String(text), new(wrapperspb.StringValue), options...)
}

// open opens a stream.
func open(ctx context.Context, t *testing.T, cc *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	s, err := cc.NewStream(ctx, &echoService.Streams[0], talk)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// exchange sends a message and receives the answer.
func exchange(s grpc.ClientStream) error {
	if err := s.SendMsg(wrapperspb.String("hello")); err != nil {
		return err
	}
	return s.RecvMsg(new(wrapperspb.StringValue))
}
