package rules

import (
	"math"
	"slices"
	"time"
)

// MaxParts is the most limits that All joins.
const MaxParts = 8

// allRule is the rule of All. Its state begins with two words for each part: the length of the
// part's state, and the room reserved for it. The rooms follow.
type allRule struct {
	ruleBasics
	rules       []Rule
	kinds       []string
	limits      []any // the parameters that the rules were compiled from
	least, most int64 // the least capacity, and the largest cost
	reads       bool  // wall time
}

// A Part is a rule with the limit that it was compiled from: a comparable value, equal for limits
// that decide alike.
type Part struct {
	Rule  Rule
	Limit any
}

// NewAll returns the rule that charges each of its parts or none. All parts must have been compiled
// for the same unit.
func NewAll(parts []Part, unit time.Duration) Rule {
	a := &allRule{ruleBasics: basicsFor(unit), least: math.MaxInt64, most: math.MaxInt64}
	for _, p := range parts {
		r := p.Rule
		a.rules, a.limits, a.kinds = append(a.rules, r), append(a.limits, p.Limit), append(a.kinds, r.Kind())
		a.least, a.most = min(a.least, r.Capacity()), min(a.most, r.LargestCost())
		a.reads = a.reads || r.ReadsWallTime()
	}
	return a
}

func (a *allRule) Kind() string        { return "all" }
func (a *allRule) Capacity() int64     { return a.least }
func (a *allRule) LargestCost() int64  { return a.most }
func (a *allRule) CanBook() bool       { return false }
func (a *allRule) ReadsWallTime() bool { return a.reads }

func (a *allRule) Words() int {
	n := 2 * len(a.rules)
	for _, part := range a.rules {
		words := part.Words()
		if words == 0 {
			return 0
		}
		n += words
	}
	return n
}

func (a *allRule) StoresPermits() bool {
	return slices.ContainsFunc(a.rules, Rule.StoresPermits)
}

func (a *allRule) Valid(s []int64) bool {
	if len(s) == 0 {
		return true
	}
	room := len(s) - 2*len(a.rules)
	if room < 0 {
		return false
	}
	for i := range a.rules {
		n, c := s[2*i], s[2*i+1]
		if n < 0 || n > c || c > int64(room) {
			return false
		}
		room -= int(c)
	}
	for i, r := range a.rules {
		if room != 0 || !r.Valid(a.part(s, i)) {
			return false
		}
	}
	return true
}

// at is the index at which the room of a part begins.
func (a *allRule) at(s []int64, i int) int {
	at := 2 * len(a.rules)
	for j := range i {
		at += int(s[2*j+1])
	}
	return at
}

// part is the state of a part. It may grow as far as its room.
func (a *allRule) part(s []int64, i int) []int64 {
	if len(s) == 0 {
		return nil
	}
	at := a.at(s, i)
	return s[at : at+int(s[2*i]) : at+int(s[2*i+1])]
}

// put writes the state of a part back, into a larger room if need be.
func (a *allRule) put(s []int64, i int, next []int64) []int64 {
	if len(s) == 0 {
		for range 2 * len(a.rules) {
			s = append(s, 0)
		}
	}
	at, room := a.at(s, i), int(s[2*i+1])
	if more := max(len(next), 2*room) - room; len(next) > room {
		end := len(s)
		for range more {
			s = append(s, 0)
		}
		copy(s[at+room+more:], s[at+room:end])
		s[2*i+1] += int64(more)
	}
	copy(s[at:], next) // next is usually in place already
	s[2*i] = int64(len(next))
	return s
}

func (a *allRule) FirstCall(s []int64, now int64) []int64 {
	for i, r := range a.rules {
		if c := r.FirstCall(nil, now); len(c) > 0 {
			s = a.put(s, i, c)
		}
	}
	return s
}

// Plan is when all parts would admit a cost. Behind a queue, each part only knows its own time, so
// Plan may name too early a time, but never too late a one.
func (a *allRule) Plan(s []int64, now int64, ahead uint64, cost int64) (all Plan) {
	for i, r := range a.rules {
		p := r.Plan(a.part(s, i), now, ahead, cost)
		all.Wait, all.Room = Longest(all.Wait, p.Wait), Longest(all.Room, p.Room)
	}
	return all
}

// Longest returns the longer of two waits. Never is the longest.
func Longest(a, b int64) int64 {
	if a == Never || b == Never {
		return Never
	}
	return max(a, b)
}

// refuses returns the part that delays a cost the longest.
func (a *allRule) refuses(s []int64, now int64, ahead uint64, cost int64) (which int) {
	for i, r := range a.rules {
		if cost < 0 || cost > r.LargestCost() {
			return i
		}
	}
	wait := int64(0)
	for i, r := range a.rules {
		if w := r.Plan(a.part(s, i), now, ahead, cost).Retry(); w != wait && Longest(w, wait) == w {
			which, wait = i, w
		}
	}
	return which
}

// scarcest returns the part with the least remaining.
func (a *allRule) scarcest(s []int64, now int64, ahead uint64) (which int) {
	least := int64(math.MaxInt64)
	for i, r := range a.rules {
		if left, _ := r.Look(a.part(s, i), now, ahead); left < least {
			which, least = i, left
		}
	}
	return which
}

// deciding returns the part that a verdict names: the part that refused, or for an admitted cost
// the part with the least remaining.
func (a *allRule) deciding(s []int64, now int64, ahead uint64, cost int64, admitted bool) int {
	if admitted {
		return a.scarcest(s, now, ahead)
	}
	return a.refuses(s, now, ahead, cost)
}

func (a *allRule) Charge(s []int64, now, cost int64) []int64 {
	for i, r := range a.rules {
		s = a.put(s, i, r.Charge(a.part(s, i), now, cost))
	}
	return s
}

// TurnTime is no earlier than that of any part.
func (a *allRule) TurnTime(due, now int64) int64 {
	at := due
	for _, r := range a.rules {
		at = max(at, r.TurnTime(due, now))
	}
	return at
}

func (a *allRule) Look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	remaining = math.MaxInt64
	for i, r := range a.rules {
		left, back := r.Look(a.part(s, i), now, ahead)
		remaining, reset = min(remaining, left), max(reset, back)
	}
	return remaining, reset
}

func (a *allRule) Spent(s []int64, now int64) (most int64) {
	for i, r := range a.rules {
		most = max(most, r.Spent(a.part(s, i), now))
	}
	return most
}

func (a *allRule) Load(now, spent int64) (s []int64) {
	for i, r := range a.rules {
		s = a.put(s, i, r.Load(now, spent))
	}
	return s
}

// A charge made ahead has a ticket for each part: see Receipt. A change of the limit goes through
// ChangeRule.

func (a *allRule) Book(s []int64, now, _, cost int64) ([]int64, Ticket) {
	return a.Charge(s, now, cost), Ticket{}
}

func (a *allRule) Refund(_ *Memory, s []int64, _ int64, _ Ticket, _ int64) []int64 { return s }
func (a *allRule) Drop(*Memory, Ticket)                                            {}
func (a *allRule) ConvertTicket(Ticket, Rule) (Ticket, bool)                       { return Ticket{}, false }
func (a *allRule) ConvertMemory(*Memory, int64, Rule, []int64)                     {}

func (a *allRule) NeedsMemory() bool { return slices.ContainsFunc(a.rules, Rule.NeedsMemory) }

func (a *allRule) Note(m *Memory, s []int64, n Note) {
	for i, r := range a.rules {
		r.Note(m.part(i, len(a.rules)), a.part(s, i), n)
	}
}

func (a *allRule) Convert(s []int64, now int64, to Rule, then int64) []int64 {
	return convertAcross(a, s, now, to, then)
}

// A Receipt identifies a charge: a Ticket, or one for each part of an All.
type Receipt struct {
	ticket Ticket
	parts  *partTickets
}

type partTickets struct {
	tickets [MaxParts]Ticket
	lost    [MaxParts]bool // nothing can be given back to this part
}

// Refund gives back amount of the charge, to each part as much as never admits too much.
func (c Receipt) Refund(r Rule, m *Memory, s []int64, now, amount int64) []int64 {
	a, ok := r.(*allRule)
	if !ok {
		return r.Refund(m, s, now, c.ticket, amount)
	}
	for i, r := range a.rules {
		if len(s) > 0 && !c.parts.lost[i] {
			s = a.put(s, i, r.Refund(m.part(i, len(a.rules)), a.part(s, i), now, c.parts.tickets[i], amount))
		}
	}
	return s
}

// Drop ends a reservation that gives nothing back.
func (c Receipt) Drop(r Rule, m *Memory) {
	a, ok := r.(*allRule)
	if !ok {
		r.Drop(m, c.ticket)
		return
	}
	for i, r := range a.rules {
		if !c.parts.lost[i] {
			r.Drop(m.part(i, len(a.rules)), c.parts.tickets[i])
		}
	}
}

// split returns a rule as an All: itself, or an All of it alone.
func split(p Part) (a *allRule, joined bool) {
	if a, ok := p.Rule.(*allRule); ok {
		return a, true
	}
	return &allRule{rules: []Rule{p.Rule}, kinds: []string{p.Rule.Kind()}, limits: []any{p.Limit}}, false
}

// match returns, for each new kind, the index of the old kind that is converted to it; below 0 for
// none. It pairs those of the same kind in order, and then the rest in order.
func match(old, next []string) []int {
	from := make([]int, len(next))
	used := make([]bool, len(old))
	take := func(j int, fits func(i int) bool) {
		for i := range old {
			if !used[i] && fits(i) {
				from[j], used[i] = i, true
				return
			}
		}
	}
	for j := range next {
		from[j] = -1
		take(j, func(i int) bool { return old[i] == next[j] })
	}
	for j := range next {
		if from[j] < 0 {
			take(j, func(int) bool { return true })
		}
	}
	return from
}

// ChangeRule converts a state to another rule, as Rule.Convert does, also if one of the rules is an
// All. A part of an All whose limit does not change keeps its state exactly. If the readings now
// and then differ, they are of different clocks, and times in the state mean nothing to the new
// rule: each part is then converted as at a change of kind.
func ChangeRule(from Part, s []int64, now int64, to Part, then int64) []int64 {
	old, joined := split(from)
	next, joins := split(to)
	switch {
	case !joined && !joins:
		return from.Rule.Convert(s, now, to.Rule, then)
	case len(s) == 0:
		return s
	}
	var all []int64
	for j, i := range match(old.kinds, next.kinds) {
		r := next.rules[j]
		if !joins && old.kinds[i] != next.kinds[j] { // several become one of another kind
			return convertAcross(from.Rule, s, now, to.Rule, then)
		}
		var part []int64
		if i >= 0 {
			part = s
			if joined {
				part = old.part(s, i)
			}
			part = append([]int64(nil), part...)
			switch {
			case now != then:
				part = convertAcross(old.rules[i], part, now, r, then)
			case old.limits[i] != next.limits[j]:
				part = old.rules[i].Convert(part, now, r, then)
			}
		}
		if !joins {
			return append(s[:0], part...)
		}
		if len(part) == 0 {
			part = r.FirstCall(nil, then)
		}
		all = next.put(all, j, part)
	}
	return append(s[:0], all...)
}

// ChangeMemory converts a Memory to another rule, as Rule.ConvertMemory does, also if one of the
// rules is an All. next is the state after the change.
func ChangeMemory(from Part, m *Memory, now int64, to Part, next []int64) {
	old, joined := split(from)
	parts, joins := split(to)
	if !joined && !joins {
		from.Rule.ConvertMemory(m, now, to.Rule, next)
		return
	}
	was := []Memory{*m}
	if joined {
		m.part(0, len(old.rules))
		was = m.parts
	}
	carried := make([]Memory, len(parts.rules))
	sources := match(old.kinds, parts.kinds)
	for i := range was {
		if !slices.Contains(sources, i) {
			was[i].Reset()
		}
	}
	for j, i := range sources {
		if carried[j] = newMemory(m.budget); i < 0 {
			continue
		}
		if !joins && old.kinds[i] != parts.kinds[j] {
			was[i].Reset()
			continue
		}
		state := next
		if joins {
			state = parts.part(next, j)
		}
		if carried[j] = was[i]; old.limits[i] != parts.limits[j] {
			old.rules[i].ConvertMemory(&carried[j], now, parts.rules[j], state)
		}
	}
	if joins {
		all := newMemory(m.budget)
		all.parts = carried
		*m = all
	} else {
		*m = carried[0]
	}
}
