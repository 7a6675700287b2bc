package outstanding

import (
	"math"
	"slices"
)

// MaxBeginning bounds how many reservations a Beginning holds: 1 KiB for one state.
const MaxBeginning = 64

// A Beginning says with which charge a window begins that its first charge has opened. Giving that
// charge back moves the window to the charge after it. For that, a Beginning holds the outstanding
// reservations that come before the first charge that stays. Of later reservations it counts how many
// are outstanding, because their receipts name the window by the time at which it began then.
//
// The zero Beginning is empty and ready to use, and a nil one is empty.
type Beginning struct {
	open        []begun
	stays       int64 // the time of the first charge that stays; math.MaxInt64 for none
	first, last int64 // the times at which the window began, at first and now
	later       int   // outstanding reservations that are not in open
	tracks      bool  // the window's first charge was an outstanding reservation
	inexact     uint64
	budget      Budget
}

type begun struct {
	id ID
	at int64
}

// Empty reports whether nothing is outstanding.
func (b *Beginning) Empty() bool { return b == nil || len(b.open) == 0 && b.later == 0 }

// Opens records the charge that opens a window; id is 0 if it is no reservation.
func (b *Beginning) Opens(id ID, at int64) {
	b.open, b.later = b.open[:0], 0
	b.tracks, b.stays, b.first, b.last = id != 0, math.MaxInt64, at, at
	if id != 0 {
		b.add(id, at)
	}
}

// Charged records a later charge of the window.
func (b *Beginning) Charged(id ID, at int64) {
	at = max(at, b.last)
	switch {
	case !b.tracks:
	case id != 0 && b.stays == math.MaxInt64:
		b.add(id, at)
	case id != 0:
		b.later++
	case b.stays == math.MaxInt64:
		b.stays = at
	}
}

// add adds a reservation to those that may move the window. Without room, it counts as one that stays.
func (b *Beginning) add(id ID, at int64) {
	list, ok := grow(b.open, MaxBeginning, b.budget)
	if b.open = list; !ok {
		b.stays = at
		b.later++
		b.inexact++
		return
	}
	b.open = append(b.open, begun{id, at})
}

// Has reports whether a charge is of the present window, which had begun at a time when it was made.
func (b *Beginning) Has(window int64) bool {
	return b != nil && b.tracks && b.first <= window && window <= b.last
}

// Ends ends a reservation of the present window, of which something stays charged or not.
func (b *Beginning) Ends(id ID, stays bool) {
	i := slices.IndexFunc(b.open, func(o begun) bool { return o.id == id })
	switch {
	case i < 0:
		b.later = max(0, b.later-1)
	case stays:
		b.stays = b.open[i].at
		b.later += len(b.open) - i - 1
		b.open = b.open[:i]
	default:
		b.open = slices.Delete(b.open, i, i+1)
	}
}

// Begins returns when the present window begins without what was given back; ok is false if nothing is
// left in it, or nothing is known.
func (b *Beginning) Begins() (at int64, ok bool) {
	if !b.tracks {
		return 0, false
	}
	at = b.stays
	if len(b.open) > 0 {
		at = b.open[0].at
	}
	return at, at != math.MaxInt64
}

// Moved records that the window begins at a later time now.
func (b *Beginning) Moved(to int64) { b.last = to }

// TakeInexact returns how many reservations, since it was last called, were too many.
func (b *Beginning) TakeInexact() (n uint64) {
	if b == nil {
		return 0
	}
	n, b.inexact = b.inexact, 0
	return n
}

// IsNew reports whether a Beginning is empty, and has little memory.
func (b *Beginning) IsNew() bool {
	return b == nil || b.Empty() && !b.tracks && b.inexact == 0 && cap(b.open) <= FreeEntries
}

// Within sets the Budget of an empty Beginning.
func (b *Beginning) Within(budget Budget) {
	if b != nil {
		b.Reset()
		b.budget = budget
	}
}

// Reset empties a Beginning, and keeps little memory.
func (b *Beginning) Reset() {
	if b != nil {
		*b = Beginning{open: emptied(b.open, FreeEntries, b.budget), budget: b.budget}
	}
}
