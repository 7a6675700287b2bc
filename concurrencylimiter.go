package weir

import (
	"container/heap"
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// A ConcurrencyLimiter is a Concurrency with its state. All methods are safe for concurrent use. It starts no goroutine and needs no Close.
//
// Entering and leaving where nobody waits and nothing expires is lock-free, reads no clock and allocates nothing. While someone waits, and
// with MaxHold, each takes one short lock, never held over a wait. A limiter takes some 1.5 kB; a hold beyond the first 20 at a time
// 64 bytes, and a caller who waits some 200, both used again.
type ConcurrencyLimiter struct {
	name  string
	clock func() int64 // nil: time.Since(start)
	times func() int64 // wall time, for fences; nil: clock, or time.Now
	start time.Time
	after func(time.Duration, func()) Timer
	limit atomic.Int64 // numbers.Limit, for who does not hold the lock

	_    [64]byte // what every call writes is not on the cache line that every call reads
	word atomic.Uint64
	_    [56]byte

	slots  [slotCount]holder
	pool   sync.Pool     // of further holders
	pooled atomic.Uint64 // how many lives of theirs have ended

	mu       sync.Mutex
	numbers  Concurrency
	queue    entrants
	expiring expiring
	returns  int64 // the sum of their costs
	latest   int64 // no hold expires later than this
	reading  int64 // the latest of the clock
	fence    int64 // the last one given
	counts   Outcomes
	timer    Timer
	timing   int64 // what the timer is set for; idle when it is not
}

// Outcomes is how many holds have ended so far, and how.
type Outcomes struct{ OK, Ignored, Dropped, Expired uint64 }

// NewConcurrency returns a limiter whose places are all free. Of the options, Named, WithClock, WithWallClock (for fences) and WithTimers
// mean what they mean for New. The error says which number is wrong.
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
		timing:  idle,
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

// Enter waits for a place and returns it held: the caller calls Done when the work has ended. Callers get their places in the order in
// which they came.
//
// It returns at once, with a *LimitedError in which errors.Is finds ErrLimited, where the queue is full; RetryAfter is then how long it
// takes at most until there is room in it if nobody else calls, and Never without MaxHold, as nobody knows when a place is left. When
// the context ends first, Enter returns its error: nothing is held, and those behind move up. A place that comes at the same moment as
// the end of the context is returned, held.
func (l *ConcurrencyLimiter) Enter(ctx context.Context) (Hold, error) { return l.EnterCost(ctx, 1) }

// EnterCost is Enter for work that takes up more than one unit. A cost above the limit is refused at once with Never, also where the limit
// is lowered below it during the wait; a cost below 0 is ErrCost; a cost of 0 always enters, and returns a zero Hold.
func (l *ConcurrencyLimiter) EnterCost(ctx context.Context, cost int64) (Hold, error) {
	if err := ctx.Err(); err != nil {
		return Hold{}, err
	}
	if cost > 0 {
		if h, _, ok := l.grab(cost, busy); ok {
			return h, nil
		}
	}
	return l.wait(ctx, cost)
}

// TryEnter takes a place if there is one now and nobody waits for it. RetryAfter of a refusal is how long it takes at most until the same
// call succeeds if nobody else calls, and Never without MaxHold. ResetAfter is at most how long until all places are free, if nobody
// calls; Never where no time can be named.
func (l *ConcurrencyLimiter) TryEnter() (h Hold, d Decision) {
	h = l.try(&d, 1)
	return h, d
}

// TryEnterCost is TryEnter for work that takes up more than one unit. A cost of 0 is allowed and returns a zero Hold; one below 0 or above
// the limit is refused with Never.
func (l *ConcurrencyLimiter) TryEnterCost(cost int64) (h Hold, d Decision) {
	h = l.try(&d, cost)
	return h, d
}

// try is TryEnterCost. It writes into the caller's Decision: one that is returned would be copied, which costs as much as deciding.
func (l *ConcurrencyLimiter) try(d *Decision, cost int64) Hold {
	if cost > 0 {
		h, w, ok := l.grab(cost, busy)
		if d.Allowed = ok; ok || w&busy == 0 {
			d.By, d.Limit, d.Remaining = l.name, l.limit.Load(), max(freeOf(w), 0)
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

// tryLocked is try where the word cannot answer.
func (l *ConcurrencyLimiter) tryLocked(d *Decision, cost int64) (h Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	free := int64(0)
	if d.Allowed = cost == 0; cost > 0 {
		h, free, d.Allowed = l.give(now, cost)
	} else {
		free = l.free()
	}
	l.describe(d, now, free, cost)
	return h
}

// Peek answers as TryEnterCost would and takes nothing.
func (l *ConcurrencyLimiter) Peek(cost int64) (d Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	free := l.free()
	d.Allowed = cost == 0 || cost > 0 && l.queue.first == nil && cost <= free
	l.describe(&d, now, free, cost)
	return d
}

// describe fills in a decision beside Allowed, under the lock. It is about the free places by which was decided: others may have left since.
func (l *ConcurrencyLimiter) describe(d *Decision, now, free, cost int64) {
	d.By, d.Limit = l.name, l.numbers.Limit
	if l.queue.first == nil {
		d.Remaining = max(free, 0)
	}
	if !d.Allowed {
		d.RetryAfter = l.retry(now, free, cost)
	}
	switch {
	case free == l.numbers.Limit:
	case l.queue.first == nil && free+l.returns == l.numbers.Limit && l.latest != endless:
		d.ResetAfter = time.Duration(rules.Until(l.latest, now))
	default:
		d.ResetAfter = Never
	}
}

// wait is EnterCost where there is no place at once.
func (l *ConcurrencyLimiter) wait(ctx context.Context, cost int64) (Hold, error) {
	if cost < 0 {
		return Hold{}, ErrCost
	}
	if cost == 0 {
		return Hold{}, nil
	}
	w, h, err := l.getInLine(cost)
	if w == nil {
		return h, err
	}
	select {
	case <-w.ready:
	case <-ctx.Done():
		if l.giveUp(w) {
			err = ctx.Err()
		}
		<-w.ready
	}
	return l.finish(w, err)
}

// getInLine takes a place at once, or puts an entrant in line, or refuses.
func (l *ConcurrencyLimiter) getInLine(cost int64) (*entrant, Hold, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	h, free, ok := l.give(now, cost)
	if ok {
		return nil, h, nil
	}
	if cost > l.numbers.Limit || int64(l.queue.n) >= l.numbers.Queue {
		var d Decision
		l.describe(&d, now, free, cost)
		if first := l.queue.first; first != nil && int64(l.queue.n) == l.numbers.Queue && cost <= l.numbers.Limit {
			d.RetryAfter = l.expires(now, free, first.cost)
		}
		return nil, Hold{}, &LimitedError{Decision: d}
	}
	w := l.queue.entrant(cost)
	l.queue.join(w)
	return w, Hold{}, nil
}

// giveUp takes an entrant out of line. It reports false where the entrant got a place, or was let go, just before.
func (l *ConcurrencyLimiter) giveUp(w *entrant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	if w.state != inLine {
		return false
	}
	l.queue.remove(w, left)
	return true
}

// finish ends a wait.
func (l *ConcurrencyLimiter) finish(w *entrant, err error) (Hold, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := w.hold
	if w.state == cast {
		d := Decision{RetryAfter: Never}
		l.describe(&d, l.now(), l.free(), w.cost)
		err = &LimitedError{Decision: d}
	}
	l.queue.release(w)
	return h, err
}

// Do enters, calls fn and leaves. It returns Enter's error, in which case fn was not called, or fn's. The outcome is OK where fn returns
// nil; Dropped where it returns an error in which errors.Is finds context.DeadlineExceeded or ErrLimited, and where it panics or ends
// the goroutine, which then goes on as if Do were not there; and Ignore for all other errors.
func (l *ConcurrencyLimiter) Do(ctx context.Context, fn func(context.Context) error) error {
	h, err := l.Enter(ctx)
	if err != nil {
		return err
	}
	outcome := Dropped
	defer func() { h.Done(outcome) }()
	switch err = fn(ctx); {
	case err == nil:
		outcome = OK
	case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrLimited):
		outcome = Ignore
	}
	return err
}

// SetLimit changes the numbers. No place is taken away: after the limit was lowered, nobody enters until enough have left. After it was
// raised, those who wait move up at once. One who waits with a cost that fits no more is let go with ErrLimited; a queue that is longer
// than it now may be stays. MaxHold is for what enters or is extended from now on. On an error nothing has changed.
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
	now := l.enter() // the clock may not have mattered before
	for w := l.queue.first; w != nil; {
		behind := w.next
		if w.cost > next.Limit {
			l.queue.remove(w, cast)
		}
		w = behind
	}
	l.leave(now)
	return nil
}

// Limit returns the numbers in force.
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
	return l.queue.n
}

// Holding returns how much is held: the sum of the costs of all holds. It is more than the limit only after the limit was lowered.
func (l *ConcurrencyLimiter) Holding() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(l.enter())
	return l.numbers.Limit - l.free()
}

// Outcomes returns how many holds have ended so far, and how.
func (l *ConcurrencyLimiter) Outcomes() Outcomes {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(l.enter())
	c := l.counts
	c.OK = l.pooled.Load()
	for i := range l.slots {
		c.OK += l.slots[i].life.Load()
	}
	c.OK -= c.Ignored + c.Dropped + c.Expired // which only change under the lock
	return c
}

// now reads the clock, which never goes back.
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

// nextFence is the number of the next hold that wants one. now is by the clock: the wall's is that of the start, and what has gone by.
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

// free is what is free now. Beside who holds the lock, others may only make it more, while the word is busy.
func (l *ConcurrencyLimiter) free() int64 { return freeOf(l.word.Load()) }

// enter begins a piece of work under the lock: from now on everyone comes to the lock, and what has expired is given back. The clock is
// read only where something expires.
func (l *ConcurrencyLimiter) enter() (now int64) {
	l.word.Or(busy)
	if l.numbers.MaxHold == 0 && len(l.expiring) == 0 {
		return 0
	}
	now = l.now()
	for len(l.expiring) > 0 && l.expiring[0].expiry <= now {
		r := l.expiring[0]
		l.forget(r)
		r.life.Add(1)
		l.counts.Expired++
		l.release(r)
	}
	l.admit(now)
	return now
}

// leave ends it: those for whom there is room move up, and where nobody waits and nothing expires, others need not come to the lock.
func (l *ConcurrencyLimiter) leave(now int64) {
	l.admit(now)
	due := int64(idle)
	if l.queue.first != nil && len(l.expiring) > 0 && l.expiring[0].expiry != endless {
		due = l.expiring[0].expiry
	}
	l.setTimer(now, due)
	if l.queue.first == nil && l.numbers.MaxHold == 0 && len(l.expiring) == 0 {
		l.word.And(^uint64(busy))
	} else {
		l.word.Or(busy)
	}
}

// refresh sees to those who wait after something was given back.
func (l *ConcurrencyLimiter) refresh() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(l.enter())
}

// admit gives those who wait their places, while there is room for the first.
func (l *ConcurrencyLimiter) admit(now int64) {
	for w := l.queue.first; w != nil; w = l.queue.first {
		h, _, ok := l.hold(now, w.cost)
		if !ok {
			return
		}
		w.hold = h
		l.queue.remove(w, served)
	}
}

// give takes a place for someone who has just come: behind those who wait. It returns what is free then, or what was too little.
func (l *ConcurrencyLimiter) give(now, cost int64) (h Hold, free int64, ok bool) {
	if l.queue.first != nil {
		return h, l.free(), false
	}
	return l.hold(now, cost)
}

// hold takes a place, which expires where there is a MaxHold.
func (l *ConcurrencyLimiter) hold(now, cost int64) (h Hold, free int64, ok bool) {
	h, w, ok := l.grab(cost, 0)
	if free = freeOf(w); !ok || l.numbers.MaxHold == 0 {
		return h, free, ok
	}
	h.fence = l.nextFence(now)
	h.r.expiry = l.expiry(now)
	l.latest = max(l.latest, h.r.expiry)
	l.returns += cost
	heap.Push(&l.expiring, h.r)
	return h, free, true
}

// forget takes a holder out of those that expire.
func (l *ConcurrencyLimiter) forget(r *holder) {
	heap.Remove(&l.expiring, r.index)
	if l.returns -= r.cost; len(l.expiring) == 0 {
		l.latest = math.MinInt64
	}
}

// expiry is when a hold ends that begins now.
func (l *ConcurrencyLimiter) expiry(now int64) int64 {
	if l.numbers.MaxHold == 0 {
		return endless
	}
	return rules.PlusTimes(now, 1, int64(l.numbers.MaxHold))
}

// setTimer sees to it that what expires while someone waits is noticed.
func (l *ConcurrencyLimiter) setTimer(now, due int64) {
	if due == l.timing {
		return
	}
	l.timing = due
	switch d := time.Duration(rules.Until(due, now)); {
	case due == idle:
		l.timer.Stop()
	case l.timer == nil:
		l.timer = l.after(d, l.wake)
	default:
		l.timer.Reset(d)
	}
}

// wake is what the timer calls.
func (l *ConcurrencyLimiter) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timing = idle
	l.leave(l.enter())
}
