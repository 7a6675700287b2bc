package weirtest

import (
	"math/big"
	"slices"
)

// reserved implements the exact rule for a state that is one time z, at which a bucket is full. A
// charge that goes at a time makes it max(z, that time) + its cost. To give a reservation back, the
// other charges are repeated, each at the time at which its work goes. Charges whose work has gone
// are in open. The others are in promised, in the order in which they were made. It is a value.
type reserved struct {
	open     outstanding
	before   *big.Rat // z without promised
	promised []promisedCharge
}

type promisedCharge struct {
	id         int // 0 if it is not outstanding
	goes, cost *big.Rat
}

func (p promisedCharge) after(z *big.Rat) *big.Rat { return add(largest(z, p.goes), p.cost) }

// charged records a charge at now on a state z, whose work goes at a time. id is 0 if it is no
// reservation.
func (r reserved) charged(id int, z, now, goes, cost *big.Rat) reserved {
	if r = r.passed(now); len(r.promised) == 0 {
		r.before = z
	}
	r.promised = append(slices.Clone(r.promised), promisedCharge{id, goes, cost})
	return r.passed(now)
}

// passed moves charges to open: those whose time has come, unless a later one goes earlier, and
// those before the first outstanding one.
func (r reserved) passed(now *big.Rat) reserved {
	for len(r.promised) > 0 {
		first := r.promised[0]
		overtaken := slices.ContainsFunc(r.promised, func(p promisedCharge) bool { return p.goes.Cmp(first.goes) < 0 })
		if first.id != 0 && (overtaken || now == nil || first.goes.Cmp(now) > 0) {
			break
		}
		r = r.entered()
	}
	return r
}

// entered moves the first charge to open.
func (r reserved) entered() reserved {
	first := r.promised[0]
	if r.open = r.open.charged(largest(new(big.Rat), sub(r.before, first.goes))); first.id != 0 {
		r.open = r.open.add(first.id)
	}
	return reserved{r.open, first.after(r.before), r.promised[1:]}
}

// giveBack ends a reservation and returns z without an amount of its cost.
func (r reserved) giveBack(id int, amount, z, now *big.Rat) (reserved, *big.Rat) {
	var give *big.Rat
	if r = r.passed(now); len(r.promised) == 0 {
		r.open, give = r.open.giveBack(id, amount, largest(new(big.Rat), sub(z, now)))
		return r, sub(z, give)
	}
	i := slices.IndexFunc(r.promised, func(p promisedCharge) bool { return p.id == id })
	if i < 0 {
		r.open, give = r.open.giveBack(id, amount, amount)
		r.before = sub(r.before, give)
	} else {
		r.promised = slices.Clone(r.promised)
		p := &r.promised[i]
		if p.id, p.cost = 0, sub(p.cost, amount); p.cost.Sign() == 0 {
			r.promised = slices.Delete(r.promised, i, i+1)
		}
	}
	without := r.before
	for _, p := range r.promised {
		without = p.after(without)
	}
	return r.passed(now), smallest(z, largest(without, now))
}

// without ends a reservation that gives nothing back.
func (r reserved) without(id int) reserved {
	r.open, r.promised = r.open.without(id), slices.Clone(r.promised)
	for i := range r.promised {
		if r.promised[i].id == id {
			r.promised[i].id = 0
		}
	}
	return r.passed(nil)
}

// scaled returns the reservations after a change of the limit.
func (r reserved) scaled(f func(*big.Rat) *big.Rat) reserved {
	for len(r.promised) > 0 {
		r = r.entered()
	}
	return reserved{open: r.open.scaled(f)}
}
