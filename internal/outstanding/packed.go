package outstanding

import (
	"math"

	"github.com/weirflow/weir/internal/packed"
	"github.com/weirflow/weir/internal/u128"
)

// The methods in this file write what is outstanding for a holder whose states are bytes, and read it
// back. What they read is checked: whatever the bytes say, later calls do not panic, and what they write can
// be read. newest is the latest ID of the holder: none may be above it. Counts of reservations that were
// inexact are left out.

// Append appends the ledger.
func (l *Ledger) Append(b []byte) []byte {
	b = packed.Uint(b, uint64(len(l.groups)))
	if len(l.groups) == 0 {
		return b
	}
	b = packed.Uint(packed.Bool(b, l.coarse), l.returned)
	before := ID(0)
	for _, g := range l.groups {
		b = packed.Uint(b, uint64(g.first-before))
		before = g.first
		b = packed.Uint(b, uint64(g.open))
		if g.bound == u128.Max() {
			b = packed.Bool(b, true)
		} else {
			b = packed.Wide(packed.Bool(b, false), g.bound)
		}
	}
	return b
}

// Read reads a ledger into an empty one.
func (l *Ledger) Read(r *packed.Reader, newest ID) {
	n := r.Count(MaxGroups)
	if n == 0 {
		return
	}
	l.coarse, l.returned = r.Bool(), r.Uint()
	before := ID(0)
	for i := range n {
		g := group{first: before + ID(r.Uint()), open: int(min(r.Uint(), math.MaxInt)), bound: u128.Max()}
		if !r.Bool() {
			g.bound = r.Wide()
		}
		switch {
		case r.Err() != nil, g.first <= before, !numbered(g.open, g.first, newest):
			r.Fail()
			return
		case i > 0 && !(l.groups[i-1].bound.Less(g.bound) && numbered(l.groups[i-1].open, before, g.first-1)):
			r.Fail()
			return
		}
		var room bool
		if l.groups, room = grow(l.groups, MaxGroups, l.budget); !room { // written by a holder with a larger budget
			r.Fail()
			return
		}
		l.groups = append(l.groups, g)
		before = g.first
	}
}

// numbered reports whether so many reservations have their IDs between two, which may be among them.
func numbered(n int, from, to ID) bool { return n > 0 && from <= to && uint64(n-1) <= uint64(to-from) }

// Append appends the bucket.
func (b *Bucket) Append(p []byte) []byte {
	if p = packed.Bool(p, !b.Empty()); b.Empty() {
		return p
	}
	p = b.ledger.Append(p)
	p = packed.Wide(packed.Wide(p, b.returned), b.latest)
	p = packed.Uint(packed.Uint(p, uint64(b.since)), uint64(b.last))
	if p = packed.Uint(p, uint64(b.promised.size)); b.promised.size == 0 {
		return p
	}
	p = packed.Wide(p, b.before)
	for _, block := range b.promised.blocks {
		for _, c := range block.charges {
			p = packed.Wide(packed.Wide(packed.Uint(p, uint64(c.id)), c.goes), c.cost)
		}
	}
	return p
}

// Read reads a bucket into an empty one.
func (b *Bucket) Read(r *packed.Reader, newest ID) {
	if !r.Bool() {
		return
	}
	b.ledger.Read(r, newest)
	b.returned, b.latest = r.Wide(), r.Wide()
	b.since, b.last = ID(r.Uint()), ID(r.Uint())
	n := r.Count(MaxPromised + 1)
	if n > 0 {
		b.before = r.Wide()
	}
	newestGroup := b.ledger.newest()
	before := newestGroup.first
	if b.last > newest || b.last < before {
		r.Fail()
		return
	}
	for i := range n {
		c := promised{ID(r.Uint()), r.Wide(), r.Wide()}
		switch {
		case r.Err() != nil, c.id > b.last, i == 0 && c.id == 0, c.id != 0 && c.id <= before:
			r.Fail()
			return
		case i == 0 && before != 0 && !numbered(newestGroup.open, before, c.id-1), !b.promised.makeRoom():
			r.Fail()
			return
		}
		before = max(before, c.id)
		b.promised.add(c, before)
	}
	if r.Err() == nil && (b.Empty() || b.promised.after(b.before).Hi > maxTimeHi) {
		r.Fail()
	}
}

// maxTimeHi is the most that the high half of a time in ticks can be: a clock unit has less than 2^63 ticks,
// and a clock 2^64 units. A sum of times that is no more than that has not saturated.
const maxTimeHi = math.MaxInt64

// newest is the newest group; zero if there is none.
func (l *Ledger) newest() (g group) {
	if n := len(l.groups); n > 0 {
		g = l.groups[n-1]
	}
	return g
}

// Append appends the journal. All of its charges must have been made by one rule.
func (j *Journal) Append(b []byte) []byte {
	b = packed.Uint(b, uint64(len(j.charges)))
	if len(j.charges) == 0 {
		return b
	}
	b = packed.Ints(b, j.before)
	for _, c := range j.charges {
		b = packed.Int(packed.Uint(b, uint64(c.ID)), c.Cost)
		for _, goes := range c.Goes {
			b = packed.Int(b, goes)
		}
	}
	return b
}

// Read reads a journal into an empty one. The charges were made by the given rule, and valid reports
// whether a slice can be one of its states.
func (j *Journal) Read(r *packed.Reader, newest ID, by Repeater, most int, valid func([]int64) bool) {
	n := r.Count(MaxCharges)
	if n == 0 {
		return
	}
	if j.before = r.Ints(most); !valid(j.before) {
		r.Fail()
		return
	}
	for i := range n {
		c := Charge{ID: ID(r.Uint()), Cost: r.Int(), By: by}
		for i := range c.Goes {
			c.Goes[i] = r.Int()
		}
		var room bool
		if j.charges, room = grow(j.charges, MaxCharges, j.budget); r.Err() != nil || !room || c.Cost <= 0 || c.ID > newest || i == 0 && c.ID == 0 {
			r.Fail()
			j.charges = j.charges[:0]
			return
		}
		j.charges = append(j.charges, c)
	}
}

// Append appends the beginning.
func (b *Beginning) Append(p []byte) []byte {
	known := b != nil && b.tracks
	if p = packed.Bool(p, known); !known {
		return p
	}
	p = packed.Int(packed.Int(packed.Int(p, b.stays), b.first), b.last)
	p = packed.Uint(packed.Uint(p, uint64(b.later)), uint64(len(b.open)))
	for _, o := range b.open {
		p = packed.Int(packed.Uint(p, uint64(o.id)), o.at)
	}
	return p
}

// ReadBeginning reads a beginning; nil if nothing is known.
func ReadBeginning(r *packed.Reader, newest ID, budget Budget) *Beginning {
	if !r.Bool() {
		return nil
	}
	b := &Beginning{tracks: true, budget: budget}
	b.stays, b.first, b.last = r.Int(), r.Int(), r.Int()
	b.later = int(r.Uint() & math.MaxInt32)
	for range r.Count(MaxBeginning) {
		list, room := grow(b.open, MaxBeginning, b.budget)
		if !room || r.Err() != nil {
			r.Fail()
			return nil
		}
		o := begun{ID(r.Uint()), r.Int()}
		if o.id == 0 || o.id > newest {
			r.Fail()
			return nil
		}
		b.open = append(list, o)
	}
	return b
}
