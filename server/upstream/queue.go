package upstream

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/internal/list"
)

// A queue has the requests that wait for a place at an adaptive limit. Each waits in the queue of one target. A
// place at another target, for which nobody waits there, is handed to the first of them: a slow target must not
// refuse what the others could serve. The upstream's lock guards it but for waiting.
type queue struct {
	waiting atomic.Int64              // how many wait
	levels  [levels]list.List[waiter] // the most important first
}

const levels = int(adaptive.CriticalPlus-adaptive.Sheddable) + 1

// level returns where requests of a priority stand. What is beyond the priorities counts as the nearest one.
func (q *queue) level(p adaptive.Priority) *list.List[waiter] {
	return &q.levels[adaptive.CriticalPlus-min(max(p, adaptive.Sheddable), adaptive.CriticalPlus)]
}

// waiter is a request that waits.
type waiter struct {
	node   list.Node[waiter]
	as     adaptive.Request
	at     *Target
	leave  context.CancelFunc // ends the wait
	handed *Target            // where it has a place that was handed over; nil for none
	hold   adaptive.Hold      // that place
}

// await waits for a place, outside of the upstream's lock. What leaves the adaptive limit early, such as a
// WebSocket, counts in max_requests only: both must have a place.
func (u *Upstream) await(ctx context.Context, as adaptive.Request) (Exchange, error) {
	s := u.settings.Load()
	most := int64(s.spec.MaxRequests)
	wait, leave := context.WithCancel(ctx)
	defer leave()
	w := &waiter{as: as, leave: leave}
	u.mu.Lock()
	now := u.opts.Now()
	w.at = u.shortest(func(t *Target) bool { return t.in(now) && t.limit != nil && (most == 0 || t.inFlight < most) })
	if w.at == nil {
		u.mu.Unlock()
		return Exchange{}, ErrOverloaded
	}
	limit := w.at.limit // an update may replace it
	w.at.queued++
	u.queue.level(as.Priority).PushBack(&w.node, w)
	u.queue.waiting.Add(1)
	// a place that was given back since Enter has looked went to nobody who waits
	if t, hold, err := u.find(s, now, as, true); err == nil {
		defer u.mu.Unlock()
		u.unlist(w)
		return u.begin(t, hold, now), nil
	}
	u.mu.Unlock()

	hold, err := limit.EnterAs(wait, as)

	u.mu.Lock()
	u.unlist(w)
	t, spare := w.at, adaptive.Hold{}
	if w.handed != nil { // it may have got another place at the same time
		t, hold, spare, err = w.handed, w.hold, hold, ctx.Err()
	}
	if err == nil && most > 0 && t.inFlight >= most {
		err = ErrFull
	}
	var e Exchange
	if err == nil {
		e, hold = u.begin(t, hold, u.opts.Now()), adaptive.Hold{}
	}
	u.mu.Unlock()
	u.left(w.at, spare, weir.Ignore)
	u.left(t, hold, weir.Ignore)
	return e, err
}

// unlist removes a request from the queue. The caller holds the upstream's lock.
func (u *Upstream) unlist(w *waiter) {
	if w.node.Listed() {
		u.queue.level(w.as.Priority).Remove(&w.node)
		u.queue.waiting.Add(-1)
		w.at.queued--
	}
}

// shortest returns the target that has the fewest waiting requests for each of its places, as requests finish in
// proportion to the limit. Full queues come last. The caller holds the upstream's lock.
func (u *Upstream) shortest(may func(*Target) bool) (best *Target) {
	var least float64
	for _, t := range u.targets {
		if !may(t) {
			continue
		}
		each := float64(t.queued+1) / float64(max(t.limit.Limit(), 1))
		if t.queued >= t.adaptive.Queue.Length {
			each += math.MaxInt32
		}
		if best == nil || each < least {
			best, least = t, each
		}
	}
	return best
}

// left gives back a place at a target; the zero Hold is none. If nobody waits for it there, a request that waits
// elsewhere gets it.
func (u *Upstream) left(t *Target, h adaptive.Hold, o weir.Outcome) {
	h.Done(o)
	if h == (adaptive.Hold{}) || u.queue.waiting.Load() == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	most, now := int64(u.settings.Load().spec.MaxRequests), u.opts.Now()
	for i := range u.queue.levels {
		for {
			w := u.queue.levels[i].First()
			if w == nil {
				break
			}
			if t.queued > 0 || t.limit == nil || !t.in(now) || most > 0 && t.inFlight >= most || !t.limit.HasPlace(w.as) {
				return
			}
			var ok bool
			if w.hold, ok = t.limit.Attempt(w.as); !ok {
				return
			}
			w.handed = t
			u.unlist(w)
			w.leave()
		}
	}
}
