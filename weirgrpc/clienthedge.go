package weirgrpc

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weirflow/weir/internal/pacing"
)

// Hedging says when a call is sent a second time while its response is late: see Hedge.
type Hedging struct {
	// Delay is how late the response is then. default: learned from the latest 500 to 1000 calls of the
	// method, as Share says. Before the first 100 responses, there is no second attempt
	Delay time.Duration
	// Share is the share of the calls whose response comes within the learned delay. default: 0.95
	Share float64
	// Percent and Burst bound the second attempts: percent of the calls, and burst more. default: 5 and 10
	Percent, Burst int
}

// Hedge sends a unary call of some methods, like "/shop.Cart/Get" or "/shop.Cart/*", a second time if its
// response is late, and returns the response that comes first. The other attempt is cancelled. Name only
// methods that may be repeated: the server may carry out both. If a few responses are much later than the
// others, that makes the late ones rare, for a few more calls.
//
// RESOURCE_EXHAUSTED, UNAVAILABLE, DEADLINE_EXCEEDED, ABORTED, INTERNAL, DATA_LOSS, UNKNOWN and CANCELLED
// are returned only if the other attempt's result is not better.
//
// Only the first attempt has a second one beside it, no retry. The second attempt never waits: there is
// none while other calls wait for the same pause, if a limit does not admit it at once, while the server
// holds back calls (such as by a pushback) or has done so within 20 s, or while Throttle refuses some. It
// is charged to all limits, as is the first one. Calls whose messages are not those of protocol
// buffers are sent once.
//
// Interceptors behind this one see both attempts, and grpc.OnFinish the first alone. Each second attempt
// has a goroutine, which ends soon after the response has come. Do not use it together with a hedgingPolicy
// of gRPC's service configuration. default: no second attempts
func Hedge(h Hedging, methods ...string) ClientOption {
	methods = checkedMethods("Hedge", methods)
	if len(methods) == 0 {
		panic("weirgrpc: Hedge without methods: name those that may be repeated, like \"/shop.Cart/*\"")
	}
	all, err := pacing.Hedging(h).Complete()
	if err != nil {
		panic("weirgrpc: Hedge: " + err.Error())
	}
	return func(c *client) { c.hedging, c.hedged = &all, methods }
}

// An invocation is what an attempt is sent with.
type invocation struct {
	req, reply any
	opts       []grpc.CallOption
}

// A result is what an attempt ended with.
type result struct {
	advice
	err error
}

// good reports whether no other attempt can have a better result.
func (r result) good() bool {
	switch status.Code(r.err) {
	case codes.ResourceExhausted, codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.Internal, codes.DataLoss, codes.Unknown, codes.Canceled:
		return false
	}
	return true
}

// hedgeable reports whether an attempt may have a second one beside it.
func (u *unary) hedgeable(n int, in *invocation) bool {
	_, request := in.req.(proto.Message)
	_, reply := in.reply.(proto.Message)
	return u.hedges != nil && n == 0 && request && reply && matches(u.hedged, u.method)
}

// sendTwice sends a call, and once more if the response does not come in time. It ends both attempts.
func (u *unary) sendTwice(ctx context.Context, f *flight, in *invocation) result {
	delay, ok := u.hedges.Request()
	if !ok {
		got := u.send(ctx, f, in)
		u.measure(f, got)
		return got
	}
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	var copied *beside
	kind := in.reply.(proto.Message).ProtoReflect().Type() // while nobody fills it in yet
	race := pacing.Race[result]{Delay: delay, Good: result.good, CancelFirst: cancel, Begin: func() *pacing.Second[result] {
		if copied = u.beside(ctx, in, kind); copied == nil {
			return nil
		}
		return &pacing.Second[result]{Send: copied.send, Cancel: copied.cancel, Lose: func(result) {}}
	}}
	// an attempt ends when its result is there, whoever gets it
	first, second := race.Run(func() result { return u.send(own, f, in) })
	if second == nil {
		u.measure(f, first)
		if copied != nil {
			copied.cancel()
		}
		return first
	}
	u.hedges.Measure(time.Since(f.sent)) // it would have been later
	copied.cancel()
	u.client.counts.HedgesWon.Add(1)
	copied.give(in)
	return *second
}

// measure counts the latency of a first attempt.
func (u *unary) measure(f *flight, got result) {
	if got.good() {
		u.hedges.Measure(time.Since(f.sent))
	}
}

// A beside is a second attempt, with messages and options of its own.
type beside struct {
	*unary
	ctx    context.Context
	cancel func()
	in     invocation

	header, trailer metadata.MD
	peer            peer.Peer
}

// beside returns a second attempt, or nil if this is no time for one. kind is that of the reply, which the
// first attempt may fill in at the same time.
func (u *unary) beside(ctx context.Context, in *invocation, kind protoreflect.MessageType) *beside {
	if ctx.Err() != nil || u.gate.Held(u.key) || u.lines.Busy(u.key) || u.callee.throttle != nil && u.callee.throttle.Throttling() || !u.hedges.Hedge() {
		return nil
	}
	b := &beside{unary: u}
	b.ctx, b.cancel = context.WithCancel(ctx)
	// the caller may change its request when it has the response
	b.in = invocation{req: proto.Clone(in.req.(proto.Message)), reply: kind.New().Interface()}
	for _, o := range in.opts {
		switch o.(type) {
		case grpc.HeaderCallOption:
			o = grpc.Header(&b.header)
		case grpc.TrailerCallOption:
			o = grpc.Trailer(&b.trailer)
		case grpc.PeerCallOption:
			o = grpc.Peer(&b.peer)
		case grpc.OnFinishCallOption:
			continue
		}
		b.in.opts = append(b.in.opts, o)
	}
	return b
}

// send sends the second attempt, if all limits admit it at once. It is on no goroutine of the caller, so
// a panic ends the attempt alone.
func (b *beside) send() (got result, sent bool) {
	defer func() {
		if p := recover(); p != nil {
			got = result{err: status.Error(codes.Internal, fmt.Sprintf("the second attempt panicked: %v", p))}
		}
	}()
	f, err := b.tryEnter(b.ctx, &b.in)
	if err != nil {
		return got, false
	}
	b.client.counts.Hedged.Add(1)
	return b.unary.send(b.ctx, f, &b.in), true
}

// give gives the caller the response.
func (b *beside) give(in *invocation) {
	reply := in.reply.(proto.Message)
	proto.Reset(reply)
	proto.Merge(reply, b.in.reply.(proto.Message))
	for _, o := range in.opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = b.header
		case grpc.TrailerCallOption:
			*o.TrailerAddr = b.trailer
		case grpc.PeerCallOption:
			*o.PeerAddr = b.peer
		}
	}
}
