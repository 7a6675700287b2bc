package weirgrpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/group"
)

// errMissing means that a call has no key, and that its limit refuses such calls.
var errMissing = errors.New("the call has no key")

// A Response is what the limits have decided about a call, or about a message of a stream.
type Response struct {
	Method   string
	Decision weir.Decision // By is the name of the limit that decided
	Waited   time.Duration // how long the call has waited
	Missing  bool          // refused because it has no key, see MissingRefuse
	Shadow   bool          // the decision is not enforced
	Err      error         // the error of a store that did not decide

	hopeless bool // no wait helps
	late     bool // the wait would have ended after the deadline
	paused   bool // the client waits, because the server has asked it to
	client   bool // decided by a client, about a call of its own

	unsent string // why a client has not sent a call, besides limits and pauses
}

// admission evaluates limits. An interceptor has one.
type admission struct {
	wait    time.Duration // the longest wait; below 0: until the context ends
	waiting chan struct{} // one for each call that waits
	observe func(Response)
	shadows chan struct{} // one for each shadow decision in the background
}

// mostShadows is how many shadow decisions may be in the background at once; more are left out.
const mostShadows = 1024

// shadowTime is how long a shadow decision in a store may take.
const shadowTime = time.Second

// stay is what an admitted call holds.
type stay struct {
	res     *group.Reservation
	shadows []*group.Reservation
}

// done leaves the places.
func (s *stay) done(o weir.Outcome) {
	if s.res != nil {
		s.res.Done(o)
	}
	for _, r := range s.shadows {
		r.Done(o)
	}
}

// cancel gives everything back: the call was never made.
func (s *stay) cancel(ctx context.Context) {
	if s.res != nil {
		_ = s.res.Cancel(ctx) // charges that a store cannot give back stay
	}
	for _, r := range s.shadows {
		_ = r.Cancel(ctx)
	}
}

// admit charges the limits that apply. The error is a *refused, or a status.
func (a *admission) admit(c *Call, limits []*Limit) (*stay, error) {
	var few [4]group.Charge
	charges := few[:0]
	m := Response{Method: c.Method, hopeless: true, client: c.client}
	for _, l := range limits {
		if l.shadow {
			continue
		}
		key, cost, counts, err := l.keyAndCost(c)
		switch {
		case err != nil:
			m.Missing, m.Decision = true, weir.Decision{RetryAfter: weir.Never}
			a.report(m)
			return nil, &refused{m}
		case cost < 0:
			return nil, status.Error(codes.InvalidArgument, c.about("the cost of this call is not valid"))
		case counts:
			charges = append(charges, l.charge(c, key, cost))
			m.hopeless = m.hopeless && !l.places // when another call leaves its place is not known
		}
	}
	s, admitted := &stay{}, false
	defer func() {
		if !admitted {
			s.cancel(c.Context) // a function of Observe that panics keeps no place
		}
	}()
	if len(charges) > 0 {
		if err := a.charge(c, charges, s, &m); err != nil {
			return nil, err
		}
	}
	a.dryRun(c, limits, s)
	admitted = true
	return s, nil
}

// charge makes the charges, at once or after a wait.
func (a *admission) charge(c *Call, charges []group.Charge, s *stay, m *Response) (err error) {
	s.res, m.Decision, err = group.Take(c.Context, charges...)
	if err == nil && !m.Decision.Allowed && a.wait != 0 {
		err = a.waitTurn(c, charges, s, m)
	}
	switch {
	case err == nil:
	case c.Context.Err() != nil:
		return status.FromContextError(c.Context.Err()).Err()
	case errors.Is(err, weir.ErrCharge), errors.Is(err, weir.ErrCost): // no store can carry it out
		m.Decision = weir.Decision{RetryAfter: weir.Never, By: m.Decision.By, Source: weir.SourceStore}
	default:
		m.Err = err
		a.report(*m)
		return status.Error(codes.Unavailable, c.about("a limit cannot be evaluated"))
	}
	if a.report(*m); !m.Decision.Allowed {
		return &refused{*m}
	}
	return nil
}

// waitTurn waits until a call that was refused may go on.
func (a *admission) waitTurn(c *Call, charges []group.Charge, s *stay, m *Response) error {
	select {
	case a.waiting <- struct{}{}:
		defer func() { <-a.waiting }()
	default:
		return nil // too many wait
	}
	ctx, began := c.Context, time.Now()
	if a.wait > 0 {
		bound, cancel := context.WithTimeout(ctx, a.wait)
		defer cancel()
		ctx = bound
	}
	res, err := group.Wait(ctx, charges...)
	m.Waited = time.Since(began)
	var limited *weir.LimitedError
	switch {
	case err == nil:
		s.res = res
		m.Decision.Allowed, m.Decision.RetryAfter, m.Decision.Remaining = true, 0, 0
		return nil
	case errors.As(err, &limited):
		m.Decision, m.late = limited.Decision, limited.Deadline
		return nil
	case errors.Is(err, weir.ErrLimited), c.Context.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return nil // there is no room for another key, or the wait was too long
	}
	return err
}

func (a *admission) report(m Response) {
	if a.observe != nil {
		a.observe(m)
	}
}

// dryRun evaluates the shadow limits of an admitted call, each by itself.
func (a *admission) dryRun(c *Call, limits []*Limit, s *stay) {
	for _, l := range limits {
		if !l.shadow {
			continue
		}
		key, cost, counts, err := l.keyAndCost(c)
		switch {
		case err != nil:
			a.report(Response{Method: c.Method, Shadow: true, Missing: true, Decision: weir.Decision{RetryAfter: weir.Never}})
		case !counts || cost < 0:
		case l.stored:
			a.decideLater(c, l.charge(c, key, cost))
		default:
			r, d, err := group.Take(c.Context, l.charge(c, key, cost))
			s.shadows = append(s.shadows, r)
			a.report(Response{Method: c.Method, Shadow: true, Decision: d, Err: err})
		}
	}
}

// decideLater evaluates a shadow limit in a store, so that no call waits for it.
func (a *admission) decideLater(c *Call, charge group.Charge) {
	select {
	case a.shadows <- struct{}{}:
	default:
		return
	}
	ctx, method := context.WithoutCancel(c.Context), c.Method
	go func() {
		defer func() { <-a.shadows }()
		ctx, cancel := context.WithTimeout(ctx, shadowTime)
		defer cancel()
		_, d, err := group.Take(ctx, charge)
		a.report(Response{Method: method, Shadow: true, Decision: d, Err: err})
	}()
}
