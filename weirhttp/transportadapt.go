package weirhttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/internal/pacing"
)

// Adapt limits how many requests are in flight with each key (PauseBy), with a limit that finds itself
// from the server's latency and refusals: see package adaptive. A request that finds no place is
// refused, or waits if the options have a Queue. It has the priority of WithPriority: levels above 0
// are adaptive.CriticalPlus, 0 is Critical, -1 SheddablePlus, and those below Sheddable.
//
// A request is in flight from when it is sent until its response's body has been closed or read to its
// end; its latency is that time, so read bodies soon, and use no Adapt for streams. Responses with 429,
// 502, 503, 504 and 529, failed connections and timeouts count as dropped, which lowers the limit. What
// the caller cancels counts as nothing.
//
// The error is a *weir.LimitedError, and the other limits are not charged. With Adapt, a response with
// 503 or 529 that does not say when to retry holds back no other request. Each key takes some
// kilobytes; MaxPauseKeys bounds them. default: no such limit
//
// Adapt panics if the options are invalid.
func Adapt(o adaptive.Options) TransportOption {
	if _, err := adaptive.New(o); err != nil {
		panic("weirhttp: Adapt: " + err.Error())
	}
	return func(t *transportSettings) { t.adapt = &o }
}

// newAdaptive returns the limiters of Adapt, whose options are valid.
func newAdaptive(o adaptive.Options, most int) *pacing.Table[adaptive.Limiter] {
	return pacing.NewTable(most, func() *adaptive.Limiter {
		l, err := adaptive.New(o)
		if err != nil {
			panic("weirhttp: Adapt: " + err.Error())
		}
		return l
	})
}

// AdaptStats returns the state of the limit that Adapt has found for requests with the key of r, for
// metrics. It is false if there is none yet.
func (t *Transport) AdaptStats(r *http.Request) (s adaptive.Stats, ok bool) {
	if t.adapting == nil {
		return s, false
	}
	l := t.adapting.Look(t.pauseKey(r))
	if l == nil {
		return s, false
	}
	return l.Stats(), true
}

// place takes a place of Adapt for a request whose other limits are charged. Without one, they are not.
func (c *call) place(ctx context.Context) (err error) {
	if c.adapt == nil {
		return nil
	}
	entered := false
	defer func() {
		if !entered {
			c.unsend(ctx)
		}
	}()
	as := adaptive.Request{Priority: adaptive.Priority(min(max(priorityOf(ctx), int(adaptive.Sheddable)), int(adaptive.CriticalPlus)))}
	if c.hedge != nil {
		if c.hold, entered = c.adapt.TryEnterAs(as); !entered {
			err = weir.ErrLimited
		}
		return err
	}
	c.hold, err = c.adapt.EnterAs(ctx, as)
	if entered = err == nil; errors.Is(err, weir.ErrLimited) {
		c.counts.noPlace.Add(1)
		err = &noPlaceError{err}
	}
	return err
}

// A noPlaceError is a *weir.LimitedError of Adapt. Its own text would say that no wait helps.
type noPlaceError struct{ limited error }

func (e *noPlaceError) Error() string {
	return "as many are in flight as its server can bear; retry later"
}

func (e *noPlaceError) Unwrap() error { return e.limited }

// unsend gives back what a request holds that is not sent.
func (c *call) unsend(ctx context.Context) {
	c.pass.Cancel()
	c.hold.Done(weir.Ignore)
	_ = c.reserved.Cancel(ctx)
	c.left.Notify()
}

// ended is the outcome of a request whose response has come, when its body has ended. whole is whether
// it has been read to its end.
func (c *call) ended(o weir.Outcome, whole bool) weir.Outcome {
	if o == weir.OK && !whole && c.request.Context().Err() != nil {
		return c.outcomeOf(c.request.Context().Err())
	}
	return o
}

// eased reports whether a response is answered by Throttle or Adapt alone: it refuses because of too much
// load, and does not say until when.
func (c *call) eased(resp *http.Response, r pacing.Report) bool {
	return (c.throttle != nil || c.adapt != nil) && unguided(resp, r)
}
