// Package outstanding remembers which reservations of one state have been neither settled nor
// cancelled, so that giving one back leaves the state as if its charge had never been made. It
// holds the exact rule of docs/guarantees.md ("Cancelling a reservation"), and knows no clock, no
// lock and no algorithm: a Ledger is for states that are one backlog, a Journal for all others.
package outstanding

import (
	"math/bits"
	"slices"
	"sort"

	"github.com/weirflow/weir/internal/u128"
)

// MaxGroups bounds a Ledger: 32 KiB for one state. With a Budget it may have fewer, but at least
// FreeEntries.
const MaxGroups = 1024

// keptGroups is for how many groups an empty Ledger keeps memory.
const keptGroups = 16

// An ID identifies one reservation of a holder. IDs rise with each reservation. The zero ID stands
// for none.
type ID uint64

// A Ledger holds the outstanding reservations of a state that is one backlog: the time until a
// bucket is full, or the tokens that it lacks.
//
// For each reservation it knows the least backlog that any later charge found, in the state's own
// unit. A later charge that found an empty bucket was not delayed by the reservation, so nothing of
// the reservation is left to give back. A later charge that found a backlog of m was delayed by at
// most m of it. The newer a reservation, the fewer charges came after it, so these bounds never
// fall from older to newer reservations. Reservations with the same bound are therefore neighbours,
// and form one group: a charge changes the newest groups alone, and merges them.
//
// Memory follows the number of different bounds, not of reservations. A reservation that is neither
// settled nor cancelled stays until a charge finds the bucket full.
//
// The zero Ledger is empty and ready to use.
type Ledger struct {
	groups  []group // oldest first; their bounds rise strictly
	inexact uint64
	coarse  bool   // some bounds are lower than they should be
	budget  Budget // of groups

	returned uint64 // all that was given back, as far as 64 bits count it
}

// A group is neighbouring reservations with the same bound.
type group struct {
	first ID  // the oldest; the group ends where the next begins
	open  int // how many of them are still outstanding
	// the least backlog that a later charge found; the largest number where there was no later
	// charge
	bound u128.Uint
}

// Empty reports whether nothing is outstanding.
func (l *Ledger) Empty() bool { return len(l.groups) == 0 }

// TakeInexact returns how many reservations, since it was last called, got a lower bound because
// there were more than MaxGroups, or more than the Budget has room for.
func (l *Ledger) TakeInexact() (n uint64) {
	n, l.inexact = l.inexact, 0
	return n
}

// Add records a reservation whose charge has just been made, and noted by Charged.
func (l *Ledger) Add(id ID) {
	var room bool
	if l.groups, room = grow(l.groups, MaxGroups, l.budget); !room {
		l.coarsen()
	}
	l.groups = append(l.groups, group{first: id, open: 1, bound: u128.Max()})
}

// coarsen halves the number of groups, which is a power of 2: neighbours get the lowest bound among them if the bounds
// differ by less than a part of the highest. That never admits too much. What one reservation then
// gives back too little, the others can give back. If 4,000 reservations are all cancelled, some 15
// are missing in the end; of a million, 6 %.
func (l *Ledger) coarsen() {
	top := l.groups[len(l.groups)-1].bound    // a charge has been recorded, so this is a backlog
	half := bits.Len(uint(len(l.groups))) - 2 // the groups' number is 2 << half
	step := u128.Uint{Hi: top.Hi >> half, Lo: top.Hi<<(64-half) | top.Lo>>half}.Add(u128.From(1))
	kept := l.groups[:1]
	for _, g := range l.groups[1:] {
		if last := &kept[len(kept)-1]; g.bound.Sub(last.bound).Less(step) {
			l.inexact += uint64(g.open)
			last.open += g.open
		} else {
			kept = append(kept, g)
		}
	}
	l.groups, l.coarse = kept, true
}

// Charged records a charge that found a backlog at the time at which its work may go.
func (l *Ledger) Charged(backlog u128.Uint) {
	i := len(l.groups)
	for i > 0 && !l.groups[i-1].bound.Less(backlog) {
		i--
	}
	switch {
	case i == len(l.groups):
	case backlog.IsZero():
		l.groups = l.groups[:0] // as i is 0: no bound is below it
	default:
		l.merge(i, len(l.groups), backlog)
	}
}

// merge merges the groups from one index up to another into one with the given bound.
func (l *Ledger) merge(from, to int, bound u128.Uint) {
	merged := &l.groups[from]
	for _, g := range l.groups[from+1 : to] {
		merged.open += g.open
	}
	merged.bound = bound
	l.groups = slices.Delete(l.groups, from+1, to)
}

// find returns the index of a reservation's group; below 0 if it can give nothing back any more.
func (l *Ledger) find(id ID) int {
	return sort.Search(len(l.groups), func(i int) bool { return l.groups[i].first > id }) - 1
}

// Drop ends a reservation that gives nothing back. Each reservation may be ended once.
func (l *Ledger) Drop(id ID) {
	if i := l.find(id); i >= 0 {
		l.end(i)
	}
}

// end takes one reservation out of a group.
func (l *Ledger) end(i int) {
	if l.groups[i].open--; l.groups[i].open == 0 {
		l.groups = slices.Delete(l.groups, i, i+1)
	}
}

// GiveBack ends a reservation and returns by how much the backlog falls: the amount, as far as the
// reservation still delays later charges. backlog is the present one. least is known to delay them
// for another reason, whatever the bound is. Each reservation may be ended once.
func (l *Ledger) GiveBack(id ID, amount, least, backlog u128.Uint) u128.Uint {
	i := l.find(id)
	if i < 0 {
		return u128.Uint{}
	}
	given := amount.Min(l.groups[i].bound)
	if given.Less(least) {
		given = least
	}
	if given = given.Min(backlog); given.IsZero() {
		l.end(i)
		return given
	}
	l.returned += given.Lo
	for j := i; j < len(l.groups); j++ { // later charges find that much less
		if g := &l.groups[j]; g.bound != u128.Max() {
			g.bound = g.bound.Sub(given)
		}
	}
	// An older reservation held up this one's charge by its own bound at most, and less of that
	// charge is left.
	bound, oldest := l.groups[i].bound, i
	for oldest > 0 && !l.groups[oldest-1].bound.Less(bound) {
		oldest--
	}
	l.merge(oldest, i+1, bound)
	l.end(oldest)
	l.trim()
	return given
}

// Restored ends a reservation and records that an amount of it was given back, by other means than
// GiveBack.
func (l *Ledger) Restored(id ID, amount uint64) {
	l.returned += amount
	l.Drop(id)
}

// Returned is how much was given back, to be compared with a later or an earlier value.
func (l *Ledger) Returned() uint64 { return l.returned }

// IsCoarse reports whether some bounds are lower than they should be.
func (l *Ledger) IsCoarse() bool { return l.coarse }

// trim removes the groups that can give nothing back. If bounds are too low they may still give back
// something, and become one.
func (l *Ledger) trim() {
	n := 0
	for n < len(l.groups) && l.groups[n].bound.IsZero() {
		n++
	}
	switch {
	case n > 0 && !l.coarse:
		l.groups = slices.Delete(l.groups, 0, n)
	case n > 1:
		l.merge(0, n, u128.Uint{})
	}
}

// Rescale replaces each bound, as a change of the limit does with the backlog. The function keeps
// the order of its arguments and rounds down.
func (l *Ledger) Rescale(f func(u128.Uint) u128.Uint) {
	kept := l.groups[:0]
	for _, g := range l.groups {
		if g.bound != u128.Max() {
			g.bound = f(g.bound)
		}
		switch n := len(kept); {
		case g.bound.IsZero():
		case n > 0 && kept[n-1].bound == g.bound:
			kept[n-1].open += g.open
		default:
			kept = append(kept, g)
		}
	}
	l.groups = kept
}

// IsNew reports whether a Ledger is empty, and has little memory.
func (l *Ledger) IsNew() bool {
	return len(l.groups) == 0 && cap(l.groups) <= keptGroups && l.inexact == 0 && !l.coarse
}

// Within sets the Budget of an empty Ledger.
func (l *Ledger) Within(b Budget) {
	l.Reset()
	l.budget = b
	l.groups = emptied(l.groups, FreeEntries, nil)
}

// Reset empties the ledger, and keeps little memory.
func (l *Ledger) Reset() {
	l.groups = emptied(l.groups, keptGroups, l.budget)
	l.coarse = false
}
