package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/gateway"
	"github.com/weirflow/weir/server/policyfile"
)

// patience bounds everything that takes no time on an idle machine.
const patience = 2 * time.Minute

// poll waits until a condition is true, and fails the test if it never is.
func poll(t *testing.T, what string, is func() bool) {
	t.Helper()
	late := time.After(patience)
	for !is() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-late:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// talk responds to each message before it reads the next, and ends with a status and trailers.
func talk(_ any, stream grpc.ServerStream) error {
	stream.SetTrailer(metadata.Pairs("how", "it was"))
	for {
		var m wrapperspb.StringValue
		switch err := stream.RecvMsg(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case m.Value == "fail":
			return status.Error(codes.NotFound, "there is none, ünd no more")
		case m.Value == "large":
			m.Value = strings.Repeat("x", 1<<20)
		}
		if err := stream.SendMsg(&m); err != nil {
			return err
		}
	}
}

var talks = grpc.StreamDesc{StreamName: "Talk", Handler: talk, ServerStreams: true, ClientStreams: true}

// TestGRPC: a gRPC client and server, over HTTP/2 without TLS on both sides, with the gateway
// between them: messages in both directions, one at a time, large ones, statuses, trailers, and a
// client that leaves.
func TestGRPC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	leaves := grpc.StreamDesc{StreamName: "Leave", ServerStreams: true, ClientStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
		if err := stream.SendMsg(wrapperspb.String("hello")); err != nil {
			return err
		}
		<-stream.Context().Done()
		left <- stream.Context().Err()
		return nil
	}}
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "shop.Shop", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{talks, leaves}}, nil)
	go s.Serve(l)
	defer s.Stop()

	file, err := policyfile.Parse("policy.yaml", []byte(fmt.Sprintf(`
limits: { open: { concurrency: { limit: 1 } } }
upstreams: { up: { url: "http://%s", protocol: h2c } }
routes: [{ match: /, upstream: up, limits: [open] }]
`, l.Addr())))
	if err != nil {
		t.Fatal(err)
	}
	p, err := active.New(t.Context(), file, active.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	g, err := gateway.New(t.Context(), p, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewUnstartedServer(g)
	front.Config.Protocols = new(http.Protocols)
	front.Config.Protocols.SetUnencryptedHTTP2(true)
	front.Start()
	defer func() { front.Close(); g.Close() }()
	conn, err := grpc.NewClient("passthrough:///"+front.Listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	free := func() bool { return g.Upstreams()[0].Targets[0].InFlight == 0 }

	stream, err := conn.NewStream(ctx, &talks, "/shop.Shop/Talk")
	if err != nil {
		t.Fatal(err)
	}
	say := func(text string) (string, error) {
		if err := stream.SendMsg(wrapperspb.String(text)); err != nil {
			t.Fatal(err)
		}
		var m wrapperspb.StringValue
		err := stream.RecvMsg(&m)
		return m.Value, err
	}
	for i := range 50 {
		if got, err := say(fmt.Sprint(i)); got != fmt.Sprint(i) || err != nil {
			t.Fatal(got, err)
		}
	}
	if got, err := say("large"); len(got) != 1<<20 || err != nil {
		t.Error(len(got), err)
	}
	// The stream holds the only place.
	second, err := conn.NewStream(ctx, &talks, "/shop.Shop/Talk")
	if err == nil {
		err = second.RecvMsg(&wrapperspb.StringValue{})
	}
	if code := status.Code(err); code != codes.Unavailable {
		t.Errorf("a second stream: %v", err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	if err := stream.RecvMsg(&wrapperspb.StringValue{}); !errors.Is(err, io.EOF) || strings.Join(stream.Trailer()["how"], "") != "it was" {
		t.Error(err, stream.Trailer())
	}
	poll(t, "the stream has ended", free)

	if stream, err = conn.NewStream(ctx, &talks, "/shop.Shop/Talk"); err != nil {
		t.Fatal(err)
	}
	if _, err := say("fail"); status.Code(err) != codes.NotFound || status.Convert(err).Message() != "there is none, ünd no more" {
		t.Error(err)
	}
	poll(t, "the stream has ended", free)

	leaving, leave := context.WithCancel(ctx)
	if stream, err = conn.NewStream(leaving, &leaves, "/shop.Shop/Leave"); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(&wrapperspb.StringValue{}); err != nil {
		t.Fatal(err)
	}
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	poll(t, "the stream has ended", free)
	if stats := g.Upstreams()[0].Targets[0]; stats.Failures != 0 {
		t.Errorf("%+v", stats)
	}
}
