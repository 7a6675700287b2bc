package lease

import "time"

const (
	inspections = 8  // how often in a lifetime each key is inspected
	sharers     = 8  // a node leaves tokens to others as if there were so many
	instant     = 32 // at the end of the budget a lease is for 1/32 of a lifetime
)

// amount returns how many tokens to request: what the key needs in half the time that a lease
// lasts. A key that uses them faster gets twice as many the next time, as far as it needs them. If
// the store has little left, it is an even share of that (Polychronopoulos and Kuck, Guided
// Self-Scheduling, 1987): leases shrink with the budget, down to what is used at once. For most
// keys that is less than one token; then the caller requests exactly its own cost.
func (e *entry) amount(now int64, lifetime time.Duration, most int64) int64 {
	want := mulDiv(e.demand/demandParts, int64(e.life), 2*int64(lifetime))
	if took := now - e.lastSent; e.lastSize > 0 && took >= 0 && took < int64(e.life)/2 {
		used := e.lastSize
		if e.last != nil {
			used = e.last.size - e.last.left.Load()
		}
		want = max(want, min(2*e.lastSize, mulDiv(used, int64(e.life), 2*took)))
	}
	want = min(want, max(e.estimate(now)/sharers, e.demand/(instant*demandParts)))
	return max(min(want, most-e.left()), 0)
}

// estimate returns what the store may have left now, by its last decision.
func (e *entry) estimate(now int64) int64 {
	if now >= e.fresh {
		return e.capacity
	}
	if e.pause > 0 { // it refills bit by bit
		return e.remaining + mulDiv(max(e.capacity-e.remaining, 0), now-e.heard, e.fresh-e.heard)
	}
	return e.remaining
}

// measure updates the demand by what was used since the last inspection, which it returns: half of
// a change shows after two or three inspections.
func (e *entry) measure() (used int64) {
	used, e.used = e.used, 0
	for _, g := range e.grants {
		n := g.size - g.left.Load()
		used += n - g.seen
		g.seen = n
	}
	used += e.outside.Swap(0)
	used = min(max(used, 0), mostDemand)
	e.demand += (used*inspections*demandParts - e.demand) / 4
	if e.idle++; used > 0 {
		e.idle = 0
	}
	return used
}

// mostDemand is more than any key needs between two inspections.
const mostDemand = 1 << 40

// unmet counts demand that no grant meets.
func (e *entry) unmet(cost int64) { e.outside.Add(min(cost, 1<<32)) }
