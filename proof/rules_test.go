package proof

import (
	"time"

	"github.com/weirflow/weir"
)

// A ledger is a bucket in the least code that can take, reserve and give back, with the refund rule
// as a parameter. It counts in clock units, in each of which the bucket gains 1/t of a token, so
// that nothing is ever rounded.
type ledger struct {
	t, size, passes int64 // size and passes in clock units
	leaky           bool
	refund          refund

	z, x     int64
	last     int64 // the latest promised time
	promises []promise
}

// A promise is a reservation: its cost in clock units, its time, and z and x just after it.
type promise struct {
	cost, due, z, x int64
	settled         bool
}

// A refund returns how much of an amount is given back for a promise.
type refund func(l *ledger, now int64, p promise, amount int64) int64

// theRule is the rule for states alone, which do not know the outstanding reservations: that of
// stores.
func theRule(l *ledger, now int64, p promise, amount int64) int64 {
	return l.give(now, p, amount, l.promised(), l.x)
}

// give applies the rule to a bucket that promises later times when Z is more than promised ahead,
// and that was given x back so far.
func (l *ledger) give(now int64, p promise, amount, promised, x int64) int64 {
	give := min(amount, p.z-(x-p.x)-now)
	if since := l.z + x - p.z - p.x; since > 0 && l.z > now+promised {
		give = min(give, min(amount, promised)-since)
	}
	return give
}

// promised returns how far ahead Z may be before the last work may still wait for its time.
func (l *ledger) promised() int64 {
	if l.leaky {
		return l.passes + l.t
	}
	return l.size
}

// wrongRules are refund rules that admit too much.
var wrongRules = []struct {
	name    string
	kinds   string
	refund  refund
	example string // an example of what goes wrong
}{
	{"everything", "TokenBucket LeakyBucket", func(l *ledger, now int64, _ promise, amount int64) int64 {
		return min(amount, l.z-now)
	}, "Burst 1: of reservations due at 1 and 2 the first is cancelled, and the next is due at 2 too"},

	{"without the total given back", "TokenBucket LeakyBucket", func(l *ledger, now int64, p promise, amount int64) int64 {
		p.x = 0
		return l.give(now, p, amount, l.promised(), 0)
	}, "what one cancel gave back is given back by the next again"},

	{"of x/time/rate", "TokenBucket", func(l *ledger, now int64, p promise, amount int64) int64 {
		if p.due < now {
			return 0
		}
		give := amount - (l.last - p.due)
		if p.due == l.last && p.due-p.cost >= now {
			l.last = p.due - p.cost
		}
		return give
	}, "the same: it knows when the last work was promised, not what was given back since"},

	{"the token bucket's for the leaky one", "LeakyBucket", func(l *ledger, now int64, p promise, amount int64) int64 {
		return l.give(now, p, amount, l.size, l.x)
	}, "a leaky bucket promises times long before it overflows, so work is still waiting though Z <= t + BT"},
}

func newLedger(l weir.Limit, refund refund) *ledger {
	rate, _ := rateOf(l)
	g := &ledger{t: int64(rate.Per) / rate.N, refund: refund}
	g.size = sizeOf(l) * g.t
	if l, ok := l.(weir.LeakyBucket); ok {
		g.leaky, g.passes = true, l.DelayAfter*g.t
	}
	return g
}

func (l *ledger) waits(int) bool { return false }

func (l *ledger) do(c call) (o outcome) {
	used, cost := max(l.z-c.now, 0), c.cost*l.t
	delay, fits := max(used+cost-l.size, 0), true
	if l.leaky {
		delay, fits = max(used-l.passes, 0), used+cost <= l.size
	}
	switch c.verb {
	case take:
		if o.d.Allowed = fits && delay == 0; o.d.Allowed {
			l.z = c.now + used + cost
		}
	case reserve:
		if o.ok = fits && (c.within < 0 || delay <= c.within); o.ok {
			l.z = c.now + used + cost
			l.last = max(l.last, c.now+delay)
			l.promises = append(l.promises, promise{cost: cost, due: c.now + delay, z: l.z, x: l.x})
			o.delay = time.Duration(delay)
		}
	case settle:
		p := &l.promises[c.ref]
		switch {
		case p.settled, cost == p.cost:
		case cost > p.cost:
			l.z = c.now + used + cost - p.cost
		default:
			give := min(max(l.refund(l, c.now, *p, p.cost-cost), 0), used)
			l.z, l.x = c.now+used-give, l.x+give
		}
		p.settled = true
	}
	return o
}
