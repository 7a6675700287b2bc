package weirtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirflow/weir"
)

// endless reports whether a state is so far in debt that stores cap it, at the end of their clocks
// or their numbers.
func (p *pair) endless() bool {
	for _, m := range p.models {
		for _, a := range m.algorithms() {
			if a.counted().BitLen() > 53 || endOf(a, p.now)-p.now > int64(100*365*24*time.Hour/p.tick) {
				return true
			}
		}
	}
	return false
}

// uncountable reports whether a store cannot represent how much of some state was used. After a
// change of the algorithm, it would count as the largest number.
func (p *pair) uncountable(now int64) bool {
	if !p.doubles {
		return false
	}
	for _, m := range p.models {
		for _, a := range m.algorithms() {
			if m.Touched() && a.spent(now).BitLen() > 53 {
				return true
			}
		}
	}
	return false
}

// pair is a subject with its models, one for each key.
type pair struct {
	blind   bool
	tick    time.Duration
	doubles bool // the subject counts in doubles, as stores do
	clock   *Clock
	limit   weir.Limit
	subject Taker
	models  map[string]reference
	made    map[int]made
	queued  map[int]queuedPlace
	kept    map[int]keptPlace
	now     int64 // the current reading
	high    int64 // the latest reading
	// the latest reading at which a state was idle: states may have been evicted then, so calls at
	// earlier times are left out
	free int64
}

// queuedPlace is a place in the queue, on both sides.
type queuedPlace struct {
	subject *weir.Place
	model   int
	key     string
}

// keptPlace is a place that can be settled, on both sides.
type keptPlace struct {
	subject KeptPlace
	model   int
	key     string
	settled bool // or not to be settled any more
	ready   bool // its turn has come
}

// made is a reservation, on both sides.
type made struct {
	subject Reservation
	model   int
	key     string
}

func (p *pair) model(key string) reference {
	m := p.models[key]
	if m == nil {
		if m = (limiterKey{newModel(p.limit, p.tick, false)}); p.blind {
			m = sharedKey{NewVersions(p.tick), &p.limit, map[int]weir.Limit{}}
		}
		p.models[key] = m
		// permits are stored since the first call of the key or of the limiter
		if anyPart(p.limit, isBursty) {
			p.subject.Take(key, 1)
			m.Take(p.now, 1)
		}
	}
	return m
}

func isBursty(l weir.Limit) bool { _, ok := l.(weir.SmoothBursty); return ok }

// move sets both clocks. Waiters whose turn comes on the way are served at exactly that time, as by
// timers.
func (p *pair) move(to int64) {
	for _, m := range p.models {
		for turn, ok := m.NextTurn(); ok && turn >= p.now && turn <= to; turn, ok = m.NextTurn() {
			m.Peek(turn, 0)
		}
	}
	p.now = to
	p.clock.Set(to * int64(p.tick))
}

// waiting returns what the subject and the model say of a call that waits for a key, if they differ.
func (p *pair) waiting(key string) (got, want string) {
	for i, l := range p.queued {
		if l.key != key {
			continue
		}
		in := p.model(key).Waits(p.now, l.model)
		select {
		case <-l.subject.Ready():
			if in {
				return fmt.Sprintf("the call of line %d goes on", i), "it waits"
			}
			delete(p.queued, i)
		default:
			if !in {
				return fmt.Sprintf("the call of line %d waits", i), "it goes on"
			}
		}
	}
	for i, l := range p.kept {
		if l.key != key || l.ready {
			continue
		}
		in := p.model(key).Waits(p.now, l.model)
		select {
		case <-l.subject.Ready():
			l.ready = true
			p.kept[i] = l
		default:
		}
		if in == l.ready {
			return fmt.Sprintf("the kept one of line %d waits: %v", i, !l.ready), fmt.Sprintf("it waits: %v", in)
		}
	}
	return "", ""
}

// keep makes a charge that can be settled: in a store a take, otherwise a place in the queue.
func (p *pair) keep(i int, c call, m reference) (got, want string) {
	switch s := p.subject.(type) {
	case Keeper:
		r, ok := s.TakeKept(c.key, c.cost, c.within == 1)
		id, d := m.TakeKept(c.at, c.cost, c.within == 1)
		if ok && d.Allowed && c.cost > 0 {
			p.made[i] = made{r, id, c.key}
		}
		return p.text(r.Decision()), p.text(d)
	case KeptJoiner:
		place, d := s.JoinKept(c.key, c.cost)
		id, delay, wanted := m.JoinKept(c.at, c.cost, -1)
		if d.Allowed && wanted.Allowed {
			p.kept[i] = keptPlace{subject: place, model: id, key: c.key}
			return fmt.Sprint(p.text(d), " delay ", place.Delay()), fmt.Sprint(p.text(wanted), " delay ", delay)
		}
		return p.text(d), p.text(wanted)
	}
	return "", ""
}

// some takes as much as there is; from a subject that does not support that, the whole cost.
func (p *pair) some(c call, m reference) (got, want string) {
	s, ok := p.subject.(SomeTaker)
	if !ok {
		return p.text(p.subject.Take(c.key, c.cost)), p.text(m.Take(c.at, c.cost))
	}
	taken, d := s.TakeSome(c.key, c.cost)
	cost := min(c.cost, 1)
	if c.cost > 1 {
		cost = max(min(c.cost, m.Peek(c.at, 1).Remaining), 1)
	}
	_, wanted := m.TakeKept(c.at, cost, false)
	if !wanted.Allowed {
		cost = 0
	}
	return fmt.Sprint(p.text(d), " taken ", taken), fmt.Sprint(p.text(wanted), " taken ", cost)
}

// settle settles a reservation or a kept place.
func (p *pair) settle(c call) (got, want string) {
	if m, ok := p.made[c.of]; ok {
		delete(p.made, c.of)
		expired := p.model(m.key).Settle(c.at, m.model, c.cost)
		if s, ok := m.subject.(Expiring); ok {
			return fmt.Sprint("expired: ", !s.SettleInTime(c.cost)), fmt.Sprint("expired: ", expired)
		}
		m.subject.Settle(c.cost)
	} else if l, ok := p.kept[c.of]; ok && !l.settled {
		l.subject.Settle(c.cost)
		p.model(l.key).SettlePlace(c.at, l.model, c.cost)
		l.settled = true
		p.kept[c.of] = l
	}
	return "", ""
}

// do makes a call on both sides, and also compares who waits.
func (p *pair) do(i int, c call) (got, want string) {
	if got, want = p.call(i, c); got != want {
		return got, want
	}
	return p.waiting(c.key)
}

// call makes a call on both sides. It leaves out a call that the subject does not support, or that
// would step back to before a state that may have been evicted. So any part of a walk is a valid
// walk.
func (p *pair) call(i int, c call) (got, want string) {
	if c.at < p.free {
		return "", ""
	}
	if c.at < p.high {
		for _, m := range p.models {
			if m.idle(p.high) {
				return "", ""
			}
		}
	}
	p.high = max(p.high, c.at)
	p.move(c.at)
	for _, m := range p.models {
		if m.Touched() && m.idle(p.high) {
			p.free = p.high
		}
	}
	// an idle state may be evicted, and then gets nothing back, even after a step back
	for of, m := range p.made {
		if p.model(m.key).idle(p.high) {
			delete(p.made, of)
		}
	}
	for of, l := range p.kept {
		if p.model(l.key).idle(p.high) {
			delete(p.kept, of)
		}
	}
	switch m := p.model(c.key); c.verb {
	case doTake:
		return p.text(p.subject.Take(c.key, c.cost)), p.text(m.Take(c.at, c.cost))
	case doSome:
		return p.some(c, m)
	case doPeek:
		if s, ok := p.subject.(Peeker); ok {
			return p.text(s.Peek(c.key, c.cost)), p.text(m.Peek(c.at, c.cost))
		}
	case doReserve:
		if s, ok := p.subject.(Reserver); ok {
			r, ok := s.Reserve(c.key, c.cost, time.Duration(c.within)*p.tick)
			id, delay, d := m.Reserve(c.at, c.cost, c.within)
			if ok && d.Allowed {
				p.made[i] = made{r, id, c.key}
			}
			return fmt.Sprint(p.text(r.Decision()), " delay ", r.Delay()), fmt.Sprint(p.text(d), " delay ", delay)
		}
	case doSettle:
		return p.settle(c)
	case doKeep:
		return p.keep(i, c, m)
	case doJoin:
		if s, ok := p.subject.(Joiner); ok {
			place, d := s.Join(c.key, c.cost, time.Duration(c.within)*p.tick)
			id, delay, wanted := m.Join(c.at, c.cost, c.within)
			if place != nil && wanted.Allowed && delay > 0 {
				p.queued[i] = queuedPlace{place, id, c.key}
				return fmt.Sprint(p.text(d), " delay ", place.Delay()), fmt.Sprint(p.text(wanted), " delay ", delay)
			}
			return fmt.Sprint(p.text(d), place != nil), fmt.Sprint(p.text(wanted), wanted.Allowed && delay > 0)
		}
	case doLeave:
		if l, ok := p.queued[c.of]; ok {
			delete(p.queued, c.of)
			return fmt.Sprint("left ", l.subject.Leave()), fmt.Sprint("left ", p.model(l.key).Leave(c.at, l.model))
		}
	case doSet:
		if s, ok := p.subject.(Setter); ok && !p.uncountable(c.at) {
			if err := s.SetLimit(c.limit); err != nil {
				return err.Error(), ""
			}
			for _, m := range p.models {
				m.SetLimit(c.at, c.limit)
			}
			p.limit = c.limit
			// what they give back now depends, by one clock unit, on whether an idle state was
			// evicted
			clear(p.made)
			for of, l := range p.kept {
				l.settled = true
				p.kept[of] = l
			}
		}
	case doSwitch:
		if s, ok := p.subject.(Switcher); ok && p.blind && !p.uncountable(c.at) {
			if err := s.Switch(c.limit); err != nil {
				return err.Error(), ""
			}
			p.limit = c.limit
		}
	}
	return "", ""
}

// text returns the compared fields of a decision.
func (p *pair) text(d weir.Decision) string {
	_, part, named := strings.Cut(d.By, "/")
	switch {
	case partsOf(p.limit) == nil:
		d.By = "" // only a name
	case named:
		d.By = part
	}
	d.Source = 0
	return fmt.Sprintf("%+v", d)
}
