package rules

import (
	"slices"

	"github.com/weirflow/weir/internal/outstanding"
)

// A Memory is what the holder of a state keeps beside it while reservations are outstanding:
// neither settled nor cancelled. With it, giving a reservation back leaves the state as if its
// charge had never been made (docs/guarantees.md, "Cancelling a reservation"). Each rule uses the
// part of it that it needs. While nothing is outstanding, no Memory is needed.
//
// The zero Memory is empty and ready to use.
type Memory struct {
	bucket  outstanding.Bucket // of a GCRA
	ledger  outstanding.Ledger // of an IntervalBucket
	journal outstanding.Journal
	begins  *outstanding.Beginning // of a FixedWindow whose windows begin with a charge; else nil
	parts   []Memory               // of an All
	budget  outstanding.Budget
}

// Empty reports whether nothing is outstanding.
func (m *Memory) Empty() bool {
	return m.bucket.Empty() && m.ledger.Empty() && m.journal.Empty() && m.begins.Empty() && !slices.ContainsFunc(m.parts, func(p Memory) bool { return !p.Empty() })
}

// TakeInexact returns how many reservations, since its last call, were too many to be remembered
// exactly: those may give back less than was charged.
func (m *Memory) TakeInexact() uint64 {
	n := m.bucket.TakeInexact() + m.ledger.TakeInexact() + m.journal.TakeInexact() + m.begins.TakeInexact()
	for i := range m.parts {
		n += m.parts[i].TakeInexact()
	}
	return n
}

// Within empties a Memory, and sets the budget that it grows by.
func (m *Memory) Within(b outstanding.Budget) {
	if b == nil && m.budget == nil && m.isNew() {
		return
	}
	m.Reset()
	m.budget = b
	m.bucket.Within(b)
	m.ledger.Within(b)
	m.journal.Within(b)
	m.begins.Within(b)
}

// isNew reports whether an empty Memory without a budget needs no Reset.
func (m *Memory) isNew() bool {
	return len(m.parts) == 0 && m.bucket.IsNew() && m.ledger.IsNew() && m.journal.IsNew() && m.begins.IsNew()
}

// newMemory returns an empty Memory with a budget.
func newMemory(b outstanding.Budget) (m Memory) {
	m.Within(b)
	return m
}

// Reset empties a Memory, and frees most of its space.
func (m *Memory) Reset() {
	m.bucket.Reset()
	m.ledger.Reset()
	m.journal.Reset()
	m.begins.Reset()
	for i := range m.parts {
		m.parts[i].Reset()
	}
	m.parts = m.parts[:0]
}

// part is the memory of one part of an All of n parts; nil for a nil Memory.
func (m *Memory) part(i, n int) *Memory {
	if m == nil {
		return nil
	}
	for len(m.parts) < n {
		m.parts = append(m.parts, newMemory(m.budget))
	}
	return &m.parts[i]
}

// changeJournal records a change of the limit in the journal, so that it is repeated in its place.
// Between rules that are not of the same kind, nothing can be given back.
func (m *Memory) changeJournal(sameKind bool, now int64, from, to Rule) {
	if !sameKind {
		m.Reset()
		return
	}
	m.journal.Charged(nil, outstanding.Charge{Goes: [5]int64{now}, By: change{from, to}})
}

// A change of the limit is a step of a journal.
type change struct{ from, to Rule }

// Again implements outstanding.Repeater.
func (c change) Again(s []int64, at outstanding.Charge) []int64 {
	return c.from.Convert(s, at.Goes[0], c.to, at.Goes[0])
}

// A Note describes a charge to a rule before it is made.
type Note struct {
	ID   outstanding.ID // of a reservation; 0 for any other charge
	At   int64          // the time as of which it is charged
	Due  int64          // when its work goes, as Plan said
	Cost int64
	Debt bool // the work was already done, and was not delayed
}

// ticketID is the word of each ticket that holds the reservation's ID.
const ticketID = len(Ticket{}) - 1

func (t *Ticket) id() outstanding.ID { return outstanding.ID(t[ticketID]) }
