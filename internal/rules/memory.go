package rules

import (
	"slices"

	"github.com/weirflow/weir/internal/outstanding"
)

// A Memory is what a holder of a state keeps beside it while reservations are outstanding: neither settled nor cancelled. With it, giving
// one back leaves the state as if its charge had never been made (docs/guarantees.md, "Cancelling a reservation"). Which part of it is used
// is the rule's own business. While nothing is outstanding there is no need for one.
//
// The zero Memory is empty and ready to use.
type Memory struct {
	ledger  outstanding.Ledger
	journal outstanding.Journal
	parts   []Memory // of an All
}

// Empty reports whether nothing is outstanding.
func (m *Memory) Empty() bool {
	return m.ledger.Empty() && m.journal.Empty() && !slices.ContainsFunc(m.parts, func(p Memory) bool { return !p.Empty() })
}

// TakeInexact returns how many reservations since it was last called were too many to be remembered exactly: of those, less may be given back
// than was charged.
func (m *Memory) TakeInexact() uint64 {
	n := m.ledger.TakeInexact() + m.journal.TakeInexact()
	for i := range m.parts {
		n += m.parts[i].TakeInexact()
	}
	return n
}

// Reset makes a Memory a new one, and keeps little memory.
func (m *Memory) Reset() {
	m.ledger.Reset()
	m.journal.Reset()
	for i := range m.parts {
		m.parts[i].Reset()
	}
	m.parts = m.parts[:0]
}

// part is the memory of one part of an All of n parts; nil of none.
func (m *Memory) part(i, n int) *Memory {
	if m == nil {
		return nil
	}
	for len(m.parts) < n {
		m.parts = append(m.parts, Memory{})
	}
	return &m.parts[i]
}

// A Note is what a rule is told of a charge before it is made.
type Note struct {
	ID   outstanding.ID // of a reservation; 0 for any other charge
	At   int64          // as of when it is charged
	Due  int64          // when its work goes, as Plan said
	Cost int64
	Debt bool // the work was done already, and waited for nothing
}

// ticketID is the word of each ticket that holds the reservation's ID.
const ticketID = len(Ticket{}) - 1

func (t *Ticket) id() outstanding.ID { return outstanding.ID(t[ticketID]) }
