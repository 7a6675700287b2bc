package keyed

import (
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
)

// A Saved is the state of a key, as it is under a limit. It holds readings of the limiter's clock:
// to restore it in another process, both need a clock that goes on there, like Unix time.
type Saved struct {
	Limit weir.Limit // of the limiter, of the key's Parameters or of its Override
	State []int64
}

// States yields the state of each key, as Keys does. It yields nothing unless Options.Keys is set.
// Charges of reservations that are outstanding count as used.
func (k *Limiter[K]) States() iter.Seq2[K, Saved] {
	return func(yield func(K, Saved) bool) {
		type kept struct {
			key   K
			saved Saved
		}
		var copied []kept
		for h := uint64(0); k.opts.Keys; {
			s := k.lockSegment(h)
			copied = copied[:0]
			a := s.array
			g := grip[K]{k: k, s: s}
			for g.slot = 0; g.slot < len(a.slots); g.slot += a.size {
				if atomic.LoadInt64(&a.slots[g.slot])&used == 0 {
					continue
				}
				var ok bool
				if g.head, ok = a.lockUsed(g.slot); !ok {
					continue
				}
				copied = append(copied, kept{a.keys[g.slot/a.size], g.saved()})
				a.unlock(g.slot, g.head)
			}
			h = (s.prefix + 1) << (64 - a.shift)
			s.mu.Unlock()
			for _, c := range copied {
				if !yield(c.key, c.saved) {
					return
				}
			}
			if h == 0 {
				return
			}
		}
	}
}

// Move is States for a table that goes on elsewhere, in another process: after it, no key of this limiter
// may be charged any more. Reservations are settled where they were made, so settled is called for each
// that is settled after Move has begun, with what that changes: how much more is charged, or below 0 how
// much is given back. No reservation is settled while Move runs, and yield must settle none. It yields
// nothing unless Options.Keys is set.
//
// A charge that waits in a queue (Join, Wait, or Charge.Wait) is not yielded before its turn, and settled is
// not called for it.
func (k *Limiter[K]) Move(settled func(key K, difference int64), yield func(K, Saved) bool) {
	k.moving.Lock()
	defer k.moving.Unlock()
	k.settled = settled
	k.States()(yield)
}

// saved returns a copy of the key's state.
func (g *grip[K]) saved() Saved {
	if x := g.entry(); x != nil && x.lim != nil {
		limit, state := x.lim.State()
		return Saved{limit, state}
	}
	return Saved{g.prepared().Limit(), append([]int64(nil), g.state()...)}
}

var errRestored = errors.New("weir: keyed.Restore: the key has a state already")

// Restore gives a key that has no state the one that it had in another limiter. It is converted to
// this limit, as SetLimit does. The error says why that is not possible.
func (k *Limiter[K]) Restore(key K, s Saved) error { return k.RestoreBy(nil, key, s) }

// RestoreBy is Restore with the parameters of the key, as a Charge has them; nil for those of the
// limiter. The state is converted to them: under a smaller limit than it was saved under, it can lose what
// was used beyond.
func (k *Limiter[K]) RestoreBy(by *Parameters, key K, s Saved) error {
	h, ok := k.hash(key)
	if !ok {
		return ErrKey
	}
	p, err := weir.Prepare(s.Limit, time.Nanosecond)
	if err != nil {
		return err
	}
	if !p.Valid(s.State) {
		return fmt.Errorf("weir: keyed.Restore: %v is not a state of a %s", s.State, weir.Algorithm(s.Limit))
	}
	g := k.grip(key, h)
	defer g.release()
	if g.slot >= 0 {
		return errRestored
	}
	g.adopt(by)
	to := g.prepared()
	state := p.Convert(append([]int64(nil), s.State...), k.reading(p.Wall()), to, g.now)
	d := to.Peek(state, g.now, 0)
	if len(state) == 0 || d.ResetAfter == 0 {
		return nil // it has become idle
	}
	if !g.room() {
		if _, ok := g.makeRoom(); !ok {
			return ErrFull
		}
		if g.slot >= 0 { // another call made it meanwhile
			return errRestored
		}
		g.adopt(by)
	}
	g.insert(state, later(g.now, d.ResetAfter))
	return nil
}
