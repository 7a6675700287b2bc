package weirgrpc

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pacing"
)

// StreamClient is UnaryClient for streams, which are not retried. A stream is charged when it is
// opened. Limits with PerMessage are charged for each message that it sends instead, and limits with
// PerResponse for each that it receives: SendMsg and RecvMsg wait. If one fails because of the
// deadline, the stream ends.
//
// A place of InFlight is held until the stream has ended, as the documentation of
// grpc.ClientConn.NewStream says how: for example when RecvMsg returns an error, io.EOF included, or
// when the context is cancelled.
func StreamClient(limits Limits, options ...ClientOption) grpc.StreamClientInterceptor {
	c := newClient(limits, options)
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		key, of := c.key(cc, method), c.of(method)
		to, arrived := c.callee(key), time.Now()
		if err := to.throttled(method); err != nil {
			return nil, err
		}
		pass, stay, err := c.enter(ctx, key, arrived, &Call{Context: ctx, Method: method, client: true}, of.opening)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(ctx)
		s := &pacedStream{client: c, key: key, method: method, of: of, ctx: ctx, cancel: cancel, pass: pass, stay: stay, one: !desc.ServerStreams, to: to, arrived: arrived, sent: time.Now()}
		c.counts.Sent.Add(1)
		opened := false
		defer func() {
			if !opened {
				s.end(err, nil)
			}
		}()
		if s.ClientStream, err = streamer(ctx, desc, cc, method, opts...); err != nil {
			return nil, err
		}
		opened = true
		// a call of RecvMsg may notice this later
		context.AfterFunc(ctx, func() { s.end(status.FromContextError(ctx.Err()).Err(), nil) })
		return s, nil
	}
}

// pacedStream is a stream of a client.
type pacedStream struct {
	grpc.ClientStream
	client      *client
	key, method string
	of          *applying
	ctx         context.Context
	cancel      func()
	one         bool // the server sends one message

	pass *pacing.Pass
	stay *stay
	over sync.Once

	to            *callee
	arrived, sent time.Time
	told          sync.Once // the throttle
}

// tell tells the throttle how the stream has gone, once.
func (s *pacedStream) tell(o weir.Outcome) { s.told.Do(func() { s.to.result(o) }) }

// SendMsg waits for the limits of messages, and sends.
func (s *pacedStream) SendMsg(m any) error {
	if err := s.charge(m, s.of.messages); err != nil {
		return err
	}
	return s.ClientStream.SendMsg(m)
}

// charge waits until the limits admit a message.
func (s *pacedStream) charge(m any, limits []*Limit) error {
	if len(limits) == 0 {
		return nil
	}
	stay, err := s.client.admission.admit(&Call{Context: s.ctx, Method: s.method, Message: m, client: true}, limits)
	if err != nil {
		s.cancel()
		return err
	}
	stay.done(weir.OK)
	return nil
}

// RecvMsg receives, waits for the limits of responses, and notices the end of the stream.
func (s *pacedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		if late := s.charge(m, s.of.responses); late != nil {
			return late
		}
	}
	switch {
	case err != nil:
		s.end(err, s.Trailer())
	case s.one:
		s.end(nil, nil)
	default:
		s.pass.Done(pacing.Report{}) // the server has accepted the stream
		s.tell(weir.OK)
	}
	return err
}

// end ends what the stream holds, once.
func (s *pacedStream) end(err error, trailer metadata.MD) {
	s.over.Do(func() {
		if err == io.EOF {
			err = nil
		}
		a := adviceOf(err, trailer)
		s.pass.Done(pacing.Report{Refused: a.refused, Pause: a.pause})
		if a.refused {
			s.client.gate.Pause(s.key, a.pause) // the pass may have ended with the first message
		}
		if a.sent {
			s.tell((&flight{sent: s.sent}).outcomeOf(s.ctx, err, s.arrived))
		}
		s.stay.done(s.of.ended(s.ctx, outcomeOf(err)))
		s.cancel()
	})
}
