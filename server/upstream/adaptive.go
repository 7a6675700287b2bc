package upstream

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/policy"
)

// ErrOverloaded is the error of Pick if no target has a place for a request, by its adaptive limit.
var ErrOverloaded = errors.New("the adaptive limits of all targets of the upstream are reached")

// adapt gives a target the adaptive limit of new settings. One whose parameters stay keeps what it has
// learnt. The caller holds the upstream's lock.
func (t *Target) adapt(of policy.Adaptive, limit *adaptive.Limiter) {
	if t.limit == nil || !reflect.DeepEqual(t.adaptive, of) {
		t.adaptive, t.limit = of, limit
	}
}

// hasPlace reports whether a request may find a place at the target's adaptive limit.
func (t *Target) hasPlace(as adaptive.Request) bool { return t.limit == nil || t.limit.HasPlace(as) }

// attempt takes a place at the target's adaptive limit. Without one, the limit counts nothing.
func (t *Target) attempt(as adaptive.Request) (h adaptive.Hold, ok bool) {
	if t.limit == nil {
		return h, true
	}
	return t.limit.Attempt(as)
}

// most is how many targets are asked for a place. Those that seem to have none are not asked.
const most = 8

// choose picks the least loaded of the targets that may be picked and have a place, and takes the place. A
// target without one is left to its work: others may have places. overloaded reports that some target
// had none. It is no refusal for a request that waits for a place then.
func (u *Upstream) choose(as adaptive.Request, waits bool, may func(*Target) bool) (best *Target, h adaptive.Hold, overloaded bool) {
	var refused []*Target
	for range most {
		best = u.least(func(t *Target) bool {
			if !may(t) || slices.Contains(refused, t) {
				return false
			}
			has := t.hasPlace(as)
			overloaded = overloaded || !has
			return has
		})
		if best == nil {
			break
		}
		var ok bool
		if h, ok = best.attempt(as); ok {
			return best, h, false
		}
		refused, overloaded = append(refused, best), true
	}
	if !overloaded || waits {
		return nil, h, overloaded
	}
	// One of the limits hears of the refusal, and may have a place by now.
	if len(refused) > 0 {
		best = refused[0]
	} else {
		best = u.least(func(t *Target) bool { return may(t) && t.limit != nil })
	}
	if best != nil {
		if h, ok := best.limit.TryEnterAs(as); ok {
			return best, h, false
		}
	}
	return nil, adaptive.Hold{}, true
}

// A Place is the place of a request at a target, by its adaptive limit. It is taken before the request is
// sent, and given back by Done. It is not safe for concurrent use.
type Place struct {
	exchange Exchange
	used     bool
	as       adaptive.Request
	target   *Target       // that has the request now
	hold     adaptive.Hold // there
}

// Adaptive reports whether the targets have adaptive limits.
func (u *Upstream) Adaptive() bool { return u.settings.Load().spec.Adaptive.On }

// Full reports whether no target has a place for a request that does not wait. Then one of the adaptive limits
// counts it as refused. It is a look ahead: the request takes its place with Enter.
func (u *Upstream) Full(as adaptive.Request) bool {
	s := u.settings.Load()
	most, now := int64(s.spec.MaxRequests), u.opts.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, t := range u.targets {
		if t.in(now) && (most == 0 || t.inFlight < most) && (t.limit == nil || t.limit.HasPlace(as)) {
			return false
		}
	}
	_, hold, err := u.find(s, now, as, false)
	hold.Done(weir.Ignore)
	return errors.Is(err, ErrOverloaded)
}

// Enter picks a target, as Pick does, and takes a place there for a request with WithPlace or
// Direct.At. If the limits have queues, it may wait for one: within the context that queued returns, unless queued
// is nil or returns an error. The caller calls Done of the place when the response has ended.
func (u *Upstream) Enter(ctx context.Context, as adaptive.Request, queued func() (context.Context, error)) (*Place, error) {
	waits := u.settings.Load().spec.Adaptive.Queue.Length > 0
	e, err := u.pick(as, waits)
	if errors.Is(err, ErrOverloaded) && waits {
		err = nil
		if queued != nil {
			ctx, err = queued()
		}
		if err == nil {
			e, err = u.await(ctx, as)
		}
	}
	if err != nil {
		return nil, err
	}
	p := &Place{target: e.Target, hold: e.hold, as: as}
	e.place = p
	p.exchange = e
	return p, nil
}

// Done gives the place back, and says how the request went. Only its first call counts. nil is no place.
func (p *Place) Done(o weir.Outcome) {
	if p == nil {
		return
	}
	if !p.used {
		p.used = true
		p.exchange.Done(Left, "")
		o = weir.Ignore
	}
	p.exchange.u.left(p.target, p.hold, o)
}

// take returns the exchange that was picked for the first attempt.
func (p *Place) take() (e Exchange, ok bool) {
	if p == nil || p.used {
		return e, false
	}
	p.used = true
	return p.exchange, true
}

// follow moves the place to the target of another attempt.
func (p *Place) follow(e *Exchange) {
	if p != nil {
		e.place, p.target, p.hold = p, e.Target, e.hold
	}
}

// request is who asks for further places.
func (p *Place) request() (as adaptive.Request) {
	if p != nil {
		as = p.as
	}
	return as
}

// release gives back the place of an exchange that has ended. With a Place, the caller knows better how
// the response went.
func (e *Exchange) release(o Outcome) {
	switch {
	case o == Failed:
		e.u.left(e.Target, e.hold, weir.Dropped)
	case e.place != nil:
	case o == Answered:
		e.u.left(e.Target, e.hold, weir.OK)
	default:
		e.u.left(e.Target, e.hold, weir.Ignore)
	}
}

type placeKey struct{}

// WithPlace returns a context for a request that has a place.
func WithPlace(ctx context.Context, p *Place) context.Context {
	return context.WithValue(ctx, placeKey{}, p)
}

func placeOf(ctx context.Context) *Place {
	p, _ := ctx.Value(placeKey{}).(*Place)
	return p
}

type enterKey struct{}

// WithEnter returns a context for a request that takes its place when its body has come as far as it is buffered,
// before it is sent. An error of enter, which may return nil for no place, is that of RoundTrip.
func WithEnter(ctx context.Context, enter func() (*Place, error)) context.Context {
	return context.WithValue(ctx, enterKey{}, enter)
}

// placeNow returns the place of a request whose body has come; nil for none.
func placeNow(ctx context.Context) (*Place, error) {
	if enter, ok := ctx.Value(enterKey{}).(func() (*Place, error)); ok {
		return enter()
	}
	return placeOf(ctx), nil
}

// AdaptiveStats are the counters of a target's adaptive limit.
type AdaptiveStats struct {
	On bool
	adaptive.Stats
}

func (t *Target) adaptiveStats() AdaptiveStats {
	if t.limit == nil {
		return AdaptiveStats{}
	}
	return AdaptiveStats{On: true, Stats: t.limit.Stats()}
}
