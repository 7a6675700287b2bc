package weir

import (
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// maxLayout is the largest number of words of a Layout.
const maxLayout = 16

// A Layout stores the states of a limit in a fixed number of words, for tables that pack many of
// them: see Prepared.Layout. It does not change and is safe for concurrent use. The caller guards
// the words.
type Layout struct {
	p      Prepared
	words  int
	bucket *rules.BucketWord // the word form of a bucket
	full   bool              // an unused bucket is full
	word   *rules.WordRange  // the span of another rule's word form
	rule   rules.WordRule
	size   int64 // the largest cost of rule
}

// Layout returns the layout of the limit's states around a clock reading. It returns nil if a state
// has no fixed length, or takes more than 16 words. TokenBucket, LeakyBucket, SmoothBursty,
// IntervalBucket, FixedWindow and SlidingCounter take one word, unless their parameters are very
// large.
func (p Prepared) Layout(now int64) *Layout {
	l := &Layout{p: p, words: 1}
	switch r := p.r.(type) {
	case rules.BucketRule:
		if w, ok := r.NewBucketWord(now); ok {
			l.bucket, l.full = &w, r.StartsFull() && !w.AllowsDebt()
			return l
		}
	case rules.WordRule:
		if w, ok := rules.RangeAround(r, now); ok {
			l.word, l.rule, l.size = &w, r, r.LargestCost()
			return l
		}
	}
	if p.r == nil {
		return nil
	}
	if l.words = p.r.Words(); l.words == 0 || l.words > maxLayout {
		return nil
	}
	return l
}

// Words returns how many words a state takes.
func (l *Layout) Words() int { return l.words }

// Covers reports whether the words can represent a state at a clock reading. If not, the Layout
// around another reading may.
func (l *Layout) Covers(now int64) bool {
	switch {
	case l.bucket != nil:
		return l.bucket.Covers(now)
	case l.word != nil:
		return l.word.Covers(now)
	}
	return true
}

// IsEarly reports whether a reading is before the one window that words are about, by less than its length. States
// of the window are decided by Prepared then, and fit the words nevertheless: a reading before a state's window counts in
// it. A table keeps such a Layout when its clock steps back over the begin of a window.
func (l *Layout) IsEarly(now int64) bool {
	return l.word != nil && l.rule.OneWindow() && now < l.word.Base && now >= rules.Minus(l.word.Base, l.word.Reach)
}

// Decide is Prepared.Step on a state in words; without charge, it is Prepared.Peek. It writes into
// d, which must be zero. It reports false and changes nothing if the words cannot decide: the
// caller must then Unpack them for Prepared.
func (l *Layout) Decide(d *Decision, words []int64, now, cost int64, charge bool) bool {
	switch {
	case l.bucket != nil:
		return l.decideBucket(d, &words[0], now, cost, charge)
	case l.word != nil:
		return l.decideWord(d, &words[0], now, cost, charge)
	case charge:
		next, made := l.p.Step(words, now, cost)
		*d = made
		if len(next) == len(words) && &next[0] != &words[0] {
			copy(words, next)
		}
		return true
	}
	*d = l.p.Peek(words, now, cost)
	return true
}

// IsAhead reports whether a refusal may be due to a reading of the clock before that of an earlier charge. A
// caller that read the clock before it got access to the words then reads it again, and decides again.
func (l *Layout) IsAhead(d *Decision) bool {
	return l.bucket != nil && d.ResetAfter > time.Duration(l.bucket.FullAfter())
}

// ResetAfter returns how long until the limit is idle: its state equals an unused one. It reports
// false if the words cannot decide.
func (l *Layout) ResetAfter(words []int64, now int64) (time.Duration, bool) {
	// a short path: a table calls this for many states to find one to evict
	if f := l.bucket; f != nil {
		if !f.Covers(now) {
			return 0, false
		}
		used, _ := f.Measure(words[0], f.At(now), 0)
		return time.Duration(f.Units(used)), true
	}
	var d Decision
	ok := l.Decide(&d, words, now, 0, false)
	return d.ResetAfter, ok
}

// decideBucket is Limiter.decide for a word that the caller guards.
func (l *Layout) decideBucket(d *Decision, word *int64, now, cost int64, charge bool) bool {
	f := l.bucket
	if !f.Covers(now) {
		return false
	}
	odd := f.Odd(cost)
	asked := cost
	if odd {
		if cost > 0 && f.AllowsDebt() {
			return false
		}
		asked, charge = 1, false
	}
	t, need := f.At(now), f.Need(asked)
	used, lacks := f.Measure(*word, t, need)
	if lacks <= 0 {
		lacks = 0
		if charge {
			used += need
			*word = t + used
		}
	}
	d.Allowed = lacks == 0
	d.Limit, d.By = f.Size(), l.p.name
	d.Remaining = f.Remaining(used)
	d.RetryAfter, d.ResetAfter = time.Duration(f.Units(lacks)), time.Duration(f.Units(used))
	if odd {
		d.decideInvalidCost(cost)
	}
	return true
}

// decideInvalidCost makes a decision one about a cost that is never charged: 0 is allowed, and all
// others are refused with Never.
func (d *Decision) decideInvalidCost(cost int64) {
	if d.Allowed, d.RetryAfter = cost == 0, 0; cost != 0 {
		d.RetryAfter = Never
	}
}

// decideWord is Limiter.decideWord for a word that the caller guards.
func (l *Layout) decideWord(d *Decision, word *int64, now, cost int64, charge bool) bool {
	f := l.word
	now -= f.Base
	if uint64(now) > uint64(f.Reach) {
		return false
	}
	odd := uint64(cost-1) >= uint64(l.size)
	asked := cost
	if odd {
		asked, charge = 0, false
	}
	next, remaining, reset, retry := l.rule.StepWord(f, max(*word, 0), now, asked, charge)
	if retry < 0 {
		return false
	}
	if charge && retry == 0 {
		*word = next
	}
	d.Allowed, d.Limit, d.Remaining, d.By = retry == 0, l.size, remaining, l.p.name
	d.RetryAfter, d.ResetAfter = time.Duration(retry), time.Duration(reset)
	if odd {
		d.decideInvalidCost(cost)
	}
	return true
}

// Fresh writes an unused state into words. It reports false if the words cannot represent one: the
// first charge then goes through Prepared.
func (l *Layout) Fresh(words []int64) bool {
	if l.word == nil && !l.full {
		return false
	}
	words[0] = untouched
	return true
}

// Pack writes a used state into words. It reports false if the state does not fit.
func (l *Layout) Pack(words, state []int64) bool {
	switch {
	case l.bucket != nil:
		w, ok := l.bucket.Pack(state)
		if ok {
			words[0] = w
		}
		return ok
	case l.word != nil:
		w := l.rule.Pack(l.word, state)
		if w >= 0 {
			words[0] = w
		}
		return w >= 0
	}
	if len(state) != l.words {
		return false
	}
	copy(words, state)
	return true
}

// Unpack appends the state in words to an empty slice. An unused state appends nothing.
func (l *Layout) Unpack(state, words []int64) []int64 {
	w := words[0]
	switch {
	case l.bucket != nil:
		z, rem := l.bucket.UnpackFull()
		if w != untouched {
			z, rem = l.bucket.Unpack(w)
		}
		return append(state, z, rem)
	case l.word != nil && w == untouched:
		return state
	case l.word != nil:
		return l.rule.Unpack(l.word, w, state)
	}
	return append(state, words...)
}
