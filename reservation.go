package weir

import (
	"time"

	"github.com/weirflow/weir/internal/claim"
	"github.com/weirflow/weir/internal/rules"
)

// A Reservation is a charge made ahead: the work it is for may go after Delay. It is a plain value; copies are the same reservation.
// One that nobody settles or cancels simply stays charged, and costs no memory once it is out of reach.
type Reservation struct {
	l        *Limiter
	era      *era
	mark     claim.Mark
	cost     int64
	delay    time.Duration
	receipt  rules.Receipt
	decision Decision
}

// Reserve charges cost units ahead and reports whether it did. It refuses, and charges nothing, where the work would have to be
// delayed for longer than maxDelay (below 0: however long is fine), where the cost is above the capacity or below 0, and where a
// LeakyBucket's queue is full; Decision then says when to come back.
//
// A Reserve while others Wait comes after them. As it must know its time at once, their times are fixed too: when one of them leaves,
// those behind no longer move up.
func (l *Limiter) Reserve(cost int64, maxDelay time.Duration) (Reservation, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	within := int64(max(maxDelay, -1))
	if !l.era.rule.CanBook() {
		within = 0
	}
	p, d := l.planAhead(now, cost, within)
	if d.Allowed && cost > 0 && l.line.cost > 0 {
		if p = l.planPromised(now, cost); !p.Accepts(within) {
			d.Allowed, d.RetryAfter = false, span(p.RetryWithin(within), l.era.rule.Unit())
		}
	}
	if !d.Allowed {
		return Reservation{decision: d}, false
	}
	var c rules.Receipt
	if cost > 0 {
		l.promiseAll(now)
		l.state, c = rules.Book(l.era.rule, l.state, now, later(now, p.Wait), cost)
		l.seen(&d, now, cost)
	}
	return Reservation{
		l:        l,
		era:      l.era,
		mark:     l.marks.Next(),
		cost:     cost,
		delay:    span(p.Wait, l.era.rule.Unit()),
		receipt:  c,
		decision: d,
	}, true
}

// Delay is how long after Reserve the work may go: 0 for at once. For a reservation that was refused it is Decision().RetryAfter.
func (r Reservation) Delay() time.Duration {
	if !r.decision.Allowed {
		return r.decision.RetryAfter
	}
	return r.delay
}

// Decision is what Reserve decided. Where it refused, RetryAfter is the least wait after which the same Reserve succeeds if nobody
// else calls, or Never.
func (r Reservation) Decision() Decision { return r.decision }

// Settle puts the actual cost in place of the reserved one, after the fact: what was reserved too much is given back as by Cancel, and
// what was too little is charged now, into debt if need be. The first Settle or Cancel wins, later ones do nothing; so does a Settle
// with an actual below 0, which is no cost.
func (r Reservation) Settle(actual int64) {
	if actual < 0 || !r.mark.Claim() || actual == r.cost {
		return
	}
	l := r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	if actual > r.cost {
		if len(l.state) == 0 {
			l.state = l.era.rule.FirstContact(l.state, now)
		}
		l.state = l.era.rule.Charge(l.state, now, actual-r.cost)
		return
	}
	l.refund(now, r.era, r.receipt, r.cost-actual)
}

// refund gives back amount of a charge of some era.
func (l *Limiter) refund(now int64, e *era, c rules.Receipt, amount int64) {
	if c, latest, ok := e.carry(c); ok {
		l.state = c.Refund(latest.rule, l.state, now, amount)
		l.ring()
	}
}

// Cancel gives back what was reserved, as far as that never admits too much: what the limit has not refilled by itself meanwhile, and
// less than all of it while work reserved later still waits for its time, as that cannot move up. The first Settle or Cancel wins.
func (r Reservation) Cancel() { r.Settle(0) }
