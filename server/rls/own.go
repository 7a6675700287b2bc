package rls

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/envoy"
)

// limitKeys are the keys by which the first entry of a descriptor names a limit of the policy. With
// generic_key, Envoy needs no descriptor_key.
const (
	limitKey   = "limit"
	genericKey = "generic_key"
	// names the limit of a cost that is known only now, when the work is done
	settleKey = "settle"
)

// own are the descriptors of a request that limits of the policy decide about. All that have hits are
// charged together or not at all.
type own struct {
	charged, looked, settled asked
	refused                  bool
	retry                    time.Duration // of all limits together; weir.Never if no wait helps
}

// asked are the asks of a request, with the positions of their descriptors.
type asked struct {
	asks []policy.Ask
	at   []int
}

func (a *asked) add(ask policy.Ask, at int) { a.asks, a.at = append(a.asks, ask), append(a.at, at) }

// A named limit of the policy is what a descriptor asks for.
type named struct {
	limit   string
	key     []string
	settles bool // the hits are the cost of work that is done
}

// name notes that a limit of the policy decides about a descriptor. Without hits, the limit is only
// peeked at.
func (c *call) name(at int, n named, d *descriptor) error {
	if d.gives {
		return status.Errorf(codes.Unimplemented, "negative hits for %s: a limit of the policy gives back only what a client has reserved; nothing was counted", n.limit)
	}
	if c.own == nil {
		c.own = new(own)
	}
	ask := policy.Ask{Limit: n.limit, Key: n.key, Cost: int64(min(d.hits, math.MaxInt64))}
	switch {
	case d.hits == 0:
		ask.Cost = 1
		c.own.looked.add(ask, at)
	case n.settles:
		c.own.settled.add(ask, at)
	default:
		c.own.charged.add(ask, at)
	}
	return nil
}

// nameByEntry finds the limit that the first entry of each descriptor names. Without files of Envoy,
// this is what descriptors mean: [limit=per-user, user=ann] is the key ann of the limit per-user. A
// descriptor that names no limit of the policy has none.
func (c *call) nameByEntry() error {
	known := c.rules.limits
	for i, d := range c.req.Descriptors {
		out := descriptor{hit: -1, hits: hitsOf(c.req, d), gives: d.GetIsNegativeHits()}
		c.descriptors = append(c.descriptors, out)
		if d.GetLimit() != nil {
			return status.Error(codes.InvalidArgument, "a descriptor brings a limit: that needs files of Envoy (listen.rls.envoy)")
		}
		entries := d.GetEntries()
		if len(entries) == 0 || !slices.Contains([]string{limitKey, genericKey, settleKey}, entries[0].GetKey()) || !known[entries[0].GetValue()] {
			c.face.metrics.unnamed.Add(1)
			continue
		}
		key := make([]string, 0, len(entries)-1)
		for _, e := range entries[1:] {
			key = append(key, e.GetValue())
		}
		if err := c.name(i, named{entries[0].GetValue(), key, entries[0].GetKey() == settleKey}, &out); err != nil {
			return err
		}
	}
	return nil
}

// take evaluates the limits of the policy.
func (c *call) take(ctx context.Context) error {
	if c.own == nil {
		return nil
	}
	e := c.face.policy.Engine()
	if err := c.own.check(e); err != nil {
		return err
	}
	for _, part := range []struct {
		of  *asked
		ask func(context.Context, []policy.Ask) (*policy.Answer, error)
	}{{&c.own.charged, e.Take}, {&c.own.looked, e.Peek}} {
		if len(part.of.asks) == 0 {
			continue
		}
		a, err := part.ask(ctx, part.of.asks)
		var wrong *policy.AskError
		switch {
		case errors.As(err, &wrong):
			return status.Error(codes.InvalidArgument, wrong.Error())
		case err != nil:
			return status.FromContextError(err).Err()
		}
		c.answered(part.of, a)
	}
	return c.settle(ctx, e)
}

// check finds what is wrong before anything is charged: an error charges nothing.
func (o *own) check(e *policy.Engine) error {
	if len(o.looked.asks) == 0 && len(o.settled.asks) == 0 {
		return nil // a single call of the engine checks by itself
	}
	for _, of := range []*asked{&o.charged, &o.looked, &o.settled} {
		if len(of.asks) == 0 {
			continue
		}
		if err := e.Check(of.asks); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
	}
	return nil
}

// settle charges costs of work that is done, into debt if need be.
func (c *call) settle(ctx context.Context, e *policy.Engine) error {
	for i, ask := range c.own.settled.asks {
		a, err := e.ChargeDone(ctx, ask)
		var wrong *policy.AskError
		switch {
		case errors.As(err, &wrong):
			return status.Error(codes.InvalidArgument, wrong.Error())
		case err != nil:
			return status.FromContextError(err).Err()
		}
		c.answered(&asked{at: c.own.settled.at[i : i+1]}, a)
	}
	return nil
}

// answered notes what the limits of the policy decided.
func (c *call) answered(of *asked, a *policy.Answer) {
	for i := range a.Each {
		one := &a.Each[i]
		d := one.Decision
		refused := !a.Allowed && !one.Shadow && !d.Allowed && (d.Limit > 0 || one.Limit == a.Limit)
		c.descriptors[of.at[i]].own = ownStatus(one, refused)
	}
	if a.Allowed {
		return
	}
	if wait := a.Decision.RetryAfter; !c.own.refused || wait == weir.Never || c.own.retry != weir.Never && wait > c.own.retry {
		c.own.retry = wait
	}
	c.own.refused = true
}

// ownStatus makes the status of a descriptor that a limit of the policy decided about. The window of
// Envoy's header is that of a unit, if there is one of that length.
func ownStatus(a *policy.Answered, refused bool) *pb.RateLimitResponse_DescriptorStatus {
	s := &pb.RateLimitResponse_DescriptorStatus{Code: pb.RateLimitResponse_OK}
	d := a.Decision
	if refused {
		s.Code = pb.RateLimitResponse_OVER_LIMIT
	}
	if d.Limit <= 0 || a.Exempt || a.Shadow {
		return s
	}
	s.CurrentLimit = &pb.RateLimitResponse_RateLimit{Name: a.Limit, RequestsPerUnit: small(d.Limit)}
	for _, u := range envoy.Units() {
		if u.Length() == a.Window {
			s.CurrentLimit.Unit = protoUnits[u]
		}
	}
	wait := d.ResetAfter
	if refused {
		wait = d.RetryAfter
	} else {
		s.LimitRemaining = small(d.Remaining)
	}
	if wait != weir.Never {
		s.DurationUntilReset = durationpb.New(wholeSeconds(wait))
	}
	return s
}

// small returns a number as 32 bits hold it.
func small(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

// wholeSeconds rounds up to whole seconds.
func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// retryAfter is the response header of a request that limits of the policy refused.
func (o *own) retryAfter() []*core.HeaderValue {
	if o == nil || !o.refused || o.retry <= 0 {
		return nil
	}
	seconds := int64(wholeSeconds(o.retry) / time.Second)
	return []*core.HeaderValue{{Key: "retry-after", Value: strconv.FormatInt(max(seconds, 1), 10)}}
}
