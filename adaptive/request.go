package adaptive

import (
	"context"
	"fmt"

	"github.com/weirflow/weir"
)

// A Priority says how important a request is. The four levels are those of Google's book on site
// reliability engineering, where they are called criticality. The zero value is Critical.
type Priority int8

// The levels, and what a refusal costs.
const (
	CriticalPlus  Priority = 1  // the most serious harm that users notice
	Critical      Priority = 0  // harm that users notice
	SheddablePlus Priority = -1 // partial unavailability is expected: batch work that is tried again within minutes
	Sheddable     Priority = -2 // unavailability is expected, now and then for long
)

const levelCount = 4

// level is 0 for the least important. What is beyond the levels counts as the nearest one.
func (p Priority) level() int { return int(min(max(p, Sheddable), CriticalPlus) - Sheddable) }

var priorityNames = [levelCount]string{"sheddable", "sheddable_plus", "critical", "critical_plus"}

// String returns the name of the level, such as critical_plus.
func (p Priority) String() string {
	if p < Sheddable || p > CriticalPlus {
		return fmt.Sprintf("Priority(%d)", int8(p))
	}
	return priorityNames[p.level()]
}

// ParsePriority returns the level that has the name.
func ParsePriority(name string) (Priority, error) {
	for i, known := range priorityNames {
		if name == known {
			return Sheddable + Priority(i), nil
		}
	}
	return Critical, fmt.Errorf("adaptive: priority %q is unknown: use critical_plus, critical, sheddable_plus or sheddable", name)
}

// A Request says who asks for a place. The zero Request is Critical, of no partition, and of nobody
// known.
type Request struct {
	// Partition is the name of one of Options.Partitions. Requests with another name share what the
	// partitions leave.
	Partition string

	Priority Priority

	// User is a hash of who asks. While a level does not fit as a whole, some of its users are served
	// and the others are not, for a minute; then others are. With 0, nobody is known: chance decides
	// about each request.
	User uint64
}

// EnterAs is Enter for a request of a partition, a priority or a user. While there are not enough
// places, the less important requests are refused first.
func (l *Limiter) EnterAs(ctx context.Context, r Request) (Hold, error) {
	if err := ctx.Err(); err != nil {
		return Hold{}, err
	}
	if h, ok := l.take(l.leaves(r), nil); ok {
		return h, nil
	}
	return l.enterSlowly(ctx, r)
}

// TryEnterAs takes a place if one is free now. It is EnterAs that never waits, without an error to
// allocate.
func (l *Limiter) TryEnterAs(r Request) (Hold, bool) { return l.take(l.leaves(r), &r) }

// Attempt is TryEnterAs that counts nothing if there is no place: for a request about which EnterAs, or another
// limiter, decides then.
func (l *Limiter) Attempt(r Request) (Hold, bool) {
	if h, ok := l.take(l.leaves(r), nil); ok || l.plain() {
		return h, ok
	}
	return l.gate.attempt(r)
}

// Name returns the name of the limiter, which is Decision.By of a refusal.
func (l *Limiter) Name() string { return l.name }

// Queues reports whether requests that find no place may wait.
func (l *Limiter) Queues() bool { return l.gate.queue.Length > 0 }

// HasPlace reports whether a request may find a place now. It takes none and counts nothing, so another
// request may be faster: EnterAs decides.
func (l *Limiter) HasPlace(r Request) bool { return l.InFlight()+l.leaves(r) < l.Limit() }

// Refuses reports whether a request that does not wait is refused now. If so, it counts as refused. Otherwise nothing
// is counted and no place is taken, so another request may be faster: EnterAs decides.
func (l *Limiter) Refuses(r Request) bool {
	switch {
	case l.HasPlace(r), l.paced != nil && l.paced.refusedAt() && l.HasPlace(r):
		return false
	case l.plain():
		l.refused.Add(1)
		return true
	}
	return l.gate.refuses(r)
}

// anyone is a request without priority and user. Nobody writes to it.
var anyone Request

// leaves returns how many places a request leaves free.
func (l *Limiter) leaves(r Request) int64 {
	if r.Priority == Critical && r.User == 0 {
		return 0
	}
	if !l.ranked.Load() {
		l.ranked.Store(true)
	}
	return l.leave[r.Priority.level()].Load()
}

// enterSlowly is Enter for a request that has no place without the lock.
func (l *Limiter) enterSlowly(ctx context.Context, r Request) (Hold, error) {
	if l.plain() {
		l.refused.Add(1)
		return Hold{}, l.refusal()
	}
	return l.gate.enter(ctx, r)
}

// tryEnterSlowly is the same for TryEnter.
func (l *Limiter) tryEnterSlowly(r Request) (Hold, bool) {
	if l.plain() {
		l.refused.Add(1)
		return Hold{}, false
	}
	return l.gate.tryEnter(r)
}

// plain reports whether any request that finds no place is refused at once: nobody waits, there are no
// partitions, and all requests are alike.
func (l *Limiter) plain() bool {
	return !l.gate.always && !l.ranked.Load()
}

// refusal returns the error for a request that found no place.
func (l *Limiter) refusal() error {
	limit := l.Limit()
	return &weir.LimitedError{Decision: weir.Decision{
		Limit: limit, Remaining: max(limit-l.InFlight(), 0), RetryAfter: weir.Never, ResetAfter: weir.Never, By: l.name,
	}}
}
