package weir

import (
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// fastWord is like fastBucket, for the other rules whose state may fit one word. The rule defines
// the content of the word, and decides on it. Times count from a base. Once they no longer fit, a
// new fastWord moves the base forward under the limiter.
type fastWord struct {
	rules.WordRange
	rule rules.WordRule
	wall bool
	size int64 // the largest cost

	// on its own cache line: a state, which is at least 0; or sealed, or untouched, as in
	// fastBucket
	word atomic.Int64
	_    [56]byte
}

// decideWord is decide for a limiter without a fastBucket.
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
	now := l.reading(f.wall) - f.Base
	if uint64(now) > uint64(f.Reach) {
		l.decideLocked(d, cost, charge)
		return
	}
	for {
		w := f.word.Load()
		if w == sealed {
			l.decideLocked(d, cost, charge)
			return
		}
		next, remaining, reset, retry := f.rule.StepWord(&f.WordRange, max(w, 0), now, asked, charge)
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
		l.state = f.rule.Unpack(&f.WordRange, w, l.state)
	}
}

// publishWord puts the state into the word, if it fits: into the sealed word, or into a new one.
func (l *Limiter) publishWord(now int64) {
	r := l.version.word
	if r == nil {
		return
	}
	if f := l.word.Load(); f != nil && f.rule == r && f.Covers(now) {
		w := int64(untouched)
		if len(l.state) > 0 {
			w = r.Pack(&f.WordRange, l.state)
		}
		if w >= 0 || w == untouched {
			f.word.Store(w)
			return
		}
	}
	span, w, ok := rules.NewWord(r, l.state, now)
	if !ok {
		return
	}
	f := &fastWord{WordRange: span, rule: r, wall: r.ReadsWallTime(), size: r.LargestCost()}
	f.word.Store(w)
	l.word.Store(f)
}
