package keyed

import "github.com/weirflow/weir"

// A Hold is a place held for a key, as weir.Hold. It is a plain value; copies are the same hold. The zero Hold holds nothing, and all its
// methods are harmless. Whoever enters calls Done, whatever happens.
type Hold[K comparable] struct {
	held weir.Hold
	x    *state[K]
}

// Done leaves the place, as weir.Hold.Done does: the first wins, and it does nothing after the hold has expired. With the last hold of a key
// its memory goes.
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

// Fence returns a number that is larger than that of each hold given before for the key, as weir.Hold.Fence does: also where the key was
// let go in between.
func (h Hold[K]) Fence() int64 { return h.held.Fence() }

// Extend makes the hold last for MaxHold from now, and reports whether the place is still held, as weir.Hold.Extend does.
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
