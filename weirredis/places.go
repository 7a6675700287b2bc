package weirredis

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// The operations of concurrency.lua, and its results.
const (
	opEnter = iota
	opLeave
	opExtend
	opLook
)

const (
	codeRefused = iota
	codeHeld
	codeWaits
	codeLate // the call came after its expiry
	codeGone // nothing is known of the id
)

// A placeOp is an operation of concurrency.lua on the places of one key, and its result.
type placeOp struct {
	op                       int
	key, id                  string
	cost, limit, queue, span int64
	// of opLeave: the end of a question to enter that the server may still receive
	unsure time.Time

	sent   time.Time // the attempt that was answered
	answer placeAnswer
}

// placeAnswer is a result of concurrency.lua.
type placeAnswer struct{ code, fence, place, retry, remaining, reset int64 }

// A placeRequest is a request about a place.
type placeRequest struct {
	request
	placeOp
}

func (s *Store) newPlace(op placeOp) *placeRequest {
	p := &placeRequest{placeOp: op}
	p.protocol, p.slot, p.place = protocolPlaces, s.slot(op.key), &p.placeOp
	return p
}

// answered carries out an operation on a place, within Timeout. It fails if there is no reply
// before the context ends: the question may then still be carried out.
func (s *Store) answered(ctx context.Context, p *placeRequest) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.end = time.Now().Add(s.opts.Timeout)
	if end, ok := ctx.Deadline(); ok && end.Before(p.end) {
		p.end = end
	}
	p.done = make(chan struct{})
	if s.holds.isClosed() || !s.queues.add(s, &p.request) {
		return errClosed
	}
	if err := s.wait(ctx, &p.request); err != nil {
		return err
	}
	return p.err
}

// margin is how much later a question to enter may expire than is known now, as what is known of
// the server's clock changes.
const margin = time.Second

// patienceInQueue is how long a waiter that does not poll keeps its place in the queue.
const patienceInQueue = time.Second

// placesCall writes questions about places down.
func (x *exchange) placesCall() Call {
	s := x.store
	b := appendInt(appendArray(nil, 4), version)
	b = appendInt(b, int64(s.opts.Grace/time.Millisecond))
	b = appendInt(b, int64(patienceInQueue/tick))
	b = appendArray(b, 7*len(x.requests))
	keys := make([]string, 0, len(x.requests))
	for _, r := range x.requests {
		p, expiry := r.place, int64(0)
		switch {
		case p.op == opEnter:
			expiry = x.part.clock.expiry(r.end)
		case !p.unsure.IsZero():
			expiry = x.part.clock.expiry(p.unsure) + int64(margin/tick)
		}
		keys = append(keys, p.key)
		b = appendString(appendInt(b, int64(p.op)), p.id)
		for _, v := range [...]int64{p.cost, p.limit, p.queue, p.span, expiry} {
			b = appendInt(b, v)
		}
	}
	return Call{Script: s.scripts.concurrency(), Send: x.source, Keys: keys, Args: []string{string(b)}}
}

// readPlaces gives each operation its result.
func (x *exchange) readPlaces(text string) {
	in := &reader{b: text}
	in.array()
	now := in.int()
	late := false
	for _, r := range x.requests {
		r.place.sent = x.sent
		if in.text() {
			r.err = fmt.Errorf("%w: %s", ErrCharge, in.string())
			continue
		}
		r.place.answer = placeAnswer{in.int(), in.int(), in.int(), in.int(), in.int(), in.int()}
		late = late || r.place.answer.code == codeLate
	}
	if in.err != nil {
		x.finish(errAnswer)
		return
	}
	if late {
		x.part.clock.set(now)
	} else {
		x.part.clock.see(now, x.sent)
	}
	x.finish(nil)
}

// placeKey is where the places of a key are kept.
func (s *Store) placeKey(name, key string) string {
	return s.opts.Prefix + holdPrefix + strings.TrimPrefix(s.key(name, key), s.opts.Prefix)
}
