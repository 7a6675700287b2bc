package weir

import "github.com/weirflow/weir/internal/rules"

// TakeAtMost takes as much of n as there is now: it charges the lesser of n and Remaining, and returns how much that was and the decision
// about it. It is for work that can be cut to size: bytes to send, rows to read, jobs to start. Where nothing is left it takes 0, and the
// decision is the refusal of one unit, with the RetryAfter of that.
//
// Of a limit that knows debt (SmoothBursty, WarmUp) it takes what is stored, and where that is less than one, but one is admitted, one.
// An n of 0 is allowed and takes nothing, and one below 0 is refused with Never. It is one decision: whatever others do meanwhile, what it
// returns was charged, and no more. It takes the limiter's short lock and allocates nothing.
func (l *Limiter) TakeAtMost(n int64) (taken int64, d Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	o := l.line.others(now)
	cost := min(n, 1)
	if n > 1 {
		cost = max(min(n, rules.Peek(l.era.rule, l.state, now, o, 1).Remaining), 1)
	}
	var v rules.Verdict
	v = l.take(now, o, cost)
	d = l.era.decision(v)
	l.leave(now)
	if d.Allowed {
		taken = cost
	}
	return taken, d
}
