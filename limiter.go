package weir

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/claim"
	"github.com/weirflow/weir/internal/outstanding"
	"github.com/weirflow/weir/internal/rules"
)

// A Limiter is one limit with its state: one resource, shared by everyone who calls it. All methods are safe for concurrent use.
//
// Which verb to call: Allow or Take to decide now and drop or degrade what is refused; Wait to hold the caller until its turn;
// Reserve to be told how long to hold back, and to settle or cancel afterwards; Peek to look.
//
// Allow, Take and Peek read the clock once, and need no lock where the state fits one machine word: that of the buckets, FixedWindow,
// SlidingCounter and SmoothBursty, unless their numbers are very large. The other verbs, and all of them while somebody waits, take one short
// lock, never held over a wait. No verb allocates, but for a line that grows: a caller who has to wait takes about 200 bytes, kept for
// the next one.
type Limiter struct {
	// What every call reads. It changes only with the limit, or when the clock runs out of the word's range.
	fast  atomic.Pointer[fastBucket]
	word  atomic.Pointer[fastWord]
	clock func() int64 // nil: time.Since(start)
	times func() int64 // wall time; nil: clock, or time.Now
	start time.Time
	name  string

	serial uint64 // where it comes in the order in which a Group takes locks: random, so that nothing has to count them

	_ [64]byte // what follows is written under the lock: not on the cache lines that every call reads

	mu    sync.Mutex
	era   *era
	limit Limit
	state []int64 // of the era's rule; while the fast word is not sealed, the word stands for it
	words [smallState]int64
	line  line

	memory       *rules.Memory  // of the reservations that are outstanding; nil where none is
	reservations outstanding.ID // the last that was given out
	inexact      uint64

	marks  claim.Marks
	after  func(time.Duration, func()) Timer
	timer  Timer
	timing int64           // what the timer is set for; idle when it is not
	wall   bool            // the rule reads wall time
	bells  []chan struct{} // of groups that wait
}

// An Option injects something a Limiter would otherwise bring itself.
type Option func(*Limiter)

// Named gives the limiter the name that its decisions carry in By.
func Named(name string) Option { return func(l *Limiter) { l.name = name } }

// WithClock replaces the clock, for virtual time. now returns nanoseconds from any origin; it may be called from any goroutine. A
// reading earlier than one before is harmless: it mints nothing. The default is the monotonic time since New.
func WithClock(now func() int64) Option { return func(l *Limiter) { l.clock = now } }

// WithWallClock replaces the clock that calendar and epoch windows read, for virtual time: nanoseconds since the Unix epoch. Without it
// they read WithClock's where that is given, and time.Now otherwise.
func WithWallClock(now func() int64) Option { return func(l *Limiter) { l.times = now } }

// A Timer is what Wait sleeps by. *time.Timer is one.
type Timer interface {
	Reset(d time.Duration) bool
	Stop() bool
}

// WithTimers replaces time.AfterFunc, for virtual time: a limiter with a clock of its own needs timers that follow it, or its waiters
// sleep in real time. after calls f once, in any goroutine, when d has gone by.
func WithTimers(after func(d time.Duration, f func()) Timer) Option {
	return func(l *Limiter) { l.after = after }
}

// smallState is how many words of state a limiter keeps within itself, without further memory.
const smallState = 4

// New returns a limiter with an untouched state: a TokenBucket is full, unless its Initial says otherwise. The error says which number
// of the limit is wrong. A Limiter starts no goroutine and needs no Close.
func New(l Limit, opts ...Option) (*Limiter, error) {
	p, err := Prepare(l, time.Nanosecond)
	if err != nil {
		return nil, err
	}
	return p.New(nil, opts...)
}

// now reads the clock that the rule goes by, under the lock.
func (l *Limiter) now() int64 { return l.reading(l.wall) }

// reading is what the clock shows: the one of wall time, or the other.
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

// at is what the clock reads at a time that was read already.
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

// Take asks for cost units now and charges them if the answer is yes. A refusal charges nothing, a cost of 0 is allowed and changes
// nothing, and a cost below 0 or above the capacity is refused with Never.
func (l *Limiter) Take(cost int64) (d Decision) {
	l.decide(&d, cost, true)
	return d
}

// Peek answers as Take would and charges nothing.
func (l *Limiter) Peek(cost int64) (d Decision) {
	l.decide(&d, cost, false)
	return d
}

// decideLocked is decide where the fast word cannot answer.
func (l *Limiter) decideLocked(d *Decision, cost int64, charge bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.decideDirect(d, cost, charge) {
		return
	}
	now := l.enter()
	o := l.line.others(now)
	if charge {
		*d = l.era.decision(l.take(now, o, cost))
	} else {
		*d = l.era.decision(rules.Peek(l.era.rule, l.state, now, o, cost))
	}
	l.leave(now)
}

// decideDirect is decideLocked where nobody waits and the rule has a short way; such a rule has no word. It reports whether it was gone.
func (l *Limiter) decideDirect(d *Decision, cost int64, charge bool) bool {
	e := l.era
	if e.direct == nil || l.memory != nil || l.line.first != nil || len(l.state) == 0 || uint64(cost-1) >= uint64(e.largest) {
		return false
	}
	next, v, ok := e.direct.DecideDirect(l.state, l.reading(false), cost, charge)
	if !ok {
		return false
	}
	l.state = next
	d.Allowed, d.Limit, d.Remaining, d.By = v.Retry == 0, e.capacity, v.Remaining, l.name
	d.RetryAfter, d.ResetAfter = time.Duration(v.Retry), time.Duration(v.Reset)
	return true
}

// SetLimit changes the limit and keeps what has been used, in tokens: raising the burst helps at once, lowering it may leave a debt
// that refills first. Those who wait stay in line, at the new rate; one whose cost does not fit any more is let go with ErrLimited.
// Reservations keep the delay they were told. On an error nothing has changed.
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
	old, then := l.era, now
	if l.wall = r.ReadsWallTime(); l.wall != old.rule.ReadsWallTime() && (l.clock == nil || l.times != nil) { // wall time is another clock
		then = l.now()
	}
	part := rules.Part{Rule: r, Limit: next.normal()}
	if l.state = rules.ChangeRule(old.part, l.state, now, part, then); len(l.state) == 0 && r.StoresPermits() {
		l.state = r.FirstContact(l.state, then) // as of one that is made now
	}
	switch {
	case l.memory == nil:
	case now != then: // nothing can be given back across a change of clocks
		l.memory.Reset()
	default:
		rules.ChangeMemory(old.part, l.memory, now, part, l.state)
	}
	l.era = newEra(part, next, l.name)
	l.fast.Store(nil)
	l.word.Store(nil)
	old.next, old.until, old.otherClock = l.era, now, now != then
	l.limit = next
	l.reline(now, then, old.rule)
	l.leave(then)
	l.ring()
	return nil
}

// An era is the time between two changes of the limit. Each knows the next, so that what was charged in one can be given back in
// another; nothing but reservations keeps a past era in memory.
type era struct {
	rule  rules.Rule
	part  rules.Part // the same, with its limit
	next  *era
	until int64
	name  string   // of the limiter
	parts []string // what decisions call the parts of an All

	otherClock bool // the next era reads another clock: nothing can be given back across it

	// What else the rule can do; nil where it cannot.
	direct rules.DirectRule
	bucket rules.BucketRule
	word   rules.WordRule

	capacity, largest int64
}

// newEra begins one.
func newEra(p rules.Part, l Limit, name string) *era {
	r := p.Rule
	e := &era{rule: r, part: p, name: name, parts: decisionNames(l, name), capacity: r.Capacity(), largest: r.LargestCost()}
	e.direct, _ = r.(rules.DirectRule)
	e.bucket, _ = r.(rules.BucketRule)
	e.word, _ = r.(rules.WordRule)
	return e
}

// decision puts a verdict into words. A limiter's clock unit is a nanosecond.
func (e *era) decision(v rules.Verdict) Decision {
	return Decision{
		Allowed:    v.Retry == 0,
		Limit:      e.capacity,
		Remaining:  v.Remaining,
		RetryAfter: time.Duration(v.Retry),
		ResetAfter: time.Duration(v.Reset),
		Level:      v.Level,
		By:         e.by(v.Part),
	}
}

// by is the name in a decision that one part of an All made, counted from 1; the limiter's for 0.
func (e *era) by(part int) string {
	if part > 0 {
		return e.parts[part-1]
	}
	return e.name
}

// carry brings a receipt of this era to the latest one. It reports false where the limit became one of another kind meanwhile.
func (e *era) carry(c rules.Receipt) (_ rules.Receipt, latest *era, ok bool) {
	for ok = true; ok && e.next != nil; e = e.next {
		c, ok = c.ConvertTicket(e.part, e.until, e.next.part)
		ok = ok && !e.otherClock
	}
	return c, e, ok
}

// enter begins a piece of work under the lock: the state is taken out of the fast word, the clock is read, and those in line whose
// turn has come are served first.
func (l *Limiter) enter() (now int64) {
	l.unpublish()
	now = l.now()
	l.serve(now)
	if w := l.line.first; w != nil && w.due == unnamed { // seen from here it may have a time
		l.appoint(now)
		l.serve(now)
	}
	return now
}

// enterAt is enter at a time that was read already.
func (l *Limiter) enterAt(t time.Time) (now int64) {
	l.unpublish()
	now = l.at(t)
	l.serve(now)
	return now
}

// leave ends it: whoever is first in line gets a new appointment, and the state goes back to the fast word if nobody waits and no reservation
// is outstanding.
func (l *Limiter) leave(now int64) {
	l.appoint(now)
	l.serve(now)
	l.setTimer(now)
	if l.memory != nil {
		l.releaseMemory()
	}
	if l.line.first == nil && l.memory == nil {
		l.publish(now)
	}
}
