package keyed

import "github.com/weirflow/weir"

// A Hold is a place held for a key, like weir.Hold. It is a plain value; copies are the same hold.
// The zero Hold holds nothing, and its methods do nothing. Every caller that enters must call Done.
type Hold[K comparable] struct {
	held weir.Hold
	x    *state[K]
}

// Done gives the place back, as weir.Hold.Done does: the first call wins, and it does nothing after
// the hold has expired. The last hold of a key frees the key's memory.
func (h Hold[K]) Done(o weir.Outcome) {
	if h.x == nil {
		return
	}
	h.held.Done(o)
	s := h.x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(h.x)
}

// Fence returns a fencing token, as weir.Hold.Fence does: a number larger than that of every
// earlier hold of the key, even if the key was removed in between.
func (h Hold[K]) Fence() int64 { return h.held.Fence() }

// Extend makes the hold last for MaxHold from now, and reports whether the place is still held, as
// weir.Hold.Extend does.
func (h Hold[K]) Extend() bool {
	if !h.held.Extend() {
		return false
	}
	s := h.x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.x.kept {
		h.x.note()
	}
	return true
}
