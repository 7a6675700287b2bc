package weir

import (
	"sync"

	"github.com/weirflow/weir/internal/rules"
)

// memories pools the Memory of limiters that have outstanding reservations.
var memories = sync.Pool{New: func() any { return new(rules.Memory) }}

// Inexact returns how many reservations were made while too many others were outstanding, since the
// limiter was made. Cancelling one of those may give back less than it took. See Reservation.
func (l *Limiter) Inexact() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inexact
}

// The methods below change the state, under the lock. While a reservation is outstanding, every
// charge must be recorded in the limiter's memory. The state then stays under the lock, as a charge
// of the fast word would not be recorded.

func (l *Limiter) take(now int64, q rules.Queue, cost int64) (v rules.Verdict) {
	l.state, v = rules.Take(l.version.rule, l.memory, l.state, now, q, cost)
	return v
}

// charge charges a cost that goes at now.
func (l *Limiter) charge(now, cost int64) {
	l.state = rules.Charge(l.version.rule, l.memory, l.state, now, cost)
}

// reserve charges ahead a cost that goes at due.
func (l *Limiter) reserve(now, due, cost int64) (c rules.Receipt) {
	l.state, c = rules.Book(l.version.rule, l.remember(), l.reservations, l.state, now, due, cost)
	return c
}

// reserveTurn charges the first waiter, whose turn came at due, so that it can be given back.
func (l *Limiter) reserveTurn(due, now, cost int64) (c rules.Receipt) {
	l.state, c = rules.BookTurn(l.version.rule, l.remember(), l.reservations, l.state, due, now, cost)
	return c
}

// remember begins a reservation: it makes its ID, and the memory if the rule needs one.
func (l *Limiter) remember() *rules.Memory {
	if l.memory == nil && l.version.rule.NeedsMemory() {
		if l.memory = memories.Get().(*rules.Memory); l.budget != nil {
			l.memory.Within(l.budget)
		}
	}
	l.reservations++
	return l.memory
}

// settle replaces a cost that was charged ahead in version ver by the actual cost.
func (l *Limiter) settle(now int64, ver *version, c rules.Receipt, cost, actual int64) {
	if actual < cost {
		l.refund(now, ver, c, cost-actual)
		return
	}
	if cost > 0 {
		l.drop(ver, c)
	}
	if actual > cost {
		l.chargeDebt(now, actual-cost)
	}
}

// chargeDebt charges a cost at now for work that was already done.
func (l *Limiter) chargeDebt(now, cost int64) {
	if len(l.state) == 0 {
		l.state = l.version.rule.FirstCall(l.state, now)
	}
	l.state = rules.ChargeDebt(l.version.rule, l.memory, l.state, now, cost)
}

// refund gives back amount of a charge that was made ahead in version ver.
func (l *Limiter) refund(now int64, ver *version, c rules.Receipt, amount int64) {
	if c, ok := l.carry(ver, c); ok {
		l.state = c.Refund(l.version.rule, l.memory, l.state, now, amount)
		l.signalListeners()
	}
}

// drop ends a reservation of version ver that gives nothing back.
func (l *Limiter) drop(ver *version, c rules.Receipt) {
	if l.memory == nil {
		return
	}
	if c, ok := l.carry(ver, c); ok {
		c.Drop(l.version.rule, l.memory)
	}
}

// releaseMemory returns the memory to the pool once no reservation is outstanding.
func (l *Limiter) releaseMemory() {
	l.inexact += l.memory.TakeInexact()
	if l.memory.Empty() {
		l.memory.Within(nil)
		memories.Put(l.memory)
		l.memory = nil
	}
}
