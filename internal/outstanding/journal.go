package outstanding

import "slices"

// MaxCharges bounds a Journal: some 4.5 KiB for one state.
const MaxCharges = 64

// keptCharges is for how many charges an empty Journal keeps memory.
const keptCharges = 8

// A Journal holds the charges since the oldest outstanding reservation, the changes of the limit
// among them, and the state before all of these. Giving a reservation back means to repeat the rest.
// It is for algorithms in which a charge's price depends on the state that it finds: there, a Ledger
// cannot say how much is left of an older charge.
//
// A charge that finds the Journal full pushes the oldest one out: if that is a reservation, it can
// give nothing back any more.
//
// The zero Journal is empty and ready to use.
type Journal struct {
	before  []int64 // the state without any of the charges
	charges []Charge
	inexact uint64
	budget  Budget // of charges
}

// A Charge is a charge that a Journal can repeat, or a change of the limit.
type Charge struct {
	ID   ID    // of an outstanding reservation; 0 for any other charge
	Cost int64 // what has not been given back
	// when its work goes, in the algorithm's own words: a promised time does not move up
	Goes [5]int64
	By   Repeater
}

// A Repeater makes a charge again, on a state that it may change: the rule by which the charge was
// made, or a change of the limit.
type Repeater interface {
	Again(state []int64, c Charge) []int64
}

// Empty reports whether nothing is outstanding.
func (j *Journal) Empty() bool { return len(j.charges) == 0 }

// Charges returns what the journal holds, to be read.
func (j *Journal) Charges() []Charge { return j.charges }

// TakeInexact returns how many reservations were pushed out since it was last called.
func (j *Journal) TakeInexact() (n uint64) {
	n, j.inexact = j.inexact, 0
	return n
}

// Charged records a charge that is about to be made on a state. A charge that is no reservation, or
// a change of the limit, is recorded only while reservations are outstanding.
func (j *Journal) Charged(state []int64, c Charge) {
	if len(j.charges) == 0 && c.ID == 0 {
		return
	}
	var room bool
	if j.charges, room = grow(j.charges, MaxCharges, j.budget); !room {
		j.inexact++ // the oldest is a reservation's
		j.charges[0].ID = 0
		j.trim()
	}
	if len(j.charges) == 0 {
		if c.ID == 0 {
			return
		}
		j.before = append(j.before[:0], state...)
	}
	j.charges = append(j.charges, c)
}

// GiveBack removes an amount of a reservation's cost, and ends the reservation. It returns the
// state without that amount, in the memory of the given state. A reservation that the Journal does
// not know gives nothing back.
func (j *Journal) GiveBack(state []int64, id ID, amount int64) []int64 {
	i := j.find(id)
	if i < 0 {
		return state
	}
	j.charges[i].ID = 0
	if j.charges[i].Cost -= amount; j.charges[i].Cost <= 0 {
		j.charges = slices.Delete(j.charges, i, i+1)
	}
	state = append(state[:0], j.before...)
	for _, c := range j.charges {
		state = c.By.Again(state, c)
	}
	j.trim()
	return state
}

// Drop ends a reservation that gives nothing back.
func (j *Journal) Drop(id ID) {
	if i := j.find(id); i >= 0 {
		j.charges[i].ID = 0
		j.trim()
	}
}

func (j *Journal) find(id ID) int {
	return slices.IndexFunc(j.charges, func(c Charge) bool { return c.ID == id && id != 0 })
}

// trim removes the charges before the oldest outstanding reservation.
func (j *Journal) trim() {
	n := slices.IndexFunc(j.charges, func(c Charge) bool { return c.ID != 0 })
	if n < 0 {
		j.Clear()
		return
	}
	for _, c := range j.charges[:n] {
		j.before = c.By.Again(j.before, c)
	}
	j.charges = slices.Delete(j.charges, 0, n)
}

// Reset empties the journal, and keeps little memory.
func (j *Journal) Reset() {
	j.Clear()
	j.inexact = 0
}

// Clear ends all reservations: nothing of them can be given back any more.
func (j *Journal) Clear() {
	j.before = j.before[:0]
	j.charges = emptied(j.charges, keptCharges, j.budget)
}

// IsNew reports whether a Journal is empty, and has little memory.
func (j *Journal) IsNew() bool {
	return len(j.charges) == 0 && cap(j.charges) <= keptCharges && j.inexact == 0
}

// Within sets the Budget of an empty Journal.
func (j *Journal) Within(b Budget) {
	j.Reset()
	j.budget = b
	j.charges = emptied(j.charges, FreeEntries, nil)
}
