package weirtest

import "slices"

// keyClock is the clock of a key in a store. It goes on where the store's clock steps back: by how
// far that is behind. So nothing waits for the length of the step, and nothing is counted twice.
//
// Otherwise it is the store's clock. It is so again when that reads no less than what the key's clock
// had reached, as when it swings back. A smaller step back that is remembered is preferred to a
// larger one: the time of a key is never ahead of what a clock that swings between known times has
// shown.
type keyClock struct {
	behind []int64 // how far the store's clock is behind, at most two of them, the larger ones last
	seen   *int64  // the reading of the latest charge, where the state is in debt or promised ahead
}

// mostBehind is how many steps back are remembered.
const mostBehind = 2

// time returns the time of the key at a reading of the store's clock. Where that has stepped back, it
// is noted.
func (v *Versions) time(reading int64) int64 {
	reached, ok := v.reached()
	if !ok {
		v.clock = keyClock{}
		return reading
	}
	if v.clock.seen != nil {
		reached = *v.clock.seen
	}
	if reading >= reached {
		if v.clock.behind != nil {
			v.clock.behind = nil
			v.note(reading)
		}
		return reading
	}
	for i, s := range v.clock.behind {
		if now := reading + s; now >= reached {
			if i+1 < len(v.clock.behind) {
				v.clock.behind = slices.Clone(v.clock.behind[:i+1])
				v.note(now)
			}
			return now
		}
	}
	v.clock.behind = append(slices.Clone(v.clock.behind), reached-reading)
	if n := len(v.clock.behind); n > mostBehind {
		v.clock.behind = v.clock.behind[n-mostBehind:]
	}
	v.note(reached)
	return reached
}

// reached returns a time that the key's clock had reached, if it is in use.
func (v *Versions) reached() (t int64, ok bool) {
	for _, k := range v.kept {
		if at := k.algorithm.reached(); at != nil {
			t, ok = max(t, clamp(at)), true
		}
		if len(v.kept) > 1 {
			t = max(t, k.used)
		}
	}
	return t, ok
}

// store keeps the states that a call leaves behind.
func (v *Versions) store(kept []version, now int64) {
	v.kept = kept
	v.note(now)
}

// note remembers the time where the states do not show that it was reached, and nothing more: what
// they show may be debt, or a promise.
func (v *Versions) note(now int64) {
	v.clock.seen = nil
	if t, ok := v.reached(); ok && t > now {
		v.clock.seen = &now
	}
}
