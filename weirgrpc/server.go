package weirgrpc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weirflow/weir"
)

// A ServerOption changes the interceptors of a server.
type ServerOption func(*server)

// Wait lets calls over the limits wait for their turn, for at most this long and never past their
// deadlines. A call that would have to wait longer is refused at once. See group.Wait for the order.
// 0 lets none wait. default: DefaultWait if one of the limits has a queue (LeakyBucket, Concurrency
// with Queue), otherwise 0
func Wait(longest time.Duration) ServerOption {
	if longest < 0 {
		panic(fmt.Sprintf("weirgrpc: Wait(%v): write a time of at least 0, like 3*time.Second", longest))
	}
	return func(s *server) { s.admission.wait, s.waits = longest, true }
}

// Waiting bounds how many calls wait at once; further ones are refused. default: 10,000
func Waiting(most int) ServerOption {
	if most < 0 {
		panic(fmt.Sprintf("weirgrpc: Waiting(%d): write a number of at least 0", most))
	}
	return func(s *server) { s.admission.waiting = make(chan struct{}, most) }
}

// Observe calls a function with each decision, for metrics and logs: before the call is passed on or
// refused, and from many goroutines at once.
func Observe(f func(Response)) ServerOption { return func(s *server) { s.admission.observe = f } }

const mostWaiting = 10_000

// server is what the calls of an interceptor share.
type server struct {
	admission admission
	table
	waits bool
}

func newServer(limits Limits, options []ServerOption) *server {
	s := &server{table: table{limits: limits.checked()}}
	s.admission.waiting = make(chan struct{}, mostWaiting)
	s.admission.shadows = make(chan struct{}, mostShadows)
	for _, o := range options {
		o(s)
	}
	for i := range s.limits {
		if l := &s.limits[i]; !s.waits && !l.shadow && l.queues() {
			s.admission.wait = DefaultWait
		}
	}
	return s
}

// UnaryServer returns an interceptor that evaluates the limits for each call. It panics if the limits
// are invalid: that is a mistake of the program, and shows when it starts.
//
// A refused call gets RESOURCE_EXHAUSTED with google.rpc.RetryInfo and google.rpc.QuotaFailure, and
// the trailer grpc-retry-pushback-ms. They name the limit, and not the client.
func UnaryServer(limits Limits, options ...ServerOption) grpc.UnaryServerInterceptor {
	s := newServer(limits, options)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		stay, err := s.admission.admit(&Call{Context: ctx, Method: info.FullMethod, Message: req}, s.of(info.FullMethod).all)
		if err != nil {
			return nil, withTrailer(err, func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) })
		}
		outcome := weir.Dropped // a handler that panics
		of := s.of(info.FullMethod)
		defer func() { stay.done(of.ended(ctx, outcome)) }()
		res, err := handler(ctx, req)
		outcome = of.outcome(err)
		return res, err
	}
}

// ended is the outcome of a call: if its client has left, how it ended says nothing. That it was too late is an
// overload to an adaptive limit.
func (of *applying) ended(ctx context.Context, o weir.Outcome) weir.Outcome {
	switch {
	case ctx.Err() == nil:
		return o
	case of.adaptive && late(ctx):
		return weir.Dropped
	}
	return weir.Ignore
}

// late reports whether a context has ended at its deadline. A client with that deadline cancels the call then, which
// may be heard of a little earlier.
func late(ctx context.Context) bool {
	const heardEarlier = 5 * time.Millisecond
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < heardEarlier
}

// outcome is that of a handler that has returned. Its error matters to adaptive limits alone.
func (of *applying) outcome(err error) weir.Outcome {
	if of.adaptive {
		return outcomeOf(err)
	}
	return weir.OK
}

// withTrailer sets the trailer of a refused call, and returns its error.
func withTrailer(err error, set func(metadata.MD)) error {
	var r *refused
	if errors.As(err, &r) {
		if md := r.trailer(); md != nil {
			set(md)
		}
	}
	return err
}

// StreamServer is UnaryServer for streams. A stream is charged when it is opened. Limits with
// PerMessage or PerResponse are charged for each message instead: if they refuse, RecvMsg or SendMsg
// returns the error, and the stream ends with it, whatever the handler returns.
func StreamServer(limits Limits, options ...ServerOption) grpc.StreamServerInterceptor {
	s := newServer(limits, options)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		ctx, of := ss.Context(), s.of(info.FullMethod)
		stay, err := s.admission.admit(&Call{Context: ctx, Method: info.FullMethod}, of.opening)
		if err != nil {
			return withTrailer(err, ss.SetTrailer)
		}
		outcome := weir.Dropped
		defer func() { stay.done(of.ended(ctx, outcome)) }()
		if len(of.messages) == 0 && len(of.responses) == 0 {
			err = handler(srv, ss)
		} else {
			counted := &countedStream{ServerStream: ss, s: s, method: info.FullMethod, of: of}
			err = handler(srv, counted)
			if r := counted.refusal.Load(); r != nil {
				err = withTrailer(*r, ss.SetTrailer)
			}
		}
		outcome = of.outcome(err)
		return err
	}
}

// countedStream charges the messages of a stream.
type countedStream struct {
	grpc.ServerStream
	s       *server
	method  string
	of      *applying
	refusal atomic.Pointer[error] // the first; it ends the stream
}

// RecvMsg receives a message and charges it. Once the stream was refused one, it returns the same
// error.
func (c *countedStream) RecvMsg(m any) error {
	if r := c.refusal.Load(); r != nil {
		return *r
	}
	if err := c.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return c.charge(m, c.of.messages)
}

// SendMsg charges a message and sends it. Once the stream was refused one, it returns the same error.
func (c *countedStream) SendMsg(m any) error {
	if r := c.refusal.Load(); r != nil {
		return *r
	}
	if err := c.charge(m, c.of.responses); err != nil {
		return err
	}
	return c.ServerStream.SendMsg(m)
}

func (c *countedStream) charge(m any, limits []*Limit) error {
	if len(limits) == 0 {
		return nil
	}
	stay, err := c.s.admission.admit(&Call{Context: c.Context(), Method: c.method, Message: m}, limits)
	if err != nil {
		c.refusal.CompareAndSwap(nil, &err)
		return err
	}
	stay.done(weir.OK)
	return nil
}
