package weir

import "github.com/weirflow/weir/internal/rules"

// TakeAtMost takes as much of n as is available now: it charges the lesser of n and Remaining, and
// returns how much that was, with the decision about it. It is for work that can be cut to size:
// bytes to send, rows to read, jobs to start. If nothing is available, it takes 0, and the decision
// is the refusal of one unit, with its RetryAfter.
//
// An n of 0 is allowed and takes nothing. An n below 0 is refused with Never. A limit that allows
// debt (SmoothBursty, WarmUp) gives what is stored; if less than one permit is stored, it gives
// one, if one is admitted.
//
// The decision is atomic: whatever other callers do meanwhile, exactly what it returns was charged.
// It takes the limiter's short lock and allocates nothing.
func (l *Limiter) TakeAtMost(n int64) (taken int64, d Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	o := l.queue.aheadOf(now)
	cost := min(n, 1)
	if n > 1 {
		cost = max(min(n, rules.Peek(l.version.rule, l.state, now, o, 1).Remaining), 1)
	}
	v := l.take(now, o, cost)
	d = l.version.decision(v)
	l.leave(now)
	if d.Allowed {
		taken = cost
	}
	return taken, d
}
