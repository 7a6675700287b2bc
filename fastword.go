package weir

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// fastWord is what fastBucket is, for the other rules that have a state of a few small numbers: a time, and one or two counts. How they lie
// in the word, and what it answers, is the rule's; as there, it gives the decisions that the rule gives. Times are kept from a base, which
// moves forward under the limiter, by a new fastWord, once they no longer fit.
type fastWord struct {
	rule  wordRule
	wall  bool
	base  int64 // the clock reading that a time of 0 stands for
	reach int64 // how far after base, in clock units, the clock may read
	size  int64 // the largest cost

	word atomic.Int64 // on a cache line of its own: a state, which is not below 0; or sealed, or untouched, as in fastBucket
	_    [56]byte
}

// A wordRule is a rule with a state that may fit a word.
type wordRule interface {
	rule
	// rebase says from where on times are to be kept for a state at now, and how far after that the clock may read. Where the state is as
	// good as an untouched one from then on, kept is true, and the word is to be untouched. A reach of 0 is that there can be no word.
	rebase(state []int64, now int64) (base, reach int64, kept bool)
	// pack puts a state into a word; it is below 0 where it does not fit.
	pack(f *fastWord, state []int64) int64
	// unpack takes it out again; state is the one that was packed.
	unpack(f *fastWord, w int64, state []int64) []int64
	// step is what take does, or peek where nothing is to be charged, with a cost within 0 and the largest, at a time within reach of base.
	// An untouched state is a word of 0. A retry of 0 is that the cost is admitted, and one below 0 that the rule is to be asked itself.
	step(f *fastWord, w, now, cost int64, charge bool) (next, remaining, reset, retry int64)
}

// ask is the retry of a step that cannot answer.
const ask int64 = -1

// layout is how a word is divided among a time, in the high bits, and n counts up to size: how many bits each count has, and the latest
// time, where the word holds it in whole units. Two bits are left. There is no time where a base would have to move more often than about
// once a second, or where one would pass the horizon.
func layout(size int64, n uint, unit, horizon int64) (count uint, latest int64) {
	count = uint(bits.Len64(uint64(size)))
	if n*count > 61 {
		return count, 0
	}
	latest = plusTimes(0, 1<<(62-n*count)-1, unit)
	if latest < minReach {
		return count, 0
	}
	return count, min(latest, horizon/4)
}

// decideWord is decide for a limiter that has no fastBucket.
func (l *Limiter) decideWord(d *Decision, cost int64, charge bool) {
	f := l.word.Load()
	if f == nil {
		l.decideLocked(d, cost, charge)
		return
	}
	odd := uint64(cost-1) >= uint64(f.size) // never charged: 0, below 0 or above the capacity
	asked := cost
	if odd {
		asked, charge = 0, false
	}
	now := l.reading(f.wall) - f.base
	if uint64(now) > uint64(f.reach) {
		l.decideLocked(d, cost, charge)
		return
	}
	for {
		w := f.word.Load()
		if w == sealed {
			l.decideLocked(d, cost, charge)
			return
		}
		next, remaining, reset, retry := f.rule.step(f, max(w, 0), now, asked, charge)
		if retry < 0 {
			l.decideLocked(d, cost, charge)
			return
		}
		if charge && retry == 0 && !f.word.CompareAndSwap(w, next) {
			continue
		}
		if d.Allowed = retry == 0; odd && cost != 0 {
			d.Allowed, retry = false, int64(Never)
		}
		d.Limit, d.Remaining, d.By = f.size, remaining, l.name
		d.RetryAfter, d.ResetAfter = time.Duration(retry), time.Duration(reset)
		return
	}
}

// unpublishWord seals the word and takes the state out of it.
func (l *Limiter) unpublishWord() {
	f := l.word.Load()
	if f == nil {
		return
	}
	if w := f.word.Swap(sealed); w != sealed && w != untouched {
		l.state = f.rule.unpack(f, w, l.state)
	}
}

// publishWord puts the state into the word, where it fits: the one that is sealed, or a new one.
func (l *Limiter) publishWord(now int64) {
	r, ok := l.era.rule.(wordRule)
	if !ok {
		return
	}
	if f := l.word.Load(); f != nil && f.rule == r && uint64(now-f.base) <= uint64(f.reach) {
		w := int64(untouched)
		if len(l.state) > 0 {
			w = r.pack(f, l.state)
		}
		if w >= 0 || w == untouched {
			f.word.Store(w)
			return
		}
	}
	const most = math.MaxInt64 / 2
	base, reach, kept := r.rebase(l.state, now)
	if reach <= 0 || base < -most || base > most || now < base || now-base > reach {
		return
	}
	f := &fastWord{rule: r, wall: r.wall(), base: base, reach: reach, size: r.largest()}
	w := int64(untouched)
	if !kept {
		if w = r.pack(f, l.state); w < 0 {
			return
		}
	}
	f.word.Store(w)
	l.word.Store(f)
}
