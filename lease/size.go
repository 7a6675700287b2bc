package lease

import "time"

const (
	looks   = 8  // how often in a lifetime each key is looked at
	sharers = 8  // a node leaves as much to others as if there were so many
	instant = 32 // at the end of the budget a lease is for this part of a lifetime
)

// amount is how much is to be asked for: what the key needs in half the time that it lasts. One that uses it up faster gets twice as much
// the next time, as far as that is what it needs. Where the store has little left, it is an even share of that (Polychronopoulos and Kuck, Guided
// Self-Scheduling, 1987), so that leases shrink as the budget does, down to what is used at once: for most keys that is less than one token,
// and then the caller asks for exactly its own cost.
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

// estimate is what the store may have left now, by what it last said.
func (e *entry) estimate(now int64) int64 {
	if now >= e.fresh {
		return e.capacity
	}
	if e.pause > 0 { // it comes back bit by bit
		return e.remaining + mulDiv(max(e.capacity-e.remaining, 0), now-e.heard, e.fresh-e.heard)
	}
	return e.remaining
}

// look takes the measure of the demand since the last look: half of a change shows after two or three of them. It returns what was used.
func (e *entry) look() (used int64) {
	used, e.used = e.used, 0
	for _, g := range e.held {
		n := g.size - g.left.Load()
		used += n - g.seen
		g.seen = n
	}
	used += e.outside.Swap(0)
	used = min(max(used, 0), mostDemand)
	e.demand += (used*looks*demandParts - e.demand) / 4
	if e.idle++; used > 0 {
		e.idle = 0
	}
	return used
}

// mostDemand is more than any key needs between two looks.
const mostDemand = 1 << 40

// unmet notes demand that no grant meets.
func (e *entry) unmet(cost int64) { e.outside.Add(min(cost, 1<<32)) }
