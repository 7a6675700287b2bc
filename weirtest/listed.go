package weirtest

import (
	"fmt"
	"math/big"
	"slices"
	"time"
)

// A state in a store holds at most so many outstanding reservations, each for so long after its work
// may go. Others are given back by the state alone.
const (
	mostListed = 256
	listedFor  = 15 * time.Minute
)

// listed implements the exact rule for a store's state that is one time z, at which a bucket is full.
// It holds all charges since the oldest outstanding reservation, and z before them. A charge that goes
// at a time makes z max(z, that time) + its cost. To give a reservation back, the others are repeated.
// It is a value: a change returns a new one.
type listed struct {
	before  *big.Rat
	charges []promisedCharge
}

// String returns the values, so that equal lists have equal texts.
func (o *listed) String() string {
	if o == nil {
		return "none"
	}
	text := fmt.Sprint(o.before)
	for _, c := range o.charges {
		text += fmt.Sprint(" ", c.id, " ", c.goes, " ", c.cost)
	}
	return text
}

// listing makes an algorithm that of a store whose states hold their outstanding reservations.
func listing(l algorithm) algorithm {
	parts, _ := all(l)
	for _, p := range parts {
		switch p := p.(type) {
		case *bucket:
			p.list = new(listed)
		case *smoothBursty:
			p.list = new(listed)
		case *intervalBucket:
			p.list = true
		case *warmUp:
			p.list = true
		}
	}
	return l
}

// numberFrom makes an algorithm number its charges from a given one on, where a state lists them by number.
func numberFrom(l algorithm, first int) {
	parts, _ := all(l)
	for _, p := range parts {
		switch p := p.(type) {
		case *bucket:
			p.ids = first
		case *smoothBursty:
			p.ids = first
		case *intervalBucket:
			p.ids = first
		case *warmUp:
			p.ids = first
		}
	}
}

// charged records a charge on a state z whose work goes at a time. id is 0 if it is no reservation.
// entered reports whether a reservation is in the list.
func (o listed) charged(id int, z, now, goes, cost *big.Rat, tick time.Duration) (next *listed, entered bool) {
	if id == 0 && len(o.charges) == 0 {
		return &o, false
	}
	if o.charges = slices.Clone(o.charges); id != 0 {
		for i, c := range o.charges {
			if expired(c, now, tick) {
				o.charges[i].id = 0
			}
		}
	}
	if o = o.trimmed(); len(o.charges) == 0 {
		o.before = z
	}
	open := 0
	for _, c := range o.charges {
		if c.id != 0 {
			open++
		}
	}
	if id != 0 && open >= mostListed && z.Cmp(goes) > 0 {
		id = 0
	}
	if last := len(o.charges) - 1; id == 0 && last >= 0 && o.charges[last].id == 0 { // one charge with the effect of both
		p := o.charges[last]
		o.charges[last] = promisedCharge{0, largest(p.goes, sub(goes, p.cost)), add(p.cost, cost)}
	} else {
		o.charges = append(o.charges, promisedCharge{id, goes, cost})
	}
	o = o.trimmed()
	return &o, id != 0
}

// expired reports whether a reservation counts as final.
func expired(c promisedCharge, now *big.Rat, tick time.Duration) bool {
	return sub(now, c.goes).Cmp(whole(int64(listedFor/tick))) > 0
}

// again is z after all charges, and the list from the latest charge on that found the bucket full.
func (o listed) again() (*big.Rat, listed) {
	z, from := o.before, o
	for i, c := range o.charges {
		if z.Cmp(c.goes) <= 0 {
			from = listed{c.goes, o.charges[i:]}
		}
		z = c.after(z)
	}
	return z, from
}

// trimmed removes the charges that nothing that is given back can change.
func (o listed) trimmed() listed {
	if len(o.charges) == 0 {
		return listed{}
	}
	_, o = o.again()
	for len(o.charges) > 0 && o.charges[0].id == 0 {
		o = listed{o.charges[0].after(o.before), o.charges[1:]}
	}
	return o
}

// without ends a reservation, takes an amount off its cost, and returns z; nil if it is not in the
// list.
func (o listed) without(id int, amount, now *big.Rat, tick time.Duration) (*listed, *big.Rat) {
	i := slices.IndexFunc(o.charges, func(c promisedCharge) bool { return c.id == id })
	if i < 0 {
		return &o, nil
	}
	o.charges = slices.Clone(o.charges)
	c := &o.charges[i]
	c.id = 0
	if !expired(*c, now, tick) {
		if c.cost = sub(c.cost, amount); c.cost.Sign() == 0 {
			o.charges = slices.Delete(o.charges, i, i+1)
		}
	}
	z, _ := o.again()
	o = o.trimmed()
	return &o, z
}

// less takes an amount off what was charged before the list, and returns z.
func (o listed) less(amount *big.Rat) (*listed, *big.Rat) {
	o.before = largest(new(big.Rat), sub(o.before, amount))
	z, _ := o.again()
	o = o.trimmed()
	return &o, z
}

// returned is z after something was given back: not before now, and not later than it was.
func returned(without, now, z *big.Rat) *big.Rat { return smallest(largest(without, now), z) }

// markExpired reports whether a reservation counts as final, in a state that still shows what was
// charged.
func markExpired(l algorithm, now int64, m mark) bool {
	if m == nil || !l.touched() {
		return false
	}
	switch l := l.(type) {
	case *allOf:
		for i, p := range l.parts {
			if m, ok := m.(allMark); ok && markExpired(p, now, m[i]) {
				return true
			}
		}
	case interface{ expired(int64, mark) bool }:
		return l.expired(now, m)
	}
	return false
}
