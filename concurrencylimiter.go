package weir

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/heap"
	"github.com/weirflow/weir/internal/held"
	"github.com/weirflow/weir/internal/rules"
)

// A ConcurrencyLimiter is a Concurrency with its state. All methods are safe for concurrent use. It
// starts no goroutine and needs no Close.
//
// While nobody waits and nothing expires, entering and leaving are lock-free, read no clock and
// allocate nothing. While a caller waits, and with MaxHold, each takes one short lock, which is
// never held over a wait. A limiter takes about 1.5 kB. Each concurrent hold beyond the first 20
// takes 64 bytes more, and each waiter about 200; both are reused.
type ConcurrencyLimiter struct {
	name  string
	clock func() int64 // nil: time.Since(start)
	times func() int64 // wall time, for fences; nil: clock, or time.Now
	start time.Time
	after func(time.Duration, func()) Timer
	limit atomic.Int64 // numbers.Limit, for readers without the lock

	// keeps the word, which every call writes, off the cache line that every call reads
	_    [64]byte
	word atomic.Uint64
	_    [56]byte

	slots  [slotCount]holder
	pool   sync.Pool     // holders beyond the slots
	pooled atomic.Uint64 // how many lives of pooled holders have ended

	mu       sync.Mutex
	numbers  Concurrency
	queue    entrants
	expiring heap.Heap[holder] // the holds that expire, by their expiry
	returns  int64             // the sum of the costs in expiring
	latest   int64             // no hold expires later than this
	reading  int64             // the latest reading of the clock
	fence    int64             // the last fence given out
	counts   Outcomes
	timer    Timer
	timing   int64 // the time that the timer is set for; idle if it is not set
}

// Outcomes counts the holds that have ended so far, by their outcome.
type Outcomes struct{ OK, Ignored, Dropped, Expired uint64 }

// NewConcurrency returns a limiter whose places are all free. It takes the options Named,
// WithClock, WithWallClock (for fences) and WithTimers of New. The error says which parameter is
// invalid.
func NewConcurrency(l Concurrency, opts ...Option) (*ConcurrencyLimiter, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	given := Limiter{after: func(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }}
	for _, opt := range opts {
		opt(&given)
	}
	c := &ConcurrencyLimiter{
		name:    given.name,
		clock:   given.clock,
		times:   given.times,
		start:   time.Now(),
		after:   given.after,
		numbers: l,
		reading: math.MinInt64,
		latest:  math.MinInt64,
		timing:  timerOff,
	}
	c.limit.Store(l.Limit)
	c.word.Store(uint64(origin+l.Limit) << freeShift)
	for i := range c.slots {
		c.slots[i].l, c.slots[i].slot = c, 2<<i
	}
	c.pool.New = func() any { return &holder{l: c} }
	c.leave(0)
	return c, nil
}

// Enter waits for a place and returns it as a Hold: the caller must call Done when the work has
// ended. Callers get their places in the order in which they came.
//
// If the queue is full, Enter returns a *LimitedError at once; errors.Is finds ErrLimited in it.
// RetryAfter is then at most how long it takes until the queue has room, if nobody else calls.
// Without MaxHold it is Never, as nobody knows when a place is left.
//
// If the context ends first, Enter returns its error: nothing is held, and the callers behind it
// move up. If a place comes at the same moment as the end of the context, Enter returns the place.
func (l *ConcurrencyLimiter) Enter(ctx context.Context) (Hold, error) { return l.EnterCost(ctx, 1) }

// EnterCost is Enter for work that takes up more than one unit. A cost above the limit is refused
// with Never: at once, or when SetLimit lowers the limit below it during the wait. A cost below 0
// is ErrCost. A cost of 0 always enters, and returns a zero Hold.
func (l *ConcurrencyLimiter) EnterCost(ctx context.Context, cost int64) (Hold, error) {
	if err := ctx.Err(); err != nil {
		return Hold{}, err
	}
	if cost > 0 {
		if h, _, ok := l.takeByWord(cost, busy); ok {
			return h, nil
		}
	}
	return l.wait(ctx, cost)
}

// TryEnter takes a place if one is free now and nobody waits for it. After a refusal, RetryAfter is
// at most how long it takes until the same call succeeds, if nobody else calls; Never without
// MaxHold. ResetAfter is at most how long it takes until all places are free, if nobody calls;
// Never if no time can be named.
func (l *ConcurrencyLimiter) TryEnter() (h Hold, d Decision) {
	h = l.try(&d, 1)
	return h, d
}

// TryEnterCost is TryEnter for work that takes up more than one unit. A cost of 0 is allowed and
// returns a zero Hold. A cost below 0 or above the limit is refused with Never.
func (l *ConcurrencyLimiter) TryEnterCost(cost int64) (h Hold, d Decision) {
	h = l.try(&d, cost)
	return h, d
}

// try is TryEnterCost. It writes into the caller's Decision, because copying a returned Decision
// costs as much as deciding.
func (l *ConcurrencyLimiter) try(d *Decision, cost int64) Hold {
	if cost > 0 {
		h, w, ok := l.takeByWord(cost, busy)
		if d.Allowed = ok; ok || w&busy == 0 {
			d.By, d.Limit, d.Remaining = l.name, l.limit.Load(), max(freeIn(w), 0)
			if !ok {
				d.RetryAfter = Never
			}
			if d.Remaining < d.Limit {
				d.ResetAfter = Never
			}
			return h
		}
	}
	return l.tryLocked(d, cost)
}

// tryLocked is try under the lock, for what the word cannot decide.
func (l *ConcurrencyLimiter) tryLocked(d *Decision, cost int64) (h Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	free := int64(0)
	if d.Allowed = cost == 0; cost > 0 {
		h, free, d.Allowed = l.takePlace(now, cost)
	} else {
		free = l.free()
	}
	l.describe(d, now, free, cost)
	return h
}

// Peek returns the decision that TryEnterCost would return, and takes nothing.
func (l *ConcurrencyLimiter) Peek(cost int64) (d Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	free := l.free()
	d.Allowed = cost == 0 || cost > 0 && l.queue.waiters.Len() == 0 && cost <= free
	l.describe(&d, now, free, cost)
	return d
}

// describe fills in a decision except for Allowed, under the lock. It uses the free places that the
// decision was based on, as more may have become free since.
func (l *ConcurrencyLimiter) describe(d *Decision, now, free, cost int64) {
	d.By, d.Limit = l.name, l.numbers.Limit
	if l.queue.waiters.Len() == 0 {
		d.Remaining = max(free, 0)
	}
	if !d.Allowed {
		d.RetryAfter = l.retry(now, free, cost)
	}
	switch {
	case free == l.numbers.Limit:
	case l.queue.waiters.Len() == 0 && free+l.returns == l.numbers.Limit && l.latest != endless:
		d.ResetAfter = time.Duration(rules.Until(l.latest, now))
	default:
		d.ResetAfter = Never
	}
}

// Do enters, calls fn, and leaves. If it cannot enter, it returns Enter's error and does not call
// fn; otherwise it returns fn's error. The outcome is counted by how fn ends:
//
//   - OK: fn returns nil.
//   - Dropped: fn returns an error in which errors.Is finds context.DeadlineExceeded or ErrLimited;
//     or fn panics or ends the goroutine, which Do lets continue.
//   - Ignore: fn returns any other error.
func (l *ConcurrencyLimiter) Do(ctx context.Context, fn func(context.Context) error) error {
	h, err := l.Enter(ctx)
	if err != nil {
		return err
	}
	return held.Do[Outcome](ctx, h, ErrLimited, fn)
}

// SetLimit changes the parameters. It takes no place away: after the limit was lowered, nobody
// enters until enough holds have ended. After it was raised, waiters move up at once. A waiter
// whose cost no longer fits gets ErrLimited. A queue that is longer than the new Queue keeps its
// waiters. A new MaxHold applies to holds that begin or are extended from now on. On an error
// nothing has changed.
func (l *ConcurrencyLimiter) SetLimit(next Concurrency) error {
	if err := next.Validate(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enter()
	l.word.Add(uint64(next.Limit-l.numbers.Limit) << freeShift)
	l.limit.Store(next.Limit)
	l.numbers = next
	// enter again: it reads the clock only if something expires, which the new MaxHold may have
	// changed
	now := l.enter()
	for w := l.queue.waiters.First(); w != nil; {
		behind := w.node.Next()
		if w.cost > next.Limit {
			l.queue.remove(w, cast)
		}
		w = behind
	}
	l.leave(now)
	return nil
}

// Limit returns the parameters in force.
func (l *ConcurrencyLimiter) Limit() Concurrency {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.numbers
}

// Waiting returns how many callers wait for a place.
func (l *ConcurrencyLimiter) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(l.enter())
	return l.queue.waiters.Len()
}

// Holding returns the sum of the costs of all holds. It exceeds the limit only after the limit was
// lowered.
func (l *ConcurrencyLimiter) Holding() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(l.enter())
	return l.numbers.Limit - l.free()
}

// Outcomes returns how many holds have ended so far, by their outcome.
func (l *ConcurrencyLimiter) Outcomes() Outcomes {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(l.enter())
	c := l.counts
	c.OK = l.pooled.Load()
	for i := range l.slots {
		c.OK += l.slots[i].life.Load()
	}
	c.OK -= c.Ignored + c.Dropped + c.Expired // these only change under the lock
	return c
}

// now reads the clock, and never goes back.
func (l *ConcurrencyLimiter) now() int64 {
	t := int64(0)
	if l.clock != nil {
		t = l.clock()
	} else {
		t = int64(time.Since(l.start))
	}
	l.reading = max(l.reading, t)
	return l.reading
}

// nextFence returns the fence of the next hold: larger than all before, and at least the
// microseconds since the Unix epoch. now is a reading of the clock; by default that is the time
// since start, so the start's wall time is added.
func (l *ConcurrencyLimiter) nextFence(now int64) int64 {
	switch {
	case l.times != nil:
		now = l.times()
	case l.clock == nil:
		now += l.start.UnixNano()
	}
	l.fence = max(l.fence+1, now/1000)
	return l.fence
}

// free returns how much is free now. While the caller holds the lock and the word is busy, others
// can only increase it.
func (l *ConcurrencyLimiter) free() int64 { return freeIn(l.word.Load()) }

// enter begins a critical section under the lock: it sends all other callers to the lock, and takes
// back the places of expired holds. It reads the clock only if something can expire.
func (l *ConcurrencyLimiter) enter() (now int64) {
	l.word.Or(busy)
	if l.numbers.MaxHold == 0 && l.expiring.Len() == 0 {
		return 0
	}
	now = l.now()
	for r := l.expiring.Due(now); r != nil; r = l.expiring.Due(now) {
		l.removeExpiring(r)
		r.life.Add(1)
		l.counts.Expired++
		l.release(r)
	}
	l.admit(now)
	return now
}

// leave ends the critical section: waiters that fit get their places. If nobody waits and nothing
// expires, other callers may use the lock-free path again.
func (l *ConcurrencyLimiter) leave(now int64) {
	l.admit(now)
	due := int64(timerOff)
	if next, expiry := l.expiring.First(); next != nil && expiry != endless && l.queue.waiters.Len() > 0 {
		due = expiry
	}
	l.setTimer(now, due)
	if l.queue.waiters.Len() == 0 && l.numbers.MaxHold == 0 && l.expiring.Len() == 0 {
		l.word.And(^uint64(busy))
	} else {
		l.word.Or(busy)
	}
}

// serveQueue serves the waiters after a place was given back.
func (l *ConcurrencyLimiter) serveQueue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(l.enter())
}

// admit gives waiters their places while the first one fits.
func (l *ConcurrencyLimiter) admit(now int64) {
	for w := l.queue.waiters.First(); w != nil; w = l.queue.waiters.First() {
		h, _, ok := l.hold(now, w.cost)
		if !ok {
			return
		}
		w.hold = h
		l.queue.remove(w, served)
	}
}

// takePlace takes a place for a new caller, unless others wait. It returns what is free afterwards;
// on a refusal, what was not enough.
func (l *ConcurrencyLimiter) takePlace(now, cost int64) (h Hold, free int64, ok bool) {
	if l.queue.waiters.Len() > 0 {
		return h, l.free(), false
	}
	return l.hold(now, cost)
}

// hold takes a place. With a MaxHold, the hold expires.
func (l *ConcurrencyLimiter) hold(now, cost int64) (h Hold, free int64, ok bool) {
	h, w, ok := l.takeByWord(cost, 0)
	if free = freeIn(w); !ok || l.numbers.MaxHold == 0 {
		return h, free, ok
	}
	h.fence = l.nextFence(now)
	expiry := l.expiry(now)
	l.latest = max(l.latest, expiry)
	l.returns += cost
	l.expiring.Push(&h.r.expiry, h.r, expiry)
	return h, free, true
}

// removeExpiring removes a holder from expiring.
func (l *ConcurrencyLimiter) removeExpiring(r *holder) {
	l.expiring.Remove(&r.expiry)
	if l.returns -= r.cost; l.expiring.Len() == 0 {
		l.latest = math.MinInt64
	}
}

// expiry is when a hold that begins now expires.
func (l *ConcurrencyLimiter) expiry(now int64) int64 {
	if l.numbers.MaxHold == 0 {
		return endless
	}
	return rules.PlusTimes(now, 1, int64(l.numbers.MaxHold))
}

// setTimer sets the timer for the next expiry, so that waiters are served then.
func (l *ConcurrencyLimiter) setTimer(now, due int64) {
	if due == l.timing {
		return
	}
	l.timing = due
	switch d := time.Duration(rules.Until(due, now)); {
	case due == timerOff:
		l.timer.Stop()
	case l.timer == nil:
		l.timer = l.after(d, l.wake)
	default:
		l.timer.Reset(d)
	}
}

func (l *ConcurrencyLimiter) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timing = timerOff
	l.leave(l.enter())
}
