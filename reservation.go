package weir

import (
	"time"

	"github.com/weirflow/weir/internal/claim"
	"github.com/weirflow/weir/internal/rules"
)

// A Reservation is a charge made ahead: its work may go after Delay. It is a plain value; copies
// are the same reservation. It is outstanding until Settle or Cancel, or until the limit has
// refilled and nothing is left to give back. A reservation that is never settled or cancelled stays
// charged.
//
// A limiter remembers what each outstanding reservation can still give back, in bounded memory.
// docs/guarantees.md has the rule and the bound, and Inexact counts the reservations beyond it.
// While any reservation is outstanding, Take and Peek take the limiter's lock.
type Reservation struct {
	l        *Limiter
	version  *version
	mark     claim.Mark
	cost     int64
	delay    time.Duration
	receipt  rules.Receipt
	decision Decision
}

// Reserve charges cost units ahead and reports whether it did. A maxDelay below 0 accepts any
// delay. Reserve refuses and charges nothing in these cases; Decision then says when to retry:
//
//   - The work would have to be delayed for longer than maxDelay.
//   - The cost is above the capacity or below 0.
//   - A LeakyBucket's queue is full.
//
// A Reserve comes after the callers that Wait at that moment. As it must know its time at once,
// their times are fixed too: when one of them leaves, the callers behind it no longer move up.
func (l *Limiter) Reserve(cost int64, maxDelay time.Duration) (Reservation, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	within := int64(max(maxDelay, -1))
	if !l.version.rule.CanBook() {
		within = 0
	}
	p, d := l.planAhead(now, cost, within)
	if d.Allowed && cost > 0 && l.queue.cost > 0 {
		if p = l.planPromised(now, cost); !p.Accepts(within) {
			d.Allowed, d.RetryAfter = false, span(p.RetryWithin(within), l.version.rule.Unit())
		}
	}
	if !d.Allowed {
		return Reservation{decision: d}, false
	}
	var c rules.Receipt
	if cost > 0 {
		l.promiseAll(now)
		c = l.reserve(now, later(now, p.Wait), cost)
		l.afterCharge(&d, now, cost)
	}
	return Reservation{
		l:        l,
		version:  l.version,
		mark:     l.marks.Next(),
		cost:     cost,
		delay:    span(p.Wait, l.version.rule.Unit()),
		receipt:  c,
		decision: d,
	}, true
}

// Delay is how long after Reserve the work may go; 0 means at once. If the reservation was refused,
// Delay is Decision().RetryAfter.
func (r Reservation) Delay() time.Duration {
	if !r.decision.Allowed {
		return r.decision.RetryAfter
	}
	return r.delay
}

// Decision is the decision of Reserve. After a refusal, RetryAfter is the least wait after which
// the same Reserve succeeds if nobody else calls, or Never.
func (r Reservation) Decision() Decision { return r.decision }

// Settle replaces the reserved cost by the actual cost, after the work. If too much was reserved,
// the difference is given back as by Cancel. If too little was reserved, the difference is charged
// now, into debt if need be. The first Settle or Cancel wins, and later ones do nothing. A Settle
// with an actual cost below 0 does nothing.
func (r Reservation) Settle(actual int64) {
	if actual < 0 || !r.mark.Claim() || actual == 0 && r.cost == 0 {
		return
	}
	l := r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	l.settle(now, r.version, r.receipt, r.cost, actual)
}

// Cancel gives the reservation back: the limiter is then as if it had never been made. The first
// Settle or Cancel wins. Cancel gives back less in these cases:
//
//   - Later work was promised a time because of this reservation: promised times do not move up.
//   - More is outstanding than the limiter keeps: 64 charges of a WarmUp or NginxBucket, or of a window
//     of a FixedWindow with AlignFirst; 256 delayed
//     charges of a TokenBucket, LeakyBucket or SmoothBursty; and of these and IntervalBucket, bounds
//     for 1,024 reservations that can give back different amounts. An older charge of a WarmUp or
//     NginxBucket gives back nothing, a delayed one beyond 256 little or nothing. Inexact counts
//     them.
//   - The charge began the steps of an IntervalBucket: they stay where they are. So does a window of a
//     FixedWindow with AlignFirst that has ended, or if work was promised a later one since.
//   - The limit was changed, or the clock stepped back, since.
func (r Reservation) Cancel() { r.Settle(0) }
