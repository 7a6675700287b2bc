package weir

import (
	"sync"

	"github.com/weirflow/weir/internal/rules"
)

// memories are for limiters while reservations of theirs are outstanding.
var memories = sync.Pool{New: func() any { return new(rules.Memory) }}

// Inexact returns how many reservations, since the limiter was made, came while too many others were outstanding: cancelling one of those may
// give back less than it took. See Reservation.
func (l *Limiter) Inexact() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inexact
}

// The methods below are what changes the state, under the lock. While a reservation is outstanding the limiter has a memory, which is told of
// every charge; the state then stays under the lock, as a charge of the fast word would be unknown to it.

// take is rules.Take on the limiter's state.
func (l *Limiter) take(now int64, q rules.Queue, cost int64) (v rules.Verdict) {
	l.state, v = rules.Take(l.era.rule, l.memory, l.state, now, q, cost)
	return v
}

// charge charges what may go at now.
func (l *Limiter) charge(now, cost int64) {
	l.state = rules.Charge(l.era.rule, l.memory, l.state, now, cost)
}

// book charges ahead what goes at due.
func (l *Limiter) book(now, due, cost int64) (c rules.Receipt) {
	if l.memory == nil && l.era.rule.NeedsMemory() {
		l.memory = memories.Get().(*rules.Memory)
	}
	l.reservations++
	l.state, c = rules.Book(l.era.rule, l.memory, l.reservations, l.state, now, due, cost)
	return c
}

// refund gives back amount of a charge that was made ahead in some era.
func (l *Limiter) refund(now int64, e *era, c rules.Receipt, amount int64) {
	if c, latest, ok := e.carry(c); ok {
		l.state = c.Refund(latest.rule, l.memory, l.state, now, amount)
		l.ring()
	}
}

// drop ends a reservation of some era of which nothing is given back.
func (l *Limiter) drop(e *era, c rules.Receipt) {
	if l.memory == nil {
		return
	}
	if c, latest, ok := e.carry(c); ok {
		c.Drop(latest.rule, l.memory)
	}
}

// releaseMemory gives the memory back where nothing is outstanding any more.
func (l *Limiter) releaseMemory() {
	l.inexact += l.memory.TakeInexact()
	if l.memory.Empty() {
		l.memory.Reset()
		memories.Put(l.memory)
		l.memory = nil
	}
}
