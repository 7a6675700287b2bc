package policy

import (
	"context"
	"net/http"
	"net/url"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
)

// VirtualUpstreams are the adaptive limits of upstreams in virtual time, one for each target, as the gateway has
// them. A request goes to the target with the fewest requests in flight, for its weight. They are not safe for
// concurrent use.
type VirtualUpstreams struct {
	targets []virtualTarget
	turn    int // which target is looked at first
}

type virtualTarget struct {
	upstream, addr string
	weight         int64
	limit          *adaptive.Limiter
}

// VirtualUpstreams returns the adaptive limits of the upstreams of an engine on a virtual clock.
func (e *Engine) VirtualUpstreams() (*VirtualUpstreams, error) {
	u := &VirtualUpstreams{}
	for i := range e.policy.Upstreams {
		of := &e.policy.Upstreams[i]
		for _, t := range of.All() {
			limit, err := of.Adaptive.limiter(AdaptiveName(of.Name), e.opts.Signals, e.opts.Clock)
			if err != nil {
				return nil, err
			}
			addr := t.URL
			if at, err := url.Parse(t.URL); err == nil {
				addr = at.Host
			}
			if limit != nil {
				u.targets = append(u.targets, virtualTarget{of.Name, addr, int64(max(t.Weight, 1)), limit})
			}
		}
	}
	return u, nil
}

// Counts returns the state of the limits, and the addresses of their targets.
func (u *VirtualUpstreams) Counts() (all []AdaptiveCount, addrs []string) {
	for i := range u.targets {
		t := &u.targets[i]
		all = append(all, AdaptiveCount{AdaptiveName(t.upstream), t.limit.Stats()})
		addrs = append(addrs, t.addr)
	}
	return all, addrs
}

// least returns the target of an upstream that a request goes to, nil for an upstream without adaptive limits, and
// whether it has a place.
func (u *VirtualUpstreams) least(upstream string, as adaptive.Request) (best *virtualTarget, free bool) {
	u.turn++
	for i := range u.targets {
		t := &u.targets[(i+u.turn)%len(u.targets)]
		if t.upstream != upstream {
			continue
		}
		has := t.limit.HasPlace(as)
		if best == nil || has && !free || has == free && t.limit.InFlight()*best.weight < best.limit.InFlight()*t.weight {
			best, free = t, has
		}
	}
	return best, free
}

// Full reports whether no target of an upstream has a place: see Upstreams.
func (u *VirtualUpstreams) Full(upstream string, as adaptive.Request) bool {
	t, free := u.least(upstream, as)
	return t != nil && !free && t.limit.Refuses(as)
}

// EnterVirtual is EnterUpstream in virtual time, for callers that know how long the work takes, such as the replay
// of a log. It takes places at adaptive limits alone, and none for a request that waits in a queue first. leave
// gives them back; it is nil if there are none. The error is that of EnterUpstream.
func (v *Verdict) EnterVirtual(u *VirtualUpstreams) (leave func(weir.Outcome), err error) {
	if v.Measured() && v.Outcome == Allow {
		a := &v.rare.admits
		v.rare.places = nil
		err := v.admit(context.Background(), nil, func(_ context.Context, as adaptive.Request, _ func() (context.Context, error)) (UpstreamPlace, error) {
			t, _ := u.least(a.upstream, as)
			hold, ok := t.limit.TryEnterAs(as)
			if !ok {
				return nil, &weir.LimitedError{}
			}
			return hold, nil
		})
		if err != nil {
			return nil, err
		}
		entered := *a
		leave = entered.leave
	}
	v.WithoutPlaces()
	return leave, nil
}

// OutcomeOf returns what the status of an upstream's response says about its load. 499 is how nginx logs a client
// that has left.
func OutcomeOf(status int) weir.Outcome {
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return weir.Dropped
	case 499:
		return weir.Ignore
	}
	return weir.OK
}
