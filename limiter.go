package weir

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/claim"
	"github.com/weirflow/weir/internal/outstanding"
	"github.com/weirflow/weir/internal/rules"
)

// A Limiter is one limit with its state: one resource, shared by all its callers. All methods are
// safe for concurrent use.
//
// Most servers should use Allow or Take, and drop or degrade work that is refused. Wait blocks the
// caller until its turn. Reserve returns how long to delay the work, which can be settled or
// cancelled afterwards. Peek returns the decision without charging.
//
// Allow, Take and Peek read the clock once. They need no lock if the state fits one machine word:
// that of TokenBucket, LeakyBucket, IntervalBucket, FixedWindow, SlidingCounter and SmoothBursty
// fits, unless their parameters are very large. The other methods take one short lock, which is
// never held over a wait; Allow, Take and Peek take it too while callers wait.
//
// No method allocates, except for a queue that grows: a caller that has to wait takes about 200
// bytes, which are kept for the next one.
type Limiter struct {
	// Fields that every call reads. They change only with the limit, or when the clock runs out of
	// the word's range.
	fast  atomic.Pointer[fastBucket]
	word  atomic.Pointer[fastWord]
	clock func() int64 // nil: time.Since(start)
	times func() int64 // wall time; nil: clock, or time.Now
	start time.Time
	name  string

	// the order in which a Group takes locks; random, so that limiters share no counter
	serial uint64

	// the fields below are written under the lock: keep them off the cache lines that every call
	// reads
	_ [64]byte

	mu      sync.Mutex
	version *version
	limit   Limit
	// of the version's rule; stale while the fast word is not sealed, as the word holds the state then
	state []int64
	words [smallState]int64
	queue waitQueue

	memory       *rules.Memory      // of outstanding reservations; nil if there are none
	budget       outstanding.Budget // of memory
	reservations outstanding.ID     // the last ID given out
	inexact      uint64

	marks  claim.Marks
	after  func(time.Duration, func()) Timer
	timer  Timer
	timing int64           // the time that the timer is set for; idle if it is not set
	wall   bool            // the rule reads wall time
	bells  []chan struct{} // the channels of groups that wait, see listen
}

// An Option replaces one of a Limiter's defaults, like its clock.
type Option func(*Limiter)

// Named sets the limiter's name, which its decisions carry in By. Default: no name.
func Named(name string) Option { return func(l *Limiter) { l.name = name } }

// WithClock replaces the clock, for virtual time. now returns nanoseconds from any origin, at least an
// hour above math.MinInt64, and may be called from any goroutine. It may go back: an earlier reading
// adds no tokens. Default: the monotonic time since New.
func WithClock(now func() int64) Option { return func(l *Limiter) { l.clock = now } }

// WithWallClock replaces the clock that calendar and epoch windows read, for virtual time. now
// returns nanoseconds since the Unix epoch. Default: the clock of WithClock, or time.Now without
// one.
func WithWallClock(now func() int64) Option { return func(l *Limiter) { l.times = now } }

// A Timer wakes a Wait. *time.Timer is one.
type Timer interface {
	Reset(d time.Duration) bool
	Stop() bool
}

// WithTimers replaces time.AfterFunc, for virtual time. A limiter with its own clock needs timers
// that follow that clock, or its waiters sleep in real time. after calls f once, in any goroutine,
// when d has passed.
func WithTimers(after func(d time.Duration, f func()) Timer) Option {
	return func(l *Limiter) { l.after = after }
}

// smallState is how many words of state a Limiter keeps without a further allocation.
const smallState = 4

// New returns a limiter with an unused state: a TokenBucket is full, or holds its Initial. The
// error says which parameter of the limit is invalid. A Limiter starts no goroutine and needs no
// Close.
func New(l Limit, opts ...Option) (*Limiter, error) {
	p, err := Prepare(l, time.Nanosecond)
	if err != nil {
		return nil, err
	}
	return p.New(nil, opts...)
}

// now reads the rule's clock, under the lock.
func (l *Limiter) now() int64 { return l.reading(l.wall) }

// reading reads the wall clock or the monotonic one.
func (l *Limiter) reading(wall bool) int64 {
	switch {
	case wall && l.times != nil:
		return l.times()
	case l.clock != nil:
		return l.clock()
	case wall:
		return time.Now().UnixNano()
	}
	return int64(time.Since(l.start))
}

// at converts a time that was already read to a reading of the rule's clock.
func (l *Limiter) at(t time.Time) int64 {
	switch {
	case l.clock != nil || l.wall && l.times != nil:
		return l.now()
	case l.wall:
		return t.UnixNano()
	}
	return int64(t.Sub(l.start))
}

// Limit returns the limit in force.
func (l *Limiter) Limit() Limit {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit
}

// Allow reports whether one unit may go now, and charges it if so.
func (l *Limiter) Allow() bool {
	var d Decision
	l.decide(&d, 1, true)
	return d.Allowed
}

// Take decides about cost units now, and charges them if they are allowed. A refusal charges
// nothing. A cost of 0 is allowed and changes nothing. A cost below 0 or above the capacity is
// refused with Never.
func (l *Limiter) Take(cost int64) (d Decision) {
	l.decide(&d, cost, true)
	return d
}

// Peek returns the decision that Take would return, and charges nothing.
func (l *Limiter) Peek(cost int64) (d Decision) {
	l.decide(&d, cost, false)
	return d
}

// decideLocked is decide under the lock, for what the fast word cannot decide.
func (l *Limiter) decideLocked(d *Decision, cost int64, charge bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.decideDirect(d, cost, charge) {
		return
	}
	now := l.enter()
	o := l.queue.aheadOf(now)
	if charge {
		*d = l.version.decision(l.take(now, o, cost))
	} else {
		*d = l.version.decision(rules.Peek(l.version.rule, l.state, now, o, cost))
	}
	l.leave(now)
}

// decideDirect is a shorter form of decideLocked for rules without a word form, while nobody waits.
// It reports false if the caller must use the general path.
func (l *Limiter) decideDirect(d *Decision, cost int64, charge bool) bool {
	ver := l.version
	if ver.direct == nil || l.memory != nil || l.queue.waiters.Len() > 0 || len(l.state) == 0 || uint64(cost-1) >= uint64(ver.largest) {
		return false
	}
	next, v, ok := ver.direct.DecideDirect(l.state, l.reading(false), cost, charge)
	if !ok {
		return false
	}
	l.state = next
	d.Allowed, d.Limit, d.Remaining, d.By = v.Retry == 0, ver.capacity, v.Remaining, l.name
	d.RetryAfter, d.ResetAfter = time.Duration(v.Retry), time.Duration(v.Reset)
	return true
}

// SetLimit changes the limit and keeps what has been used, in tokens: raising the burst helps at
// once, and lowering it may leave a debt that refills first. Waiters stay in the queue, at the new
// rate. A waiter whose cost no longer fits gets ErrLimited. Reservations keep the delay they were
// given. On an error nothing has changed.
func (l *Limiter) SetLimit(next Limit) error {
	r, err := compile(next, time.Nanosecond)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if Equal(l.limit, next) {
		return nil
	}
	now := l.enter()
	old, then := l.version, now
	// wall time is another clock
	if l.wall = r.ReadsWallTime(); l.wall != old.rule.ReadsWallTime() && (l.clock == nil || l.times != nil) {
		then = l.now()
	}
	part := rules.Part{Rule: r, Limit: next.normal()}
	if l.state = rules.ChangeRule(old.part, l.state, now, part, then); len(l.state) == 0 && r.StoresPermits() {
		l.state = r.FirstCall(l.state, then) // as for a limiter that is made now
	}
	switch {
	case l.memory == nil:
	case now != then: // nothing can be refunded across a change of clocks
		l.memory.Reset()
	default:
		rules.ChangeMemory(old.part, l.memory, now, part, l.state)
	}
	l.version = newVersion(part, next, l.name)
	l.version.lines = old.lines.Next(old.part, part, now == then)
	l.fast.Store(nil)
	l.word.Store(nil)
	l.limit = next
	l.updateQueue(now, then, old.rule)
	l.leave(then)
	l.signalListeners()
	return nil
}

// A version of the limit is in force between two changes of it. Only reservations keep a past version
// in memory: each its own, and none of those in between.
type version struct {
	rule  rules.Rule
	part  rules.Part  // the rule with its limit
	lines rules.Lines // to earlier versions, whose charges can be refunded in this one
	name  string      // of the limiter
	parts []string    // the By of each part of an All

	// Optional interfaces of the rule; nil if it lacks them.
	direct rules.DirectRule
	bucket rules.BucketRule
	word   rules.WordRule

	capacity, largest int64
}

func newVersion(p rules.Part, l Limit, name string) *version {
	r := p.Rule
	ver := &version{rule: r, part: p, name: name, parts: decisionNames(l, name), capacity: r.Capacity(), largest: r.LargestCost()}
	ver.direct, _ = r.(rules.DirectRule)
	ver.bucket, _ = r.(rules.BucketRule)
	ver.word, _ = r.(rules.WordRule)
	return ver
}

// decision converts a verdict to a Decision. A limiter's clock unit is a nanosecond.
func (ver *version) decision(v rules.Verdict) Decision {
	return Decision{
		Allowed:    v.Retry == 0,
		Limit:      ver.capacity,
		Remaining:  v.Remaining,
		RetryAfter: time.Duration(v.Retry),
		ResetAfter: time.Duration(v.Reset),
		Level:      v.Level,
		By:         ver.by(v.Part),
	}
}

// by is the By of a decision that a part of an All made. Parts count from 1; 0 is the limiter
// itself.
func (ver *version) by(part int) string {
	if part > 0 {
		return ver.parts[part-1]
	}
	return ver.name
}

// carry converts a receipt of a version to the present one. It reports false if the limit's algorithm
// or clock has changed since.
func (l *Limiter) carry(ver *version, c rules.Receipt) (rules.Receipt, bool) {
	if ver == l.version {
		return c, true
	}
	return c.Convert(ver.part, ver.lines, l.version.part, l.version.lines)
}

// State returns the limit in force and a copy of the state, for holders that keep states across
// restarts: Prepared.New continues from it. It holds readings of the limiter's clock. Charges of
// reservations that are outstanding count as used.
func (l *Limiter) State() (Limit, []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	limit, state := l.limit, append([]int64(nil), l.state...)
	l.leave(now)
	return limit, state
}

// enter begins a critical section under the lock. It takes the state out of the fast word, reads
// the clock, and serves the waiters whose turn has come.
func (l *Limiter) enter() (now int64) {
	l.unpublish()
	now = l.now()
	l.serve(now)
	// its turn may be within the horizon by now
	if w := l.queue.waiters.First(); w != nil && w.due == unknownTurn {
		l.computeTurn(now)
		l.serve(now)
	}
	return now
}

// enterAt is enter with a time that was already read.
func (l *Limiter) enterAt(t time.Time) (now int64) {
	l.unpublish()
	now = l.at(t)
	l.serve(now)
	return now
}

// leave ends the critical section. It updates the turn of the first waiter, and puts the state back
// into the fast word if nobody waits and no reservation is outstanding.
func (l *Limiter) leave(now int64) {
	l.computeTurn(now)
	l.serve(now)
	l.setTimer(now)
	if l.memory != nil {
		l.releaseMemory()
	}
	if l.queue.waiters.Len() == 0 && l.memory == nil {
		l.publish(now)
	}
}
