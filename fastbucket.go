package weir

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// fastBucket is a bucket's state in one machine word, decided on with one clock reading and one compare-and-swap.
//
// The base of the word moves forward under the limiter, by a new fastBucket, whenever the clock nears the end of the word's range. A
// goroutine that holds the limiter's lock may seal the word: the state is then in the limiter, and all other goroutines come to the
// lock. A base never changes, so a compare-and-swap that succeeds has always worked on the state it read.
type fastBucket struct {
	rules.BucketWord

	word atomic.Int64 // on a cache line of its own: the rest is only read, and stays with every core
	_    [56]byte
}

const (
	sealed    = math.MinInt64   // the word does not hold the state
	untouched = rules.Untouched // the state is the one that the limiter keeps: never touched, or full since before the range
)

// decide is Take, or Peek where charge is false. What the word cannot answer goes to the lock.
//
// The speed of a limiter rests on this path. It writes into the caller's Decision, field by field: a Decision returned as a value would
// be copied twice through memory, which costs as much as the compare-and-swap. The methods of BucketWord are inlined.
func (l *Limiter) decide(d *Decision, cost int64, charge bool) {
	f := l.fast.Load()
	if f == nil {
		l.decideWord(d, cost, charge)
		return
	}
	if f.Odd(cost) {
		l.decideOdd(d, cost, charge)
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
	t, need := f.At(now), f.Need(cost)
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
		}
		d.Allowed = lacks == 0
		d.Limit = f.Size()
		d.By = l.name
		d.Remaining = f.Remaining(used)
		d.RetryAfter, d.ResetAfter = time.Duration(f.Units(lacks)), time.Duration(f.Units(used))
		return
	}
}

// decideOdd is decide for a cost that is never charged: 0, below 0 or above the capacity. (A rule that allows debt may charge one above
// the capacity.)
func (l *Limiter) decideOdd(d *Decision, cost int64, charge bool) {
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
	default: // the limit has just been changed: the cost is not odd any more
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

// publish puts the state into the fast word, where it fits: the one that is sealed, or a new one with its base at now.
func (l *Limiter) publish(now int64) {
	b := l.era.bucket
	if b == nil {
		l.publishWord(now)
		return
	}
	if len(l.state) == 0 && !b.StartsFull() {
		return // the first contact is to be written down
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
			return // too much debt for the word: the state stays under the lock until it has drained
		}
	}
	f.word.Store(w)
	l.fast.Store(f)
}
