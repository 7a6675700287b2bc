package outstanding

import (
	"slices"

	"github.com/weirflow/weir/internal/u128"
)

// MaxPromised bounds how many delayed charges a Bucket keeps one by one: 10 KiB for one state.
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
	promised []promised // the first is an outstanding reservation
	before   u128.Uint  // Z without them
	inexact  uint64
	budget   Budget // of promised

	// For what the rule of a state alone gives back, once the ledger is too small:
	returned u128.Uint // all that was given back since the first reservation
	latest   u128.Uint // the latest time at which work of the ledger goes, and the latest reading
	since    ID        // older reservations are from before a change of the limit, or of returned
	last     ID
}

// A promised charge is one whose work goes later, or that was made after such a one.
type promised struct {
	id   ID        // 0 if it is not, or no longer, an outstanding reservation
	goes u128.Uint // when its work goes
	cost u128.Uint
}

// after is Z after the charge.
func (p *promised) after(z u128.Uint) u128.Uint {
	if z.Less(p.goes) {
		z = p.goes
	}
	return z.Add(p.cost)
}

// Empty reports whether nothing is outstanding.
func (b *Bucket) Empty() bool { return b.ledger.Empty() && len(b.promised) == 0 }

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
		b.returned, b.latest, b.since = u128.Uint{}, u128.Uint{}, id
	}
	b.last = max(b.last, id)
	b.pass(now)
	var room bool
	if b.promised, room = grow(b.promised, MaxPromised+1, b.budget); !room {
		b.enterFirst(now)
	}
	if len(b.promised) == 0 {
		b.before = z
	}
	b.promised = append(b.promised, promised{id, goes, cost})
	b.join()
	if b.pass(now); len(b.promised) > MaxPromised {
		b.enterFirst(now)
	}
}

// enterFirst moves the first charge, a reservation, into the ledger before its time.
func (b *Bucket) enterFirst(now u128.Uint) {
	b.inexact++
	b.enter(1)
	b.pass(now)
}

// pass moves charges into the ledger whose times have come, and those before the first outstanding
// reservation.
func (b *Bucket) pass(now u128.Uint) {
	b.reach(now)
	n := 0
	for n < len(b.promised) {
		if p := &b.promised[n]; p.id != 0 && (now.Less(p.goes) || b.overtaken(n)) {
			break
		}
		n++
	}
	b.enter(n)
}

// overtaken reports whether the work of a later charge goes before that of the i-th. Both are kept
// one by one then: the ledger takes charges in the order of their times.
func (b *Bucket) overtaken(i int) bool {
	return slices.ContainsFunc(b.promised[i+1:], func(p promised) bool { return p.goes.Less(b.promised[i].goes) })
}

// enter moves the first n charges into the ledger.
func (b *Bucket) enter(n int) {
	for i := range b.promised[:n] {
		p := &b.promised[i]
		b.ledger.Charged(b.before.Sub(p.goes))
		if p.id != 0 {
			b.ledger.Add(p.id)
		}
		b.reach(p.goes)
		b.before = p.after(b.before)
	}
	b.promised = slices.Delete(b.promised, 0, n)
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
	if !b.ledger.coarse || id < b.since || len(b.promised) > 0 {
		return u128.Uint{}
	}
	return amount.Min(mark.Sub(b.returned).Sub(b.latest))
}

// join makes neighbours one that are not outstanding. They have the effect of one charge.
func (b *Bucket) join() {
	kept := b.promised[:0]
	for _, p := range b.promised {
		if n := len(kept); n > 0 && p.id == 0 && kept[n-1].id == 0 {
			last := &kept[n-1]
			if goes := p.goes.Sub(last.cost); last.goes.Less(goes) {
				last.goes = goes
			}
			last.cost = last.cost.Add(p.cost)
		} else {
			kept = append(kept, p)
		}
	}
	b.promised = kept
}

func (b *Bucket) find(id ID) int {
	return slices.IndexFunc(b.promised, func(p promised) bool { return p.id == id })
}

// GiveBack removes an amount of a reservation's cost, ends the reservation, and returns the state
// without that amount. mark is what Mark returned. Each reservation may be ended once.
func (b *Bucket) GiveBack(id ID, amount, mark, z, now u128.Uint) u128.Uint {
	without := b.without(id, amount, mark, z, now).Min(z)
	b.returned = b.returned.Add(z.Sub(without))
	return without
}

func (b *Bucket) without(id ID, amount, mark, z, now u128.Uint) u128.Uint {
	if b.pass(now); len(b.promised) == 0 {
		return z.Sub(b.ledger.GiveBack(id, amount, b.least(id, amount, mark), z.Sub(now)))
	}
	if i := b.find(id); i >= 0 {
		p := &b.promised[i]
		if p.id = 0; p.cost.Sub(amount).IsZero() {
			b.promised = slices.Delete(b.promised, i, i+1)
		} else {
			p.cost = p.cost.Sub(amount)
		}
		b.join()
	} else {
		b.before = b.before.Sub(b.ledger.GiveBack(id, amount, u128.Uint{}, amount)) // the charges after it say how much of that counts
	}
	without := b.before
	for i := range b.promised {
		without = b.promised[i].after(without)
	}
	b.pass(now)
	if without.Less(now) {
		without = now
	}
	return without
}

// Drop ends a reservation that gives nothing back. Each reservation may be ended once.
func (b *Bucket) Drop(id ID) {
	if i := b.find(id); i >= 0 {
		b.promised[i].id = 0
		b.join()
		b.pass(u128.Uint{})
	} else {
		b.ledger.Drop(id)
	}
}

// Rescale does to what is known of the reservations what a change of the limit does to the backlog,
// see Ledger.Rescale. Promised work keeps its times.
func (b *Bucket) Rescale(f func(u128.Uint) u128.Uint) {
	b.enter(len(b.promised))
	b.ledger.Rescale(f)
	b.since = b.last + 1
}

// Limit records that the backlog became no more than the given one, for another reason than time.
func (b *Bucket) Limit(backlog u128.Uint) { b.ledger.Charged(backlog) }

// Within sets the Budget of an empty Bucket.
func (b *Bucket) Within(budget Budget) {
	b.Reset()
	b.ledger.Within(budget)
	b.budget = budget
	b.promised = emptied(b.promised, FreeEntries, nil)
}

// Reset empties the Bucket, and keeps little memory.
func (b *Bucket) Reset() {
	b.ledger.Reset()
	b.promised = emptied(b.promised, 8, b.budget)
	b.inexact, b.since, b.last = 0, 0, 0
}
