package keyed

import (
	"errors"

	"github.com/weirflow/weir"
)

// together is how many keys of TakeEach are looked up at once: about as many as a core fetches lines of
// memory for at the same time.
const together = 16

// errEachLength is a mistake of the program, and not of its data.
var errEachLength = errors.New("weir: keyed.Limiter.TakeEach: keys and out must have the same length")

// TakeEach decides about cost units for each of the keys, as Take does for one after the other, and
// writes the decision about keys[i] to out[i]. A key that is there twice is charged twice. out must be as
// long as keys; TakeEach panics otherwise.
//
// It is for callers that have many keys at a time, such as a batch of events. In a table that is larger
// than the caches, it takes less than half of the time of single calls, as the states of several keys
// are fetched from memory at once. The keys are charged one by one, and not all or none: use a
// weir.Group for that. It allocates nothing, and is safe for concurrent use.
func (k *Limiter[K]) TakeEach(keys []K, cost int64, out []weir.Decision) {
	if len(keys) != len(out) {
		panic(errEachLength)
	}
	for len(keys) > 0 {
		n := min(len(keys), together)
		k.takeTogether(keys[:n], cost, out[:n])
		keys, out = keys[n:], out[n:]
	}
}

// takeTogether is TakeEach for a few keys, by one reading of the clock. It finds where all of them are before
// it decides about the first.
func (k *Limiter[K]) takeTogether(keys []K, cost int64, out []weir.Decision) {
	var hashes [together]uint64
	var arrays [together]*array[K] // nil for a key that is invalid
	wall := false
	for i, key := range keys {
		h, ok := k.hash(key)
		if !ok {
			continue
		}
		a := k.array(h)
		prefetch(&a.slots[a.home(h)*perLine*a.size])
		hashes[i], arrays[i], wall = h, a, wall || a.wall
	}
	now := k.reading(wall)
	for i, key := range keys {
		out[i] = weir.Decision{}
		a, h := arrays[i], hashes[i]
		switch {
		case a == nil:
			out[i] = k.refused(weir.Never)
			continue
		case a.wall != wall: // the limit is being changed
			out[i] = k.take(key, h, cost, moved)
		default:
			if slot, ok := k.decideIn(a, &out[i], key, h, now, cost, true); !ok {
				out[i] = k.take(key, h, cost, slot)
			}
		}
		if k.top != nil {
			k.top.note(key, h, cost, out[i].Allowed)
		}
	}
}
