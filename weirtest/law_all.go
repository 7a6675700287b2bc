package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir"
)

// joint is the law of All (SEMANTICS 10): several laws that are charged together or not at all.
type joint struct {
	parts []law
	names []string // what decisions call them
}

// jointMark is one mark for each part; nil where nothing can be given back to it.
type jointMark []mark

// newJoint returns the law of a limit that is an All.
func newJoint(limits []weir.Limit, tick time.Duration, blind bool) *joint {
	j := new(joint)
	for i, l := range limits {
		j.parts = append(j.parts, lawOf(l, tick, blind))
		j.names = append(j.names, fmt.Sprintf("%s.%d", weir.Algorithm(l), i+1))
	}
	return j
}

// joined returns the limits that an All joins, of one limit too; nil for what is none.
func joined(l weir.Limit) []weir.Limit {
	if parts := weir.Parts(l); len(parts) != 1 || parts[0] != l {
		return parts
	}
	return nil
}

// least is the least of a number that each part has.
func (j *joint) least(of func(law) int64) int64 {
	v := int64(math.MaxInt64)
	for _, p := range j.parts {
		v = min(v, of(p))
	}
	return v
}

func (j *joint) size() int64    { return j.least(law.size) }
func (j *joint) largest() int64 { return j.least(law.largest) }
func (j *joint) books() bool    { return false }
func (j *joint) moves() bool    { return false }
func (j *joint) String() string { return fmt.Sprint(j.parts) }

func (j *joint) contact(now int64) {
	if j.touched() {
		return
	}
	for _, p := range j.parts {
		p.contact(now)
	}
}

func (j *joint) touched() bool {
	for _, p := range j.parts {
		if p.touched() {
			return true
		}
	}
	return false
}

func (j *joint) clone() law {
	c := &joint{names: j.names}
	for _, p := range j.parts {
		c.parts = append(c.parts, p.clone())
	}
	return c
}

// plan is the longest of all.
func (j *joint) plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat) {
	wait, room = new(big.Rat), new(big.Rat)
	for _, p := range j.parts {
		w, r := p.plan(now, ahead, cost)
		if w == nil || r == nil {
			return nil, nil
		}
		wait, room = largest(wait, w), largest(room, r)
	}
	return wait, room
}

func (j *joint) look(now int64, ahead *big.Int) (remaining int64, reset *big.Int) {
	remaining, reset = math.MaxInt64, new(big.Int)
	for _, p := range j.parts {
		left, until := p.look(now, ahead)
		if remaining = min(remaining, left); until.Cmp(reset) > 0 {
			reset = until
		}
	}
	return remaining, reset
}

// by is the part that a decision names: the first of those that a cost can never fit, else the one that makes it wait the longest, and of a
// yes the one of which the least is left.
func (j *joint) by(now int64, ahead *big.Int, cost int64, allowed bool) string {
	which := 0
	if allowed {
		for i, p := range j.parts[1:] {
			least, _ := j.parts[which].look(now, ahead)
			if left, _ := p.look(now, ahead); left < least {
				which = i + 1
			}
		}
		return j.names[which]
	}
	longest := new(big.Rat)
	for i, p := range j.parts {
		if cost < 0 || cost > p.largest() {
			return j.names[i]
		}
	}
	for i, p := range j.parts {
		wait, room := p.plan(now, ahead, cost)
		if wait == nil || room == nil {
			return j.names[i]
		}
		if w := exact(ceil(largest(wait, room))); w.Cmp(longest) > 0 {
			which, longest = i, w
		}
	}
	return j.names[which]
}

func (j *joint) charge(at *big.Rat, cost int64) {
	for _, p := range j.parts {
		p.charge(at, cost)
	}
}

// serve charges one who waited until due, a whole reading. A part that had no room a clock unit before is charged as it would be alone, at the
// very time at which there was room, so that the line keeps its pace.
func (j *joint) serve(due *big.Rat, now, cost int64) {
	before := sub(due, whole(1))
	for _, p := range j.parts {
		at := due
		if turn := p.turn(before, cost); turn != nil && turn.Cmp(before) > 0 {
			at = smallest(turn, due)
		}
		p.charge(p.asOf(at, now), cost)
	}
}

func (j *joint) book(now int64, due *big.Rat, cost int64) mark {
	var m jointMark
	for _, p := range j.parts {
		m = append(m, p.book(now, due, cost))
	}
	return m
}

func (j *joint) giveBack(now int64, m mark, amount int64) {
	for i, p := range j.parts {
		if m := m.(jointMark)[i]; m != nil {
			p.giveBack(now, m, amount)
		}
	}
}

func (j *joint) drop(m mark) {
	for i, p := range j.parts {
		if m := m.(jointMark)[i]; m != nil {
			p.drop(m)
		}
	}
}

// turn is when the last of them lets a cost go.
func (j *joint) turn(seen *big.Rat, cost int64) *big.Rat {
	at := seen
	for _, p := range j.parts {
		turn := p.turn(seen, cost)
		if turn == nil {
			return nil
		}
		at = largest(at, turn)
	}
	return exact(ceil(at))
}

func (j *joint) asOf(turn *big.Rat, now int64) *big.Rat {
	at := turn
	for _, p := range j.parts {
		at = largest(at, p.asOf(turn, now))
	}
	return at
}

func (j *joint) same(o law) bool {
	c, ok := o.(*joint)
	if !ok || len(c.parts) != len(j.parts) {
		return false
	}
	for i, p := range j.parts {
		if !p.same(c.parts[i]) {
			return false
		}
	}
	return true
}

func (j *joint) become(now int64, o law) law             { return change(now, j, o) }
func (j *joint) remark(now int64, m mark, next law) mark { return changeMark(now, j, m, next) }

func (j *joint) spent(now int64) *big.Int {
	most := new(big.Int)
	for _, p := range j.parts {
		if s := p.spent(now); s.Cmp(most) > 0 {
			most = s
		}
	}
	return most
}

func (j *joint) counted() *big.Int {
	most := new(big.Int)
	for _, p := range j.parts {
		most = latest(most, p.counted())
	}
	return most
}

func (j *joint) load(now int64, spent *big.Int) {
	for _, p := range j.parts {
		p.load(now, spent)
	}
}

// all is a law as the parts that it has: itself, where it is no joint.
func all(l law) (parts []law, isJoint bool) {
	if j, ok := l.(*joint); ok {
		return j.parts, true
	}
	return []law{l}, false
}

// kind tells the laws apart that no state is carried over between as it is.
func kind(l law) string {
	if b, ok := l.(*bucket); ok && b.leaky {
		return "leaky"
	}
	return fmt.Sprintf("%T", l)
}

// pairs says from which of the old parts each new one takes over: of the same kind in order, and then whatever is left, in order; -1 for
// one that is new.
func pairs(old, next []law) []int {
	from := make([]int, len(next))
	taken := map[int]bool{}
	for j := range next {
		from[j] = -1
	}
	for _, alike := range []bool{true, false} {
		for j, n := range next {
			for i, o := range old {
				if from[j] < 0 && !taken[i] && (!alike || kind(o) == kind(n)) {
					from[j], taken[i] = i, true
				}
			}
		}
	}
	return from
}

// change is become where one of the two may be a joint. What a joint has of the same kind goes on alone; else a single law is charged the most
// that any part had spent.
func change(now int64, old, next law) law {
	from, was := all(old)
	to, is := all(next)
	switch {
	case !was && !is:
		return old.become(now, next)
	case !old.touched():
		return next
	}
	for j, i := range pairs(from, to) {
		if !is && kind(from[i]) != kind(to[j]) {
			return transfer(now, old, next)
		}
		switch {
		case i < 0:
		case from[i].same(to[j]): // a limit that stays as it was is not touched by a change of another one
			to[j] = from[i]
		default:
			to[j] = from[i].become(now, to[j])
		}
		if is && !to[j].touched() {
			to[j].contact(now)
		}
	}
	if !is {
		return to[0]
	}
	return next
}

// changeMark is remark where one of the two may be a joint.
func changeMark(now int64, old law, m mark, next law) mark {
	from, was := all(old)
	to, is := all(next)
	if !was && !is {
		return old.remark(now, m, next)
	}
	var marks jointMark
	for j, i := range pairs(from, to) {
		var given mark
		if i >= 0 && (is || kind(from[i]) == kind(to[j])) {
			if given = m; was {
				given = m.(jointMark)[i]
			}
			if given != nil {
				given = from[i].remark(now, given, to[j])
			}
		}
		marks = append(marks, given)
	}
	if is {
		return marks
	}
	return marks[0]
}
