package weirtest

import (
	"fmt"
	"math/big"
	"slices"
	"time"
)

// outstanding implements the exact rule of docs/guarantees.md for a state that is one backlog. It holds
// the reservations that are neither settled nor cancelled, oldest first, and for each the smallest
// backlog that any later charge found. It is a value: a change returns a new one.
type outstanding []openCharge

type openCharge struct {
	id   int
	most *big.Rat // nil if no charge came later
	goes *big.Rat // when its work goes; in a store
}

// String returns the values, so that equal ones have equal texts.
func (c openCharge) String() string { return fmt.Sprint(c.id, " ", c.most, " ", c.goes) }

// charged records a charge that found a backlog when its work went.
func (o outstanding) charged(backlog *big.Rat) outstanding {
	c := slices.Clone(o)
	for i := range c {
		if c[i].most == nil || backlog.Cmp(c[i].most) < 0 {
			c[i].most = backlog
		}
	}
	return c
}

// add records a reservation whose charge was recorded. The id must be unique.
func (o outstanding) add(id int) outstanding { return append(slices.Clone(o), openCharge{id: id}) }

// without ends a reservation without giving anything back.
func (o outstanding) without(id int) outstanding {
	return slices.DeleteFunc(slices.Clone(o), func(c openCharge) bool { return c.id == id })
}

// giveBack ends a reservation, and returns by how much the current backlog shrinks.
func (o outstanding) giveBack(id int, amount, backlog *big.Rat) (outstanding, *big.Rat) {
	a := slices.IndexFunc(o, func(c openCharge) bool { return c.id == id })
	if a < 0 {
		return o, new(big.Rat)
	}
	give := smallest(amount, backlog)
	if o[a].most != nil {
		give = smallest(give, o[a].most)
	}
	c := slices.Clone(o)
	for i := range c {
		switch {
		case i > a && c[i].most != nil:
			c[i].most = largest(new(big.Rat), sub(c[i].most, give))
		case i < a && o[a].most != nil:
			c[i].most = smallest(c[i].most, largest(new(big.Rat), sub(o[a].most, give)))
		}
	}
	return c.without(id), give
}

func (o outstanding) has(id int) bool {
	return slices.ContainsFunc(o, func(c openCharge) bool { return c.id == id })
}

// lasting is the reservations that a store's state still remembers at now.
func (o outstanding) lasting(now int64, tick time.Duration) outstanding {
	return slices.DeleteFunc(slices.Clone(o), func(c openCharge) bool {
		return expired(promisedCharge{goes: c.goes}, whole(now), tick)
	})
}

// lowered is the reservations after an amount of any other charge was given back: each later charge
// found at most that much less.
func (o outstanding) lowered(amount *big.Rat) outstanding {
	return o.scaled(func(most *big.Rat) *big.Rat { return largest(new(big.Rat), sub(most, amount)) })
}

// scaled returns the reservations after a change of the limit.
func (o outstanding) scaled(f func(*big.Rat) *big.Rat) outstanding {
	c := slices.Clone(o)
	for i := range c {
		if c[i].most != nil {
			c[i].most = f(c[i].most)
		}
	}
	return c
}

// maxAgain limits how many charges are repeated.
const maxAgain = 64

// again implements the exact rule for a state in which the price of a charge depends on the state.
// It holds all charges since the oldest outstanding reservation, and the changes of the limit among
// them. To give a reservation back, it repeats all of them without it. It is a value, too.
type again struct {
	before  algorithm // the state before all of them; nil if nothing is outstanding
	charges []chargeAgain
}

type chargeAgain struct {
	id   int // 0 if it is not outstanding
	cost int64
	goes *big.Rat // when its work goes
	to   remade   // nil, or the untouched state of the limit that a change at that time led to
}

// a remade algorithm can repeat charges.
type remade interface {
	algorithm
	make(chargeAgain)
	bare() algorithm // a copy without outstanding reservations
}

// charged records a charge that is about to be made, of the most that are kept.
func (a again) charged(l remade, c chargeAgain, most int) again {
	if a.before == nil && c.id == 0 {
		return a
	}
	if len(a.charges) == most {
		a.charges = slices.Clone(a.charges)
		a.charges[0].id = 0
		a = a.trimmed()
	}
	if a.before == nil {
		if c.id == 0 {
			return a
		}
		a.before = l.bare()
	}
	a.charges = append(slices.Clone(a.charges), c)
	return a
}

// trimmed removes the charges before the oldest outstanding reservation.
func (a again) trimmed() again {
	n := slices.IndexFunc(a.charges, func(c chargeAgain) bool { return c.id != 0 })
	if n < 0 {
		return again{}
	}
	return again{repeated(a.before, a.charges[:n]), slices.Clone(a.charges[n:])}
}

// repeated is a state after charges and changes.
func repeated(before algorithm, charges []chargeAgain) algorithm {
	l := before.clone().(remade)
	for _, c := range charges {
		if c.to != nil {
			l = l.changedTo(down(c.goes), c.to.bare()).(remade)
		} else {
			l.make(c)
		}
	}
	return l
}

// changed records a change of the limit.
func (a again) changed(now int64, to remade) again {
	return a.charged(nil, chargeAgain{goes: whole(now), to: to}, maxAgain)
}

// giveBack returns the state without an amount of a reservation's cost, or nil if the reservation
// is not outstanding.
func (a again) giveBack(id int, amount int64) (algorithm, again) {
	i := slices.IndexFunc(a.charges, func(c chargeAgain) bool { return c.id == id })
	if i < 0 {
		return nil, a
	}
	a.charges = slices.Clone(a.charges)
	a.charges[i].id = 0
	if a.charges[i].cost -= amount; a.charges[i].cost <= 0 {
		a.charges = slices.Delete(a.charges, i, i+1)
	}
	return repeated(a.before, a.charges), a.trimmed()
}

// lasting ends the reservations that a store's state no longer remembers at now.
func (a again) lasting(now *big.Rat, tick time.Duration) again {
	a.charges = slices.Clone(a.charges)
	for i, c := range a.charges {
		if expired(promisedCharge{goes: c.goes}, now, tick) {
			a.charges[i].id = 0
		}
	}
	return a.trimmed()
}

// without ends a reservation without giving anything back.
func (a again) without(id int) again {
	i := slices.IndexFunc(a.charges, func(c chargeAgain) bool { return c.id == id })
	if i < 0 {
		return a
	}
	a.charges = slices.Clone(a.charges)
	a.charges[i].id = 0
	return a.trimmed()
}
