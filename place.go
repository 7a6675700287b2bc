package weir

import (
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// A Place is a place in a limiter's queue that blocks no goroutine.
type Place struct {
	l     *Limiter
	w     *waiter
	delay time.Duration
}

// Join is Wait without blocking: it takes the last place in the queue and returns at once. A maxDelay
// below 0 accepts any delay; otherwise it has the effect of a deadline in Wait's context.
//
//   - Allowed and no place: the cost is charged, and the work may go.
//   - Allowed and a place: the work may go when its turn comes, see Place.Ready.
//   - Not Allowed: nothing was charged, for one of the reasons for which Wait returns at once.
//     RetryAfter is the least time after which the same Join succeeds if no other caller comes.
func (l *Limiter) Join(cost int64, maxDelay time.Duration) (*Place, Decision) {
	return l.takePlace(cost, maxDelay, false)
}

// JoinKept is Join for work that may be settled or cancelled after its turn has come, because
// something else refuses it then. If it is allowed, there always is a place: one whose turn has
// come, with a Delay of 0, if the work may go at once.
//
// From its turn on, a kept place is an outstanding reservation. End each with Settle or Cancel,
// also if all of its cost was used.
func (l *Limiter) JoinKept(cost int64, maxDelay time.Duration) (*Place, Decision) {
	return l.takePlace(cost, maxDelay, true)
}

func (l *Limiter) takePlace(cost int64, maxDelay time.Duration, keep bool) (*Place, Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	p, d := l.planAhead(now, cost, int64(max(maxDelay, -1)))
	if !d.Allowed {
		return nil, d
	}
	var place *Place
	if p.Wait > 0 || keep {
		place = &Place{
			l:     l,
			w:     &waiter{ready: make(chan struct{}), cost: cost, due: later(now, p.Wait), place: true, keep: keep},
			delay: span(p.Wait, l.version.rule.Unit()),
		}
	}
	switch {
	case p.Wait > 0:
		l.queue.join(place.w)
	case keep:
		place.w.state = served
		close(place.w.ready)
		if cost > 0 {
			place.w.promise = &promise{version: l.version, after: l.reserve(now, now, cost)}
		}
	case cost > 0:
		l.charge(now, cost)
	}
	switch {
	case p.Wait > 0: // nothing is charged yet: By stays the limit that the place waits for
		seen := l.version.decision(rules.Describe(l.version.rule, l.state, now, l.queue.aheadOf(now), cost, 0))
		d.Remaining, d.ResetAfter, d.Level = seen.Remaining, seen.ResetAfter, seen.Level
	case cost > 0:
		l.afterCharge(&d, now, cost)
	}
	return place, d
}

// PeekJoin returns the decision that Join would return. It changes nothing.
func (l *Limiter) PeekJoin(cost int64, maxDelay time.Duration) Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	was := len(l.state)
	_, d := l.planAhead(now, cost, int64(max(maxDelay, -1)))
	l.state = l.state[:was] // only a Join stores the state that a limit's first call begins
	return d
}

// Ready is closed when the wait is over. Err then tells which of these happened:
//
//   - The turn has come, and the cost is charged.
//   - The place was given up by Leave, or settled while it waited.
//   - A SetLimit made the cost impossible.
func (p *Place) Ready() <-chan struct{} { return p.w.ready }

// Delay is how long the wait was expected to be when the place was taken, if nobody leaves the
// queue and the limit does not change.
func (p *Place) Delay() time.Duration { return p.delay }

// Leave gives the place up. It reports true if that was in time: then nothing is charged, and the
// callers behind move up. It reports false if the turn had already come; the cost stays charged, and only a
// kept place can give it back.
func (p *Place) Leave() bool { return p.l.giveUp(p.w) }

// Settle replaces the cost of a kept place by the actual cost, after the work, as
// Reservation.Settle does. A place that still waits leaves the queue, and only the actual cost is
// charged. The first Settle or Cancel wins, and later ones do nothing. It does nothing for a place
// of Join, after Leave, and with an actual cost below 0.
func (p *Place) Settle(actual int64) {
	l, w := p.l, p.w
	if actual < 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	if !w.keep {
		return
	}
	w.keep = false
	switch {
	case w.state == queued:
		l.leaveQueue(now, w)
		if actual > 0 {
			l.chargeDebt(now, actual)
		}
	case w.state == served && w.promise != nil:
		l.settle(now, w.promise.version, w.promise.after, w.cost, actual)
	case w.state == served && actual > 0: // the cost was 0, so there is no reservation
		l.chargeDebt(now, actual)
	}
}

// Cancel gives a kept place back, before or after its turn: the limiter is then as if it had never
// been taken, as with Reservation.Cancel.
func (p *Place) Cancel() { p.Settle(0) }

// Err is nil while waiting and after the turn has come. It is a *LimitedError after Leave, and
// after a change of the limit that made the cost impossible.
func (p *Place) Err() error {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.w.state == queued || p.w.state == served {
		return nil
	}
	return p.l.errorOfWaiter(p.w)
}
