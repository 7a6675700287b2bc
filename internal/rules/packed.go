package rules

import (
	"github.com/weirflow/weir/internal/outstanding"
	"github.com/weirflow/weir/internal/packed"
)

// MaxStateWords bounds the words of a state that is read from bytes: more than any limit has.
const MaxStateWords = 1 << 20

// Append appends a Memory, for a holder whose states are bytes. Such a holder resets the Memory when
// the limit changes, so that all of it is of one rule.
func (m *Memory) Append(b []byte) []byte {
	b = m.bucket.Append(b)
	b = m.ledger.Append(b)
	b = m.journal.Append(b)
	b = m.begins.Append(b)
	b = packed.Uint(b, uint64(len(m.parts)))
	for i := range m.parts {
		b = m.parts[i].Append(b)
	}
	return b
}

// ReadMemory reads a Memory of a rule, which grows within a budget. newest is the latest ID of the holder.
func ReadMemory(p *packed.Reader, r Rule, newest outstanding.ID, budget outstanding.Budget) *Memory {
	m := newMemory(budget)
	m.read(p, r, newest)
	return &m
}

func (m *Memory) read(p *packed.Reader, r Rule, newest outstanding.ID) {
	m.bucket.Read(p, newest)
	m.ledger.Read(p, newest)
	by, ok := r.(outstanding.Repeater)
	if m.journal.Read(p, newest, by, MaxStateWords, r.Valid); !ok && !m.journal.Empty() {
		p.Fail() // of a rule that keeps no journal
		m.journal.Reset()
	}
	m.begins = outstanding.ReadBeginning(p, newest, m.budget)
	var parts []Rule
	if a, ok := r.(*allRule); ok {
		parts = a.rules
	}
	n := p.Count(len(parts))
	if n != 0 && n != len(parts) {
		p.Fail()
		return
	}
	for i := range n {
		part := newMemory(m.budget)
		part.read(p, parts[i], newest)
		m.parts = append(m.parts, part)
	}
}

// Append appends a Receipt of a rule.
func (c Receipt) Append(b []byte) []byte {
	if c.parts == nil {
		return c.ticket.append(packed.Uint(b, 0))
	}
	b = packed.Uint(b, MaxParts)
	for i := range c.parts.tickets {
		b = c.parts.tickets[i].append(b)
	}
	return b
}

func (t *Ticket) append(b []byte) []byte {
	n := len(t)
	for n > 0 && t[n-1] == 0 {
		n--
	}
	return packed.Ints(b, t[:n])
}

func (t *Ticket) read(p *packed.Reader) { copy(t[:], p.Ints(len(t))) }

// ReadReceipt reads a Receipt of a rule.
func ReadReceipt(p *packed.Reader, r Rule) (c Receipt) {
	n := p.Count(MaxParts)
	if _, ok := r.(*allRule); n != 0 && n != MaxParts || ok != (n > 0) {
		p.Fail()
	}
	if n == 0 {
		c.ticket.read(p)
		return c
	}
	c.parts = new(partTickets)
	for i := range c.parts.tickets {
		c.parts.tickets[i].read(p)
	}
	return c
}
