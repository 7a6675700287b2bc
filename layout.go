package weir

import (
	"math"
	"math/bits"
	"time"
)

// maxLayout is how many words a Layout may have.
const maxLayout = 16

// A Layout is how the states of a limit lie in a fixed number of words, for tables that pack many of them: see Prepared.Layout. It does
// not change and is safe for concurrent use; whoever holds the words guards them.
type Layout struct {
	p      Prepared
	bucket *fastBucket // one word: Z in ticks from a base
	word   *fastWord   // one word, of a rule that knows how
	words  int
}

// Layout returns the layout of the limit's states around a clock reading; nil where a state has no fixed length, or one of more than 16
// words. TokenBucket, LeakyBucket, SmoothBursty, IntervalBucket, FixedWindow and SlidingCounter take one word, unless their numbers are
// very large.
func (p Prepared) Layout(now int64) *Layout {
	l := &Layout{p: p, words: 1}
	switch r := p.r.(type) {
	case *bucket:
		l.bucket = newFastBucket(r, now)
	case wordRule:
		l.word = wordAround(r, now)
	}
	if l.bucket != nil || l.word != nil {
		return l
	}
	if l.words = stateWords(p.r); l.words == 0 || l.words > maxLayout {
		return nil
	}
	return l
}

// wordAround returns a word without a state, with a base well before now, so that the states of now are after it.
func wordAround(r wordRule, now int64) *fastWord {
	base, reach, _ := r.rebase(nil, now)
	if f, ok := r.(*fixed); !ok || f.length != 0 { // the word of a calendar is about one window
		base, reach, _ = r.rebase(nil, minus(now, reach/4))
	}
	const most = math.MaxInt64 / 2
	if reach <= 0 || base < -most || base > most || now < base || now-base > reach {
		return nil
	}
	return &fastWord{rule: r, wall: r.wall(), base: base, reach: reach, size: r.largest()}
}

// stateWords is how many words each state of a rule has that was touched; 0 where they differ.
func stateWords(r rule) int {
	switch r := r.(type) {
	case *bucket:
		return 2
	case *interval:
		return intervalWords
	case *fixed:
		return fixedWords
	case *weighted:
		return weightedWords
	case *warm:
		return warmWords
	case *thousandths:
		return thousandthsWords
	case *sliding:
		return int(1 + 2*min(r.slots, maxLayout))
	case *together:
		n := 2 * len(r.rules)
		for _, part := range r.rules {
			words := stateWords(part)
			if words == 0 {
				return 0
			}
			n += words
		}
		return n
	}
	return 0
}

// Words is how many words a state takes.
func (l *Layout) Words() int { return l.words }

// Covers reports whether the words can speak of a clock reading. Where they cannot, another Layout of the limit may.
func (l *Layout) Covers(now int64) bool {
	switch {
	case l.bucket != nil:
		return uint64(now-l.bucket.base+l.bucket.reach) <= uint64(2*l.bucket.reach)
	case l.word != nil:
		return uint64(now-l.word.base) <= uint64(l.word.reach)
	}
	return true
}

// Decide is Prepared.Step on a state in words, or Prepared.Peek where nothing is to be charged. It writes into d, which is zero. It reports
// false, and has changed nothing, where the words cannot answer: then they are to be unpacked for Prepared.
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

// ResetAfter is what Decide says of a cost of 0: how long until the state equals an untouched one. It reports false where the words cannot
// answer.
func (l *Layout) ResetAfter(words []int64, now int64) (time.Duration, bool) {
	if f := l.bucket; f != nil { // a table asks this of many states to find one
		now -= f.base
		if uint64(now+f.reach) > uint64(2*f.reach) {
			return 0, false
		}
		used := max(words[0]-now*f.n, 0)
		if words[0] == untouched {
			used = 0
		}
		if f.n != 1 {
			used = (used + f.n - 1) / f.n
		}
		return time.Duration(used), true
	}
	var d Decision
	ok := l.Decide(&d, words, now, 0, false)
	return d.ResetAfter, ok
}

// decideBucket is Limiter.decide for a word that the caller guards.
func (l *Layout) decideBucket(d *Decision, word *int64, now, cost int64, charge bool) bool {
	f := l.bucket
	now -= f.base
	if uint64(now+f.reach) > uint64(2*f.reach) {
		return false
	}
	odd := uint64(cost-1) >= uint64(f.most)
	asked := cost
	if odd {
		if cost > 0 && f.room != f.full {
			return false
		}
		asked, charge = 1, false
	}
	t, need := now*f.n, asked*f.p
	used := max(*word, t) - t
	lacks := max(used+need-f.room, used-f.passes)
	if lacks <= 0 {
		lacks = 0
		if charge {
			used += need
			*word = t + used
		}
	}
	d.Allowed = lacks == 0
	d.Limit, d.By = f.size, l.p.name
	if used <= f.passes {
		left := uint64(f.full - used)
		q, _ := bits.Mul64(left, f.inv)
		if left-q*uint64(f.p) >= uint64(f.p) {
			q++
		}
		d.Remaining = int64(q)
	}
	if f.n != 1 {
		lacks, used = (lacks+f.n-1)/f.n, (used+f.n-1)/f.n
	}
	d.RetryAfter, d.ResetAfter = time.Duration(lacks), time.Duration(used)
	if odd {
		d.refuseOdd(cost)
	}
	return true
}

// refuseOdd turns the answer to another cost into that to one that is never charged: 0 is allowed, all others are never.
func (d *Decision) refuseOdd(cost int64) {
	if d.Allowed, d.RetryAfter = cost == 0, 0; cost != 0 {
		d.RetryAfter = Never
	}
}

// decideWord is Limiter.decideWord for a word that the caller guards.
func (l *Layout) decideWord(d *Decision, word *int64, now, cost int64, charge bool) bool {
	f := l.word
	now -= f.base
	if uint64(now) > uint64(f.reach) {
		return false
	}
	odd := uint64(cost-1) >= uint64(f.size)
	asked := cost
	if odd {
		asked, charge = 0, false
	}
	next, remaining, reset, retry := f.rule.step(f, max(*word, 0), now, asked, charge)
	if retry < 0 {
		return false
	}
	if charge && retry == 0 {
		*word = next
	}
	d.Allowed, d.Limit, d.Remaining, d.By = retry == 0, f.size, remaining, l.p.name
	d.RetryAfter, d.ResetAfter = time.Duration(retry), time.Duration(reset)
	if odd {
		d.refuseOdd(cost)
	}
	return true
}

// Fresh puts an untouched state into words. It reports false where the words have none: the first charge goes through Prepared then.
func (l *Layout) Fresh(words []int64) bool {
	if l.word == nil && (l.bucket == nil || !l.p.r.(*bucket).missing.IsZero() || l.bucket.room != l.bucket.full) {
		return false
	}
	words[0] = untouched
	return true
}

// Pack puts a state that was touched into words. It reports false where it does not fit.
func (l *Layout) Pack(words, state []int64) bool {
	switch {
	case l.bucket != nil:
		f, w := l.bucket, int64(untouched)
		switch z, rem := state[wordZ], state[wordRem]; {
		case z >= f.base && uint64(z)-uint64(f.base) >= uint64(f.reach):
			return false
		case z >= f.base || uint64(f.base)-uint64(z) < uint64(f.reach):
			w = (z-f.base)*f.n + rem
		}
		words[0] = w
		return true
	case l.word != nil:
		w := l.word.rule.pack(l.word, state)
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

// Unpack appends the state that lies in words to an empty slice; nothing for one that is untouched.
func (l *Layout) Unpack(state, words []int64) []int64 {
	w := words[0]
	switch {
	case l.bucket != nil:
		f := l.bucket
		if w == untouched {
			return append(state, f.base-f.reach, 0) // full since before the words' range
		}
		units, rem := w/f.n, w%f.n
		if rem < 0 {
			units, rem = units-1, rem+f.n
		}
		return append(state, f.base+units, rem)
	case l.word != nil && w == untouched:
		return state
	case l.word != nil:
		return l.word.rule.unpack(l.word, w, state)
	}
	return append(state, words...)
}
