package weir

import (
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// A Place is a place in a limiter's line, held without blocking a goroutine.
type Place struct {
	l     *Limiter
	w     *waiter
	delay time.Duration
}

// Join is Wait without blocking: it takes the last place in line and returns at once.
//
//   - Allowed and no place: the cost is charged, the work may go.
//   - Allowed and a place: its turn comes, see Place.
//   - Not Allowed: nothing happened, for one of the reasons for which Wait returns at once, with maxDelay (below 0: however long) for
//     the context's deadline. RetryAfter is the least wait after which the same Join succeeds if nobody else calls.
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
	case place != nil: // nothing is charged yet: By stays what is waited for
		seen := l.era.decision(rules.Describe(l.era.rule, l.state, now, l.line.others(now), cost, 0))
		d.Remaining, d.ResetAfter, d.Level = seen.Remaining, seen.ResetAfter, seen.Level
	case cost > 0:
		l.seen(&d, now, cost)
	}
	return place, d
}

// PeekJoin is the decision that Join would return. It changes nothing.
func (l *Limiter) PeekJoin(cost int64, maxDelay time.Duration) Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	was := len(l.state)
	_, d := l.planAhead(now, cost, int64(max(maxDelay, -1)))
	l.state = l.state[:was] // a first contact is for a Join to write down
	return d
}

// Ready is closed when the turn has come and the cost is charged, when the place was given up, and when a SetLimit made the cost
// impossible: Err tells.
func (p *Place) Ready() <-chan struct{} { return p.w.ready }

// Delay is how long the wait was to be when the place was taken, if nobody leaves the line and the limit stays.
func (p *Place) Delay() time.Duration { return p.delay }

// Leave gives the place up and reports whether that was in time: nothing was charged then, and those behind move up. It reports false
// where the turn had come, which stays charged.
func (p *Place) Leave() bool { return p.l.giveUp(p.w) }

// Err is nil while waiting and after the turn has come. After Leave, and where the limit was changed so that the cost cannot fit any
// more, it is a *LimitedError.
func (p *Place) Err() error {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.w.state == inLine || p.w.state == served {
		return nil
	}
	return p.l.castOut(p.w)
}
