package weir

import "github.com/weirflow/weir/internal/rules"

// GiveBack lowers what has been used by amount, at most to nothing, and returns the decision of a
// Peek of 0, whichever calls have used it. It is for counts that are corrected from outside, like the
// negative hits of Envoy; work that the program itself has reserved is given back by its Reservation.
//
// Only a FixedWindow can: its state is a count. For all other limits, ok is false and nothing changes.
// An amount below 0 gives nothing back.
func (l *Limiter) GiveBack(amount int64) (d Decision, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	r, ok := l.version.rule.(rules.CountingRule)
	if ok {
		l.state = r.GiveBack(l.state, now, amount)
		l.signalListeners()
	}
	return l.version.decision(rules.Peek(l.version.rule, l.state, now, l.queue.aheadOf(now), 0)), ok
}

// GiveBack is Limiter.GiveBack on a state.
func (p Prepared) GiveBack(state []int64, now, amount int64) (next []int64, ok bool) {
	r, ok := p.r.(rules.CountingRule)
	if !ok || !r.Valid(state) {
		return state, false
	}
	return r.GiveBack(state, now, amount), true
}
