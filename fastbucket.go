package weir

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// fastBucket is a bucket's state in one machine word. A decision takes one clock reading and one
// compare-and-swap.
//
// When the clock nears the end of the word's range, a new fastBucket moves the base forward under
// the limiter. A goroutine that holds the limiter's lock may seal the word: the state is then in
// the limiter, and all other goroutines take the lock. A base never changes, so a compare-and-swap
// that succeeds has always worked on the state it read.
type fastBucket struct {
	rules.BucketWord

	// on its own cache line: the other fields are only read, so every core can cache them
	word atomic.Int64
	_    [56]byte
}

const (
	sealed = math.MinInt64 // the word does not hold the state
	// the limiter keeps the state: unused, or full since before the range
	untouched = rules.Untouched
)

// decide is Take; without charge, it is Peek. What the word cannot decide goes to the lock.
//
// This is the hot path of a limiter. It writes into the caller's Decision, field by field: a
// Decision returned as a value would be copied twice through memory, which costs as much as the
// compare-and-swap. The methods of BucketWord are inlined.
func (l *Limiter) decide(d *Decision, cost int64, charge bool) {
	f := l.fast.Load()
	if f == nil {
		l.decideWord(d, cost, charge)
		return
	}
	if f.Odd(cost) {
		l.decideInvalidCost(d, cost, charge)
		return
	}
	var now int64 // l.now(), which the compiler does not inline
	if l.clock == nil {
		now = int64(time.Since(l.start))
	} else {
		now = l.clock()
	}
	if !f.Covers(now) {
		l.decideLocked(d, cost, charge)
		return
	}
	t, need, again := f.At(now), f.Need(cost), false
	for {
		w := f.word.Load()
		if w == sealed {
			l.decideLocked(d, cost, charge)
			return
		}
		used, lacks := f.Measure(w, t, need)
		if lacks <= 0 {
			lacks = 0
			if charge {
				used += need
				if !f.word.CompareAndSwap(w, t+used) {
					continue
				}
			}
		} else if !again && f.IsAhead(used) {
			// this goroutine may have stood still since it read the clock: others then charged by later
			// readings, and what has come back since is hidden from this one
			again = true
			if later := l.reading(false); later > now && f.Covers(later) {
				t = f.At(later)
				continue
			}
		}
		d.Allowed = lacks == 0
		d.Limit = f.Size()
		d.By = l.name
		d.Remaining = f.Remaining(used)
		d.RetryAfter, d.ResetAfter = time.Duration(f.Units(lacks)), time.Duration(f.Units(used))
		return
	}
}

// decideInvalidCost is decide for a cost that is never charged: 0, below 0 or above the capacity.
// Rules that allow debt are an exception: they may charge a cost above the capacity.
func (l *Limiter) decideInvalidCost(d *Decision, cost int64, charge bool) {
	if f := l.fast.Load(); cost > 0 && f != nil && f.AllowsDebt() {
		l.decideLocked(d, cost, charge)
		return
	}
	l.decide(d, 1, false)
	switch {
	case cost == 0:
		d.Allowed, d.RetryAfter = true, 0
	case cost < 0 || cost > d.Limit:
		d.Allowed, d.RetryAfter = false, Never
	default: // the limit has just changed: the cost can be charged now
		l.decideLocked(d, cost, charge)
	}
}

// unpublish seals the fast word and takes the state out of it.
func (l *Limiter) unpublish() {
	f := l.fast.Load()
	if f == nil {
		l.unpublishWord()
		return
	}
	w := f.word.Swap(sealed)
	if w == sealed || w == untouched {
		return
	}
	z, rem := f.Unpack(w)
	if len(l.state) == 0 {
		l.state = append(l.state, 0, 0)
	}
	l.state[0], l.state[1] = z, rem
}

// publish puts the state into the fast word, if it fits: into the sealed word, or into a new one
// with its base at now.
func (l *Limiter) publish(now int64) {
	b := l.version.bucket
	if b == nil {
		l.publishWord(now)
		return
	}
	if len(l.state) == 0 && !b.StartsFull() {
		return // the first call has to be stored, under the lock
	}
	f := l.fast.Load()
	if f == nil || !b.SameWord(&f.BucketWord) || !f.NearBase(now) {
		word, ok := b.NewBucketWord(now)
		if !ok {
			return
		}
		f = &fastBucket{BucketWord: word}
		f.word.Store(sealed)
	}
	w := int64(untouched)
	if len(l.state) != 0 {
		var ok bool
		if w, ok = f.Pack(l.state); !ok {
			// too much debt for the word: the state stays under the lock until it has drained
			return
		}
	}
	f.word.Store(w)
	l.fast.Store(f)
}
