package outstanding

import "github.com/weirflow/weir/internal/u128"

// MaxPromised bounds how many delayed charges a Bucket keeps one by one: 10 KiB for one state, and
// up to 24 KiB where many of them were given back in the middle.
const MaxPromised = 256

// A Bucket holds the outstanding reservations of a state that is one point in time: Z, at which the
// bucket is full again. A charge that goes at time u sets Z to max(Z, u) + cost. All times are in
// ticks, from a common origin.
//
// Giving a reservation back means to repeat all other charges, in the order in which they were made
// and each at the time at which its work goes. Without the work that is given back, the rest never
// exceeds the limit. And whatever is admitted by Z stays within the limit together with them, also
// before work that was promised a later time: no Z on the way is above the last one.
//
// Charges whose work has gone are in a Ledger, which needs no list of them. Charges whose work is
// still to come, with a delay, are kept one by one: a Ledger would take the delays of cancelled work
// for those of work that goes. They enter the Ledger in their order when their times have come.
//
// The zero Bucket is empty and ready to use.
type Bucket struct {
	ledger   Ledger
	promised promises  // the first is an outstanding reservation
	before   u128.Uint // Z without them
	inexact  uint64

	// For what the rule of a state alone gives back, once the ledger is too small:
	returned u128.Uint // all that was given back since the first reservation
	latest   u128.Uint // the latest time at which work of the ledger goes, and the latest reading
	since    ID        // older reservations are from before a change of the limit, or of returned
	last     ID
}

// Empty reports whether nothing is outstanding.
func (b *Bucket) Empty() bool { return b.promised.size == 0 && b.ledger.Empty() }

// TakeInexact returns how many reservations, since it was last called, were too many to be given
// back exactly.
func (b *Bucket) TakeInexact() (n uint64) {
	n, b.inexact = b.inexact, 0
	return n + b.ledger.TakeInexact()
}

// Charged records a charge at now, on a state z, whose work goes at the given time. id is that of a
// reservation, or 0.
func (b *Bucket) Charged(id ID, z, now, goes, cost u128.Uint) {
	if id == 0 && now.Less(goes) {
		now = goes // other charges than reservations go at once
	}
	if b.Empty() {
		b.ledger.coarse = false
		b.returned, b.latest, b.since, b.last = u128.Uint{}, u128.Uint{}, id, 0
	}
	b.last = max(b.last, id)
	b.pass(now)
	if b.promised.size == 0 && !now.Less(goes) {
		b.record(id, z, goes)
		return
	}
	for !b.promised.makeRoom() {
		b.enterFirst(now)
	}
	if b.promised.size == 0 {
		b.before = z
	}
	b.promised.add(promised{id, goes, cost}, b.last)
	if b.pass(now); b.promised.size > MaxPromised {
		b.enterFirst(now)
	}
}

// enterFirst moves the first charge, a reservation, into the ledger before its time.
func (b *Bucket) enterFirst(now u128.Uint) {
	b.inexact++
	b.enter()
	b.pass(now)
}

// pass moves charges into the ledger whose times have come, and those before the first outstanding
// reservation. A charge that is overtaken stays: the ledger takes charges in the order of their
// times.
func (b *Bucket) pass(now u128.Uint) {
	b.reach(now)
	for p := b.promised.first(); p != nil && (p.id == 0 || !now.Less(p.goes) && !b.promised.overtaken()); p = b.promised.first() {
		b.enter()
	}
}

// enter moves the first charge into the ledger.
func (b *Bucket) enter() {
	p := *b.promised.first()
	b.record(p.id, b.before, p.goes)
	b.before = p.after(b.before)
	b.promised.remove(0, 0)
}

// record records a charge on a state z in the ledger.
func (b *Bucket) record(id ID, z, goes u128.Uint) {
	b.ledger.Charged(z.Sub(goes))
	if id != 0 {
		b.ledger.Add(id)
	}
	b.reach(goes)
}

func (b *Bucket) reach(t u128.Uint) {
	if b.latest.Less(t) {
		b.latest = t
	}
}

// Mark returns what GiveBack has to know of a reservation that has just been charged: the state
// after it, and all that was given back until then.
func (b *Bucket) Mark(z u128.Uint) u128.Uint { return z.Add(b.returned) }

// least is the rule of a state alone, for reservations beyond the bound of the ledger: of the bucket
// as it was just after the charge, what has neither drained nor been given back since. It takes no
// memory. Within the bound, the ledger never gives back less.
func (b *Bucket) least(id ID, amount, mark u128.Uint) u128.Uint {
	if !b.ledger.coarse || id < b.since || b.promised.size > 0 {
		return u128.Uint{}
	}
	return amount.Min(mark.Sub(b.returned).Sub(b.latest))
}

// GiveBack removes an amount of a reservation's cost, ends the reservation, and returns the state
// without that amount. mark is what Mark returned. Each reservation may be ended once.
func (b *Bucket) GiveBack(id ID, amount, mark, z, now u128.Uint) u128.Uint {
	without := b.without(id, amount, mark, z, now).Min(z)
	b.returned = b.returned.Add(z.Sub(without))
	return without
}

func (b *Bucket) without(id ID, amount, mark, z, now u128.Uint) u128.Uint {
	if b.pass(now); b.promised.size == 0 {
		return z.Sub(b.ledger.GiveBack(id, amount, b.least(id, amount, mark), z.Sub(now)))
	}
	if at, i, ok := b.promised.find(id); ok {
		b.promised.end(at, i, amount)
	} else {
		b.before = b.before.Sub(b.ledger.GiveBack(id, amount, u128.Uint{}, amount)) // the charges after it say how much of that counts
	}
	without := b.promised.after(b.before)
	b.pass(now)
	if without.Less(now) {
		without = now
	}
	return without
}

// Drop ends a reservation that gives nothing back. Each reservation may be ended once.
func (b *Bucket) Drop(id ID) {
	if p := b.promised.first(); p != nil && p.id == id {
		p.id = 0
		b.pass(u128.Uint{})
	} else if at, i, ok := b.promised.find(id); ok {
		b.promised.end(at, i, u128.Uint{})
		b.pass(u128.Uint{})
	} else {
		b.ledger.Drop(id)
	}
}

// Rescale does to what is known of the reservations what a change of the limit does to the backlog,
// see Ledger.Rescale. Promised work keeps its times.
func (b *Bucket) Rescale(f func(u128.Uint) u128.Uint) {
	for b.promised.size > 0 {
		b.enter()
	}
	b.ledger.Rescale(f)
	b.since = b.last + 1
}

// Limit records that the backlog became no more than the given one, for another reason than time.
func (b *Bucket) Limit(backlog u128.Uint) { b.ledger.Charged(backlog) }

// IsNew reports whether a Bucket is empty, and has little memory.
func (b *Bucket) IsNew() bool {
	return b.promised.size == 0 && b.promised.room <= blockSize && b.inexact == 0 && b.ledger.IsNew()
}

// Within sets the Budget of an empty Bucket.
func (b *Bucket) Within(budget Budget) {
	b.Reset()
	b.ledger.Within(budget)
	b.promised.within(budget)
}

// Reset empties the Bucket, and keeps little memory.
func (b *Bucket) Reset() {
	b.ledger.Reset()
	b.promised.reset(b.promised.kept())
	b.inexact, b.since, b.last = 0, 0, 0
}
