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

// Join is Wait without blocking: it takes the last place in the queue and returns at once. maxDelay
// plays the part of the context's deadline; below 0, any delay is accepted.
//
//   - Allowed and no place: the cost is charged, and the work may go.
//   - Allowed and a place: the work may go when its turn comes, see Place.Ready.
//   - Not Allowed: nothing was charged, for one of the reasons for which Wait returns at once.
//     RetryAfter is the least wait after which the same Join succeeds if nobody else calls.
func (l *Limiter) Join(cost int64, maxDelay time.Duration) (*Place, Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	p, d := l.planAhead(now, cost, int64(max(maxDelay, -1)))
	if !d.Allowed {
		return nil, d
	}
	var place *Place
	if p.Wait > 0 {
		place = &Place{
			l:     l,
			w:     &waiter{ready: make(chan struct{}), cost: cost, due: later(now, p.Wait), place: true},
			delay: span(p.Wait, l.era.rule.Unit()),
		}
		l.line.join(place.w)
	} else if cost > 0 {
		l.charge(now, cost)
	}
	switch {
	case place != nil: // nothing is charged yet: By stays the limit that the place waits for
		seen := l.era.decision(rules.Describe(l.era.rule, l.state, now, l.line.others(now), cost, 0))
		d.Remaining, d.ResetAfter, d.Level = seen.Remaining, seen.ResetAfter, seen.Level
	case cost > 0:
		l.seen(&d, now, cost)
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
	l.state = l.state[:was] // only a Join may store the state of a first contact
	return d
}

// Ready is closed when the wait is over, and Err then says how:
//
//   - The turn has come, and the cost is charged.
//   - The place was given up by Leave.
//   - A SetLimit made the cost impossible.
func (p *Place) Ready() <-chan struct{} { return p.w.ready }

// Delay is how long the wait was expected to be when the place was taken, if nobody leaves the
// queue and the limit does not change.
func (p *Place) Delay() time.Duration { return p.delay }

// Leave gives the place up. It reports true if that was in time: then nothing is charged, and those
// behind move up. It reports false if the turn had already come; the cost stays charged.
func (p *Place) Leave() bool { return p.l.giveUp(p.w) }

// Err is nil while waiting and after the turn has come. It is a *LimitedError after Leave, and
// after a change of the limit that made the cost impossible.
func (p *Place) Err() error {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.w.state == inLine || p.w.state == served {
		return nil
	}
	return p.l.castOut(p.w)
}
