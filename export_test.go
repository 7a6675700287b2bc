package weir

import (
	"math/big"

	"github.com/weirflow/weir/internal/rules"
)

// StateOf returns Z, the time at which a bucket is full, in exact clock units; nil for a limiter
// that was never used.
func StateOf(l *Limiter) (z *big.Rat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unpublish()
	defer func() {
		if l.queue.waiters.Len() == 0 && l.memory == nil {
			l.publish(l.now())
		}
	}()
	if len(l.state) == 0 {
		return nil
	}
	n := l.version.bucket.TicksPerUnit()
	return new(big.Rat).Add(new(big.Rat).SetInt64(l.state[0]), big.NewRat(l.state[1], n))
}

// plain hides the optional interfaces of a rule.
type plain struct{ rules.Rule }

// UnderLock makes the next call of a limiter use the lock and the general path of its rule, and not
// the fast word. If the rule has a DirectRule, the limit must not be changed afterwards.
func UnderLock(l *Limiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fast.Store(nil)
	l.word.Store(nil)
	if l.version.direct != nil {
		l.version.rule, l.version.direct = plain{l.version.rule}, nil
	}
}

// OnWord reports whether the next Take is decided on the word, without the lock.
func OnWord(l *Limiter) bool {
	if f := l.fast.Load(); f != nil {
		return f.word.Load() != sealed
	}
	f := l.word.Load()
	return f != nil && f.word.Load() != sealed
}

// Contact returns the state after the first call of a limit.
func Contact(p Prepared, state []int64, now int64) []int64 {
	if len(state) > 0 {
		return state
	}
	return p.r.FirstCall(nil, now)
}

// Fits reports whether a limit can ever admit a cost.
func Fits(p Prepared, cost int64) bool { return cost <= p.r.LargestCost() }
