package weirtest

import (
	"fmt"
	"math/big"
)

// takeOver begins a version with what another one has used: at most one capacity beyond full.
func takeOver(from, to algorithm, now int64) version {
	begun := change(now, from, to)
	parts, is := all(begun)
	for i, p := range parts {
		if most := twice(p); heldBy(p, now).Cmp(most) > 0 {
			fresh := unused(p)
			fresh.contact(now)
			fresh.charge(whole(now), clamp(most))
			if parts[i] = fresh; !is {
				begun = fresh
			}
		}
	}
	return version{begun, now, endOf(begun, now)}
}

// unused returns an algorithm without its state.
func unused(l algorithm) algorithm {
	switch l := l.clone().(type) {
	case *bucket:
		l.z, l.x = nil, new(big.Rat)
		listing(l)
		return l
	case *smoothBursty:
		l.f, l.x = nil, new(big.Rat)
		listing(l)
		return l
	case *intervalBucket:
		l.now, l.open = nil, nil
		return l
	case *fixedWindow:
		l.now = nil
		return l
	case *slidingWindow:
		l.counts, l.promised = nil, nil
		return l
	case *slidingCounter:
		l.now = nil
		return l
	case *slidingLog:
		l.charges, l.promised, l.made = nil, nil, false
		return l
	case *warmUp:
		l.stored, l.next, l.again = nil, nil, again{}
		return l
	}
	panic(fmt.Sprintf("weirtest: no store keeps %T", l))
}

// endOf is when a state is idle again.
func endOf(l algorithm, now int64) int64 {
	_, reset := l.peek(now, new(big.Int))
	return clamp(reset.Add(reset, big.NewInt(now)))
}

// heldBy is what is used of an algorithm that is no All, also beyond its capacity.
func heldBy(l algorithm, now int64) *big.Int {
	if c, ok := l.(*slidingCounter); ok {
		s, into := c.at(big.NewInt(now))
		old := new(big.Int).Mul(s.previous, new(big.Int).Sub(c.length(), into))
		return old.Add(ceil(new(big.Rat).SetFrac(old, c.length())), s.current)
	}
	return l.spent(now)
}

// twice is how far an algorithm is filled by what another version admits: one capacity beyond full.
func twice(l algorithm) *big.Int {
	capacity := l.size()
	if s, ok := l.(*slidingWindow); ok {
		capacity = s.limit
	}
	most := new(big.Int).Mul(big.NewInt(2), big.NewInt(max(capacity, 1)))
	return earliest(most, big.NewInt(mostInStore))
}

// fill charges an algorithm for what another version admitted.
func fill(l algorithm, now, cost int64, keeps bool) chargedVersion {
	c := chargedVersion{of: unusedAll(l)}
	parts, _ := all(l)
	for _, p := range parts {
		amount := min(cost, clamp(new(big.Int).Sub(twice(p), heldBy(p, now))))
		var made mark
		if amount = max(amount, 0); amount > 0 {
			if f, ok := p.(interface {
				fill(now, cost int64, keeps bool) mark
			}); ok {
				made = f.fill(now, amount, keeps)
			} else {
				made = p.reserve(now, whole(now), amount)
			}
		}
		c.amounts, c.marks = append(c.amounts, amount), append(c.marks, made)
	}
	return c
}

// unusedAll is unused for a joint too.
func unusedAll(l algorithm) algorithm {
	j, ok := l.(*allOf)
	if !ok {
		return unused(l)
	}
	c := &allOf{names: j.names}
	for _, p := range j.parts {
		c.parts = append(c.parts, unused(p))
	}
	return c
}

// sharesState reports whether one state serves two laws: a change from one to the other and back
// creates nothing, and loses less than 1/32 of what each charge takes.
func sharesState(a, b algorithm) bool {
	switch a := a.(type) {
	case *bucket:
		b, ok := b.(*bucket)
		fine := big.NewInt(64) // parts of a token
		return ok && (a.t.Cmp(b.t) == 0 || a.t.Num().Cmp(fine) >= 0 && b.t.Num().Cmp(fine) >= 0)
	case *intervalBucket:
		b, ok := b.(*intervalBucket)
		return ok && a.each == b.each
	case *fixedWindow:
		b, ok := b.(*fixedWindow)
		return ok && a.boundaries.String() == b.boundaries.String()
	case *slidingWindow:
		b, ok := b.(*slidingWindow)
		return ok && a.width == b.width && a.n == b.n
	case *slidingCounter:
		b, ok := b.(*slidingCounter)
		return ok && a.window == b.window
	case *slidingLog:
		b, ok := b.(*slidingLog)
		return ok && a.window == b.window && (a.most == b.most || int64(a.most) >= a.limit && int64(b.most) >= b.limit)
	case *allOf:
		b, ok := b.(*allOf)
		if !ok || len(a.parts) != len(b.parts) {
			return false
		}
		for j, i := range pairs(a.parts, b.parts) {
			if kind(a.parts[i]) != kind(b.parts[j]) || !a.parts[i].same(b.parts[j]) && !sharesState(a.parts[i], b.parts[j]) {
				return false
			}
		}
		return true
	}
	return false
}

// comesBackSooner reports whether a state that two laws share comes back faster under the second: a
// refused caller was told so, and the state has to do so.
func comesBackSooner(from, to algorithm) bool {
	switch from := from.(type) {
	case *bucket:
		return to.(*bucket).t.Cmp(from.t) < 0
	case *intervalBucket:
		return to.(*intervalBucket).refill > from.refill
	case *allOf:
		to := to.(*allOf)
		for j, i := range pairs(from.parts, to.parts) {
			if comesBackSooner(from.parts[i], to.parts[j]) {
				return true
			}
		}
	}
	return false
}
