package proof

import (
	"cmp"
	"slices"

	"github.com/weirflow/weir"
)

// places is Concurrency, written as plainly as possible: the holders, the
// waiters, and the latest reading.
type places struct {
	limit weir.Concurrency
	high  int64
	holds []*held
	queue []*held
	ended weir.Outcomes
}

// held is a holder or a waiter.
type held struct {
	id     int
	cost   int64
	expiry int64 // 0: does not expire; forever: does not expire any more
	over   bool
}

const forever = int64(1) << 62

func (p *places) clone() *places {
	c := *p
	copied := func(of []*held) (all []*held) {
		for _, h := range of {
			h := *h
			all = append(all, &h)
		}
		return all
	}
	c.holds, c.queue = copied(p.holds), copied(p.queue)
	return &c
}

// expires reports whether time matters.
func (p *places) expires() bool {
	return p.limit.MaxHold > 0 || slices.ContainsFunc(p.holds, func(h *held) bool { return h.expiry > 0 })
}

// at begins a call at a reading: expired holds are removed, and waiters move up. Time does not go
// back.
func (p *places) at(now int64) {
	if p.expires() {
		p.high = max(p.high, now)
		p.holds = slices.DeleteFunc(p.holds, func(h *held) bool {
			if h.expiry > 0 && h.expiry <= p.high {
				h.over = true
				p.ended.Expired++
			}
			return h.over
		})
	}
	p.admit()
}

// admit admits waiters while there is room for the first one.
func (p *places) admit() {
	for len(p.queue) > 0 && p.queue[0].cost <= p.free() {
		h := p.queue[0]
		p.queue = p.queue[1:]
		p.hold(h)
	}
}

func (p *places) hold(h *held) {
	if p.limit.MaxHold > 0 {
		h.expiry = p.high + int64(p.limit.MaxHold)
	}
	p.holds = append(p.holds, h)
}

func (p *places) holding() (sum int64) {
	for _, h := range p.holds {
		sum += h.cost
	}
	return sum
}

func (p *places) free() int64 { return p.limit.Limit - p.holding() }

// fits reports whether a cost would get a place now.
func (p *places) fits(cost int64) bool {
	return cost == 0 || cost > 0 && len(p.queue) == 0 && cost <= p.free()
}

// done ends a hold, if it has not ended.
func (p *places) done(h *held, o weir.Outcome) {
	if h.over {
		return
	}
	h.over = true
	switch o {
	case weir.OK:
		p.ended.OK++
	case weir.Dropped:
		p.ended.Dropped++
	default:
		p.ended.Ignored++
	}
	p.holds = slices.DeleteFunc(p.holds, func(o *held) bool { return o == h })
	p.admit()
}

func (p *places) extend(h *held) bool {
	switch {
	case h.over:
		return false
	case h.expiry == 0:
	case p.limit.MaxHold == 0:
		h.expiry = forever
	default:
		h.expiry = max(h.expiry, p.high+int64(p.limit.MaxHold))
	}
	return true
}

// set changes the limit, and returns the waiters that no longer fit.
func (p *places) set(now int64, next weir.Concurrency) (cast []*held) {
	p.limit = next
	p.queue = slices.DeleteFunc(p.queue, func(h *held) bool {
		if h.cost > next.Limit {
			cast = append(cast, h)
			return true
		}
		return false
	})
	p.at(now)
	return cast
}

// nextExpiry returns when the next hold expires; forever if none does.
func (p *places) nextExpiry() int64 {
	next := forever
	for _, h := range p.holds {
		if h.expiry > 0 {
			next = min(next, h.expiry)
		}
	}
	return next
}

// pass lets time go by to a reading, without calls: each hold expires at its time.
func (p *places) pass(to int64) {
	for next := p.nextExpiry(); next <= to; next = p.nextExpiry() {
		p.at(next)
	}
	p.at(to)
}

// expiring returns the cost that would be given back by expiry.
func (p *places) expiring() (sum int64) {
	for _, h := range p.holds {
		if h.expiry > 0 && h.expiry < forever {
			sum += h.cost
		}
	}
	return sum
}

// byID returns the holds in the order of their ids.
func byID(a, b *held) int { return cmp.Compare(a.id, b.id) }
