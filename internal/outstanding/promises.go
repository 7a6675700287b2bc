package outstanding

import (
	"slices"
	"sort"

	"github.com/weirflow/weir/internal/u128"
)

// A promised charge is a charge whose work goes later, or that was made after such a charge.
type promised struct {
	id   ID        // 0 if it is not, or no longer, an outstanding reservation
	goes u128.Uint // when its work goes
	cost u128.Uint
}

// after is Z after the charge.
func (p *promised) after(z u128.Uint) u128.Uint {
	if z.Less(p.goes) {
		z = p.goes
	}
	return z.Add(p.cost)
}

// blockSize is the most charges of a block.
const blockSize = 16

// promises are promised charges, oldest first, in blocks. Neighbours that are not outstanding are
// joined. A charge is added, found, changed and removed within its block, and the effect of all
// charges together takes one step for each block. So nothing takes a step for each charge.
//
// Two neighbouring blocks have more than blockSize charges together, so that there are few blocks. The zero
// value is an empty list without a Budget.
type promises struct {
	blocks []*block // none is empty
	spare  *block   // an empty one: a list that keeps its length allocates nothing
	size   int      // how many charges there are
	room   int      // how many there is memory for
	budget Budget
	// The times of charges rise from older to newer, except before the charge with this ID or just
	// after it.
	unordered ID
	latest    u128.Uint // no charge goes later
}

type block struct {
	charges []promised
	newest  ID   // no ID in the block is above it, and none in a later block is below
	known   bool // effect and earliest are those of the charges
	effect  effect
	// when the first work of the block goes
	earliest u128.Uint
}

// An effect is what charges do to Z, one after the other: Z becomes max(Z + cost, floor).
type effect struct{ cost, floor u128.Uint }

func (e *effect) add(p *promised) {
	if e.floor.Less(p.goes) {
		e.floor = p.goes
	}
	e.cost, e.floor = e.cost.Add(p.cost), e.floor.Add(p.cost)
}

func (e *effect) after(z u128.Uint) u128.Uint {
	if z = z.Add(e.cost); z.Less(e.floor) {
		return e.floor
	}
	return z
}

// learn brings the block's effect up to date.
func (b *block) learn() {
	if b.known {
		return
	}
	b.known, b.effect, b.earliest = true, effect{}, u128.Max()
	for i := range b.charges {
		b.effect.add(&b.charges[i])
		b.earliest = b.earliest.Min(b.charges[i].goes)
	}
}

// after is Z after all charges.
func (l *promises) after(z u128.Uint) u128.Uint {
	for _, b := range l.blocks {
		b.learn()
		z = b.effect.after(z)
	}
	return z
}

// first returns the oldest charge; nil if there is none.
func (l *promises) first() *promised {
	if l.size == 0 {
		return nil
	}
	return &l.blocks[0].charges[0]
}

// overtaken reports whether the work of a later charge goes before that of the first, which is an
// outstanding reservation.
func (l *promises) overtaken() bool {
	first := l.first()
	if l.unordered < first.id {
		return false
	}
	for _, b := range l.blocks {
		if b.learn(); b.earliest.Less(first.goes) {
			return true
		}
	}
	return false
}

// makeRoom makes room for a charge. It reports false if the Budget refuses it.
func (l *promises) makeRoom() bool {
	b := l.spare
	if n := len(l.blocks); n > 0 && len(l.blocks[n-1].charges) < blockSize {
		b = l.blocks[n-1]
	} else if b == nil {
		b = new(block)
	}
	if len(b.charges) == cap(b.charges) {
		size := blockSize
		if len(l.blocks) == 0 || len(l.blocks) == 1 && b == l.blocks[0] { // most lists are short
			size = min(max(2*cap(b.charges), FreeEntries), blockSize)
		}
		if !l.resize(size - cap(b.charges)) {
			return false
		}
		b.charges = append(make([]promised, 0, size), b.charges...)
	}
	if len(b.charges) == 0 {
		l.spare = b
	}
	return true
}

// resize takes the memory of so many further charges from the Budget, or returns it.
func (l *promises) resize(more int) bool {
	bytes := charged[promised](l.room+more) - charged[promised](l.room)
	switch {
	case l.budget == nil || bytes == 0:
	case bytes < 0:
		l.budget.Return(-bytes)
	case !l.budget.Take(bytes):
		return false
	}
	l.room += more
	return true
}

// add adds a charge, for which there is room. newest is the latest ID of all charges.
func (l *promises) add(p promised, newest ID) {
	switch {
	case l.size == 0:
		l.unordered, l.latest = 0, p.goes
	case p.goes.Less(l.latest):
		l.unordered = newest
	default:
		l.latest = p.goes
	}
	n := len(l.blocks)
	if n == 0 || len(l.blocks[n-1].charges) == blockSize {
		l.blocks = append(l.blocks, l.spare)
		l.spare, n = nil, n+1
		*l.blocks[n-1] = block{charges: l.blocks[n-1].charges, known: true, earliest: p.goes}
	}
	b := l.blocks[n-1]
	if b.newest = newest; b.known {
		b.effect.add(&p)
		b.earliest = b.earliest.Min(p.goes)
	}
	b.charges = append(b.charges, p)
	if l.size++; p.id == 0 {
		l.join(n-1, len(b.charges)-1)
	}
}

// find returns where the reservation is.
func (l *promises) find(id ID) (at, i int, ok bool) {
	if l.size == 0 {
		return 0, 0, false
	}
	at = sort.Search(len(l.blocks), func(i int) bool { return l.blocks[i].newest >= id })
	if at == len(l.blocks) {
		return 0, 0, false
	}
	i = slices.IndexFunc(l.blocks[at].charges, func(p promised) bool { return p.id == id })
	return at, i, i >= 0
}

// end removes an amount of the cost of an outstanding reservation, and ends it.
func (l *promises) end(at, i int, amount u128.Uint) {
	b := l.blocks[at]
	p := &b.charges[i]
	p.id = 0
	if p.cost = p.cost.Sub(amount); p.cost.IsZero() {
		if at, i, ok := l.remove(at, i); ok {
			l.join(at, i)
		}
		return
	}
	if !amount.IsZero() {
		b.known = false
	}
	if at, i, ok := l.join(at, i); ok {
		l.join(at, i)
	}
}

// next returns where the charge after one is.
func (l *promises) next(at, i int) (int, int, bool) {
	if i+1 < len(l.blocks[at].charges) {
		return at, i + 1, true
	}
	return at + 1, 0, at+1 < len(l.blocks)
}

// join makes one of a charge and the one before it if neither is outstanding. They have the effect
// of one charge, but the earlier one of their times is lost: they stay two if a reservation before them
// is overtaken by that alone. It returns where the charge after them is.
func (l *promises) join(at, i int) (int, int, bool) {
	p := l.blocks[at].charges[i]
	before, j := at, i-1
	if j < 0 {
		if before--; before < 0 {
			return l.next(at, i)
		}
		j = len(l.blocks[before].charges) - 1
	}
	last := &l.blocks[before].charges[j]
	if p.id != 0 || last.id != 0 {
		return l.next(at, i)
	}
	goes := last.goes
	if later := p.goes.Sub(last.cost); goes.Less(later) {
		goes = later
	}
	if l.between(before, last.goes.Min(p.goes), goes) {
		return l.next(at, i)
	}
	last.goes, last.cost = goes, last.cost.Add(p.cost)
	l.blocks[before].known = false
	return l.remove(at, i)
}

// between reports whether the work of an outstanding reservation in the first blocks, up to the given
// one, goes after a time and not after another one. It takes a step for each charge, but only where
// times do not rise.
func (l *promises) between(to int, after, until u128.Uint) bool {
	if !after.Less(until) || l.unordered < l.first().id {
		return false
	}
	for _, b := range l.blocks[:to+1] {
		for i := range b.charges {
			if p := &b.charges[i]; p.id != 0 && after.Less(p.goes) && !until.Less(p.goes) {
				return true
			}
		}
	}
	return false
}

// remove removes a charge, and returns where the one after it is now.
func (l *promises) remove(at, i int) (int, int, bool) {
	b := l.blocks[at]
	b.charges = slices.Delete(b.charges, i, i+1)
	b.known = false
	l.size--
	switch {
	case len(b.charges) == 0:
		l.free(at)
		return at, 0, at < len(l.blocks)
	case at > 0 && len(l.blocks[at-1].charges)+len(b.charges) <= blockSize:
		at, i = at-1, i+len(l.blocks[at-1].charges)
		l.merge(at)
	case at+1 < len(l.blocks) && len(b.charges)+len(l.blocks[at+1].charges) <= blockSize:
		l.merge(at)
	}
	if i < len(l.blocks[at].charges) {
		return at, i, true
	}
	return at + 1, 0, at+1 < len(l.blocks)
}

// merge moves the charges of the next block into the given one. That has room for them: another
// block begins only after one that was full.
func (l *promises) merge(at int) {
	b, next := l.blocks[at], l.blocks[at+1]
	b.charges, b.newest, b.known = append(b.charges, next.charges...), next.newest, false
	l.free(at + 1)
}

// free takes a block out of the list.
func (l *promises) free(at int) {
	b := l.blocks[at]
	l.blocks = slices.Delete(l.blocks, at, at+1)
	if clear(b.charges); l.spare == nil {
		l.spare, b.charges = b, b.charges[:0]
		return
	}
	l.resize(-cap(b.charges))
}

// reset empties the list, and keeps the memory of at most so many charges.
func (l *promises) reset(keep int) {
	for len(l.blocks) > 0 {
		l.free(len(l.blocks) - 1)
	}
	if l.size = 0; l.room > keep {
		l.resize(-l.room)
		l.blocks, l.spare = nil, nil
	}
}

// within sets the Budget of an empty list.
func (l *promises) within(budget Budget) {
	l.reset(FreeEntries)
	l.budget = budget
}

// kept is for how many charges an empty list keeps memory: with a Budget, what never came from it.
func (l *promises) kept() int {
	if l.budget != nil {
		return FreeEntries
	}
	return blockSize
}
