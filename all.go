package weir

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// maxParts is how many limits All joins at most.
const maxParts = 8

// All joins up to 8 limits into one that charges each of them or none: ten a second, and a thousand an hour, and a hundred thousand a
// month. They are asked at one reading of the time. All's result is a Limit like any other, comparable by Equal; an All among the limits
// is the same as its limits written out. What is wrong, like Concurrency, which is not taken but entered, Validate says.
//
// A decision's Limit and Remaining are the least of all, its RetryAfter the longest of those that refuse (Never if any of them is never),
// and its ResetAfter the longest of all. By names one limit, by its kind and its place from 1, as in "token_bucket.2", after the
// name of the limiter if that has one: "api/token_bucket.2". That is the one that refused with the longest wait, the first of those on
// a tie, and before all one that the cost can never fit; of an answer that is yes, the first of those with the least Remaining.
//
// All cannot book ahead, as work charged to one limit now, and delayed by another, would go at a time that the first has not counted:
// Reserve succeeds only where nothing has to be delayed. Wait and Join queue, and charge when the turn comes. Cancel and Settle give back
// to each limit what it can take. SetLimit from one All to another, or to or from a single limit, carries each part over to the one of
// the same kind, in order; what is then left over is a change of kind, in order too; and what is new begins untouched. A part that stays
// as it was keeps its state to the last digit. Where the change has the whole read wall time, or no longer, each part is a change of kind.
//
// If one of the limits reads wall time (see FixedWindow), all of them do. State: those of all, and two words for each.
func All(limits ...Limit) Limit {
	var a allOf
	a.add(limits)
	return a
}

// Parts returns the limits that All joined, and any other limit by itself.
func Parts(l Limit) []Limit {
	if a, ok := l.(allOf); ok {
		return append([]Limit(nil), a.parts[:min(a.n, maxParts)]...)
	}
	return []Limit{l}
}

// PartNames returns what decisions call the limits that All joined, as in "token_bucket.2", and nil for any other limit.
func PartNames(l Limit) (names []string) {
	if a, ok := l.(allOf); ok {
		for i, p := range a.parts[:min(a.n, maxParts)] {
			names = append(names, partName(p, i))
		}
	}
	return names
}

// allOf is the limit that All returns.
type allOf struct {
	parts [maxParts]Limit
	n     int // how many there were; what does not fit is an error
}

func (l *allOf) add(limits []Limit) {
	for _, p := range limits {
		if inner, ok := p.(allOf); ok {
			l.add(inner.parts[:min(inner.n, maxParts)])
			l.n += max(inner.n-maxParts, 0)
			continue
		}
		if l.n < maxParts {
			l.parts[l.n] = p
		}
		l.n++
	}
}

// Validate reports what is wrong with the limits, by the place of the first that is wrong.
func (l allOf) Validate() error {
	_, err := l.compile(time.Nanosecond)
	if err == nil || l.n == 0 || l.n > maxParts {
		return err
	}
	for i, p := range l.parts[:l.n] {
		if _, entered := p.(Concurrency); p == nil || entered || p.Validate() != nil {
			_, err := l.part(i, time.Nanosecond)
			return err
		}
	}
	return nil // it is only too fast, or too much, for that unit
}

func (l allOf) compile(unit time.Duration) (rule, error) {
	switch {
	case l.n == 0:
		return nil, field("All", "limits", errors.New("there are none: name at least one"))
	case l.n > maxParts:
		return nil, field("All", "limits", fmt.Errorf("%d are too many: at most %d", l.n, maxParts))
	}
	a := &together{tick: unit, least: math.MaxInt64, most: math.MaxInt64}
	for i, p := range l.parts[:l.n] {
		r, err := l.part(i, unit)
		if err != nil {
			return nil, err
		}
		a.rules = append(a.rules, r)
		a.names = append(a.names, partName(p, i))
		a.plain = append(a.plain, p.normal())
		a.kinds = append(a.kinds, Kind(p))
		a.least, a.most = min(a.least, r.capacity()), min(a.most, r.largest())
		a.reads = a.reads || r.wall()
	}
	return a, nil
}

// part compiles one of the limits.
func (l allOf) part(i int, unit time.Duration) (rule, error) {
	p := l.parts[i]
	if p == nil {
		return nil, field("All", fmt.Sprintf("limits.%d", i+1), errors.New("it is nil: pass one of the limits of this package"))
	}
	r, err := p.compile(unit)
	var wrong *FieldError
	switch {
	case err == nil:
		return r, nil
	case errors.As(err, &wrong):
		return nil, field("All", partName(p, i)+"."+wrong.Field, wrong.Err)
	}
	return nil, field("All", partName(p, i), errors.New(strings.TrimPrefix(err.Error(), "weir: ")))
}

func (l allOf) normal() Limit {
	for i, p := range l.parts {
		if p != nil {
			l.parts[i] = p.normal()
		}
	}
	return l
}

// partName is what decisions call the limit at a place.
func partName(l Limit, place int) string { return fmt.Sprintf("%s.%d", Kind(l), place+1) }

// together is the rule of All. Its state begins with two words for each part, how long the part's state is and how much room there is
// for it, and goes on with those rooms.
type together struct {
	rules       []rule
	kinds       []string
	plain       []Limit  // the limits in normal form
	names       []string // what decisions call them
	tick        time.Duration
	least, most int64 // the least capacity, and the largest cost
	reads       bool  // wall time
}

// named returns a rule whose decisions carry the limiter's name as well, where they name a part.
func named(r rule, name string) rule {
	a, ok := r.(*together)
	if !ok || name == "" {
		return r
	}
	b := *a
	b.names = nil
	for i, kind := range a.kinds {
		b.names = append(b.names, fmt.Sprintf("%s/%s.%d", name, kind, i+1))
	}
	return &b
}

func (a *together) capacity() int64     { return a.least }
func (a *together) largest() int64      { return a.most }
func (a *together) books() bool         { return false }
func (a *together) wall() bool          { return a.reads }
func (a *together) unit() time.Duration { return a.tick }

func (a *together) valid(s []int64) bool {
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
		if room != 0 || !r.valid(a.part(s, i)) {
			return false
		}
	}
	return true
}

// at is where the room of a part begins.
func (a *together) at(s []int64, i int) int {
	at := 2 * len(a.rules)
	for j := range i {
		at += int(s[2*j+1])
	}
	return at
}

// part is the state of a part, which may grow as far as its room.
func (a *together) part(s []int64, i int) []int64 {
	if len(s) == 0 {
		return nil
	}
	at := a.at(s, i)
	return s[at : at+int(s[2*i]) : at+int(s[2*i+1])]
}

// put puts the state of a part back, in a larger room if need be.
func (a *together) put(s []int64, i int, next []int64) []int64 {
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
	copy(s[at:], next) // which is mostly there
	s[2*i] = int64(len(next))
	return s
}

func (a *together) contact(s []int64, now int64) []int64 {
	for i, r := range a.rules {
		if c := r.contact(nil, now); len(c) > 0 {
			s = a.put(s, i, c)
		}
	}
	return s
}

// plan is when all of them would let a cost go. Behind others that is what each of them knows alone: too early a time, never too late a
// one.
func (a *together) plan(s []int64, now int64, ahead uint64, cost int64) (all plan) {
	for i, r := range a.rules {
		p := r.plan(a.part(s, i), now, ahead, cost)
		all.wait, all.room = longest(all.wait, p.wait), longest(all.room, p.room)
	}
	return all
}

// longest is the longer of two waits, of which never is the longest.
func longest(a, b int64) int64 {
	if a == never || b == never {
		return never
	}
	return max(a, b)
}

// refuses is the part that has a cost wait the longest.
func (a *together) refuses(s []int64, now int64, ahead uint64, cost int64) (which int) {
	for i, r := range a.rules {
		if cost < 0 || cost > r.largest() {
			return i
		}
	}
	wait := int64(0)
	for i, r := range a.rules {
		if w := r.plan(a.part(s, i), now, ahead, cost).retry(); w != wait && longest(w, wait) == w {
			which, wait = i, w
		}
	}
	return which
}

// scarcest is the part of which the least is left.
func (a *together) scarcest(s []int64, now int64, ahead uint64) (which int) {
	least := int64(math.MaxInt64)
	for i, r := range a.rules {
		if left, _ := r.look(a.part(s, i), now, ahead); left < least {
			which, least = i, left
		}
	}
	return which
}

// sign says which of the limits decided, where they are several.
func (d *Decision) sign(r rule, s []int64, now int64, o others, cost int64) {
	a, ok := r.(*together)
	switch {
	case !ok:
	case d.Allowed:
		d.By = a.names[a.scarcest(s, now, o.cost)]
	default:
		d.By = a.names[a.refuses(s, now, o.cost, cost)]
	}
}

func (a *together) charge(s []int64, now, cost int64) []int64 {
	for i, r := range a.rules {
		s = a.put(s, i, r.charge(a.part(s, i), now, cost))
	}
	return s
}

// serve has those parts that the turn was waited for keep the line's pace, as they would alone.
func (a *together) serve(s []int64, due, now, cost int64) []int64 {
	for i, r := range a.rules {
		part := a.part(s, i)
		if r.plan(part, due-1, 0, cost).wait != 0 {
			part = r.serve(part, due, now, cost)
		} else {
			part = r.charge(part, r.asOf(due, now), cost)
		}
		s = a.put(s, i, part)
	}
	return s
}

// asOf is no earlier than it is for any of them.
func (a *together) asOf(due, now int64) int64 {
	at := due
	for _, r := range a.rules {
		at = max(at, r.asOf(due, now))
	}
	return at
}

func (a *together) look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	remaining = math.MaxInt64
	for i, r := range a.rules {
		left, back := r.look(a.part(s, i), now, ahead)
		remaining, reset = min(remaining, left), max(reset, back)
	}
	return remaining, reset
}

func (a *together) spent(s []int64, now int64) (most int64) {
	for i, r := range a.rules {
		most = max(most, r.spent(a.part(s, i), now))
	}
	return most
}

func (a *together) load(now, spent int64) (s []int64) {
	for i, r := range a.rules {
		s = a.put(s, i, r.load(now, spent))
	}
	return s
}

// What is charged ahead, and given back, has a ticket for each part: see receipt. And a change of the limit goes through change.

func (a *together) book(s []int64, now, _, cost int64) ([]int64, ticket) {
	return a.charge(s, now, cost), ticket{}
}
func (a *together) refund(s []int64, _ int64, _ ticket, _ int64) []int64 { return s }
func (a *together) reticket(ticket, int64, rule) (ticket, bool)          { return ticket{}, false }
func (a *together) convert(s []int64, now int64, to rule, then int64) []int64 {
	return transfer(a, s, now, to, then)
}
