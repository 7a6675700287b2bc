package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir"
)

// allOf is the model of All: several algorithms that are charged together or not at
// all.
type allOf struct {
	parts []algorithm
	names []string // their names in decisions
}

// allMark has a mark for each part; nil if nothing can be given back to the part.
type allMark []mark

// newAllOf returns the model of a limit that is an All.
func newAllOf(limits []weir.Limit, tick time.Duration, blind bool) *allOf {
	j := new(allOf)
	for i, l := range limits {
		j.parts = append(j.parts, algorithmOf(l, tick, blind))
		j.names = append(j.names, fmt.Sprintf("%s.%d", weir.Algorithm(l), i+1))
	}
	return j
}

// partsOf returns the limits that an All combines; nil if the limit is not an All.
func partsOf(l weir.Limit) []weir.Limit {
	if parts := weir.Parts(l); len(parts) != 1 || parts[0] != l {
		return parts
	}
	return nil
}

// least returns the smallest of the parts' values.
func (j *allOf) least(of func(algorithm) int64) int64 {
	v := int64(math.MaxInt64)
	for _, p := range j.parts {
		v = min(v, of(p))
	}
	return v
}

func (j *allOf) size() int64        { return j.least(algorithm.size) }
func (j *allOf) largest() int64     { return j.least(algorithm.largest) }
func (j *allOf) chargesAhead() bool { return false }
func (j *allOf) turnsMove() bool    { return false }
func (j *allOf) String() string     { return fmt.Sprint(j.parts) }

func (j *allOf) contact(now int64) {
	if j.touched() {
		return
	}
	for _, p := range j.parts {
		p.contact(now)
	}
}

func (j *allOf) touched() bool {
	for _, p := range j.parts {
		if p.touched() {
			return true
		}
	}
	return false
}

// reached is the latest of the parts.
func (j *allOf) reached() (t *big.Int) {
	for _, p := range j.parts {
		if at := p.reached(); at != nil && (t == nil || at.Cmp(t) > 0) {
			t = at
		}
	}
	return t
}

func (j *allOf) clone() algorithm {
	c := &allOf{names: j.names}
	for _, p := range j.parts {
		c.parts = append(c.parts, p.clone())
	}
	return c
}

// plan returns the longest wait of all parts.
func (j *allOf) plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat) {
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

func (j *allOf) peek(now int64, ahead *big.Int) (remaining int64, reset *big.Int) {
	remaining, reset = math.MaxInt64, new(big.Int)
	for _, p := range j.parts {
		left, until := p.peek(now, ahead)
		if remaining = min(remaining, left); until.Cmp(reset) > 0 {
			reset = until
		}
	}
	return remaining, reset
}

// by returns the part that a decision names. For a refusal, it is the first part that the cost can
// never fit, otherwise the part with the longest wait. For an admission, it is the part with the
// least remaining.
func (j *allOf) by(now int64, ahead *big.Int, cost int64, allowed bool) string {
	which := 0
	if allowed {
		for i, p := range j.parts[1:] {
			least, _ := j.parts[which].peek(now, ahead)
			if left, _ := p.peek(now, ahead); left < least {
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

func (j *allOf) charge(at *big.Rat, cost int64) {
	for _, p := range j.parts {
		p.charge(at, cost)
	}
}

// serve charges a waiter whose turn came at due, which is a whole clock reading. A part that had no
// room one clock unit earlier is charged as it would be alone, at the exact time at which there was
// room, so that the queue keeps its rate.
func (j *allOf) serve(due *big.Rat, now, cost int64) {
	for _, p := range j.parts {
		p.charge(p.asOf(turnOfPart(p, due, cost), now), cost)
	}
}

// serveKept is serve for a place that is kept.
func (j *allOf) serveKept(due *big.Rat, now, cost int64, waited bool) mark {
	var m allMark
	for _, p := range j.parts {
		at := due
		if waited {
			at = turnOfPart(p, due, cost)
		}
		m = append(m, reserveAt(p, p.asOf(at, now), cost))
	}
	return m
}

// turnOfPart is when a part would have let a waiter go that has its turn at due.
func turnOfPart(p algorithm, due *big.Rat, cost int64) *big.Rat {
	before := sub(due, whole(1))
	if turn := p.turn(before, cost); turn != nil && turn.Cmp(before) > 0 {
		return smallest(turn, due)
	}
	return due
}

func (j *allOf) reserve(now int64, due *big.Rat, cost int64) mark {
	var m allMark
	for _, p := range j.parts {
		m = append(m, p.reserve(now, due, cost))
	}
	return m
}

func (j *allOf) giveBack(now int64, m mark, amount int64) {
	for i, p := range j.parts {
		if m := m.(allMark)[i]; m != nil && p.touched() {
			p.giveBack(now, m, amount)
		}
	}
}

func (j *allOf) drop(m mark) {
	for i, p := range j.parts {
		if m := m.(allMark)[i]; m != nil {
			p.drop(m)
		}
	}
}

// turn returns the time at which the last part admits a cost.
func (j *allOf) turn(seen *big.Rat, cost int64) *big.Rat {
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

func (j *allOf) asOf(turn *big.Rat, now int64) *big.Rat {
	at := turn
	for _, p := range j.parts {
		at = largest(at, p.asOf(turn, now))
	}
	return at
}

func (j *allOf) same(o algorithm) bool {
	c, ok := o.(*allOf)
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

func (j *allOf) changedTo(now int64, o algorithm) algorithm { return change(now, j, o) }
func (j *allOf) convertMark(now int64, m mark, next algorithm) mark {
	return changeMark(now, j, m, next)
}

func (j *allOf) spent(now int64) *big.Int {
	most := new(big.Int)
	for _, p := range j.parts {
		if s := p.spent(now); s.Cmp(most) > 0 {
			most = s
		}
	}
	return most
}

func (j *allOf) counted() *big.Int {
	most := new(big.Int)
	for _, p := range j.parts {
		most = latest(most, p.counted())
	}
	return most
}

func (j *allOf) load(now int64, spent *big.Int) {
	for _, p := range j.parts {
		p.load(now, spent)
	}
}

// all returns the parts of an All, or the algorithm itself if it is not an All.
func all(l algorithm) (parts []algorithm, isAll bool) {
	if j, ok := l.(*allOf); ok {
		return j.parts, true
	}
	return []algorithm{l}, false
}

// kind returns a name of the algorithm. Between algorithms of one name, a change carries the state
// over as it is.
func kind(l algorithm) string {
	if b, ok := l.(*bucket); ok && b.leaky {
		return "leaky"
	}
	return fmt.Sprintf("%T", l)
}

// pairs returns, for each new part, the index of the old part whose state it takes over; -1 for
// none. Parts of the same algorithm are paired first, in order, and then the rest, in order.
func pairs(old, next []algorithm) []int {
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

// change is changedTo if one of the two may be an All. When an All becomes a single algorithm, the
// part of that algorithm keeps its state. If there is none, the new one is charged the most that
// any part had spent.
func change(now int64, old, next algorithm) algorithm {
	from, was := all(old)
	to, is := all(next)
	switch {
	case !was && !is:
		return old.changedTo(now, next)
	case !old.touched():
		return next
	}
	for j, i := range pairs(from, to) {
		if !is && kind(from[i]) != kind(to[j]) {
			return transfer(now, old, next)
		}
		switch {
		case i < 0:
		case from[i].same(to[j]): // a part that stays as it was is not touched by a change of another part
			to[j] = from[i]
		default:
			to[j] = from[i].changedTo(now, to[j])
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

// changeMark is convertMark if one of the two may be an All.
func changeMark(now int64, old algorithm, m mark, next algorithm) mark {
	from, was := all(old)
	to, is := all(next)
	if !was && !is {
		return old.convertMark(now, m, next)
	}
	var marks allMark
	for j, i := range pairs(from, to) {
		var given mark
		if i >= 0 && (is || kind(from[i]) == kind(to[j])) {
			if given = m; was {
				given = m.(allMark)[i]
			}
			if given != nil {
				given = from[i].convertMark(now, given, to[j])
			}
		}
		marks = append(marks, given)
	}
	if is {
		return marks
	}
	return marks[0]
}
