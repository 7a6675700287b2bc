package keyed

import (
	"container/heap"
	"math"
	"time"

	"github.com/weirflow/weir"
)

const (
	// eachAdd is how many keys a new one may send off whose time has come, so that a table that is used cleans itself.
	eachAdd = 4
	// eachSweep bounds how long the janitor holds the lock.
	eachSweep = 1000
	// sweepEvery is the least time between two sweeps.
	sweepEvery = time.Second
)

// add keeps a new entry, which reset says is free to go by then. It reports false where there is no room, and when there will be.
func (k *Limiter[K]) add(e *entry[K], now int64, reset time.Duration) (wait time.Duration, ok bool) {
	k.release(now, eachAdd)
	if wait, ok = k.room(now); !ok {
		k.stats.Refused++
		return wait, false
	}
	if len(k.entries) >= k.opts.MaxKeys && !k.forget(now) {
		k.stats.Refused++
		return weir.Never, false
	}
	e.free = later(now, reset)
	k.entries[e.key] = e
	k.peak = max(k.peak, len(k.entries))
	heap.Push(&k.order, e)
	k.wakeJanitor(now)
	return 0, true
}

// room reports whether a new key would be kept, and if not, after what wait.
func (k *Limiter[K]) room(now int64) (time.Duration, bool) {
	if len(k.entries) < k.opts.MaxKeys || k.opts.Full == Forget {
		return 0, true
	}
	k.release(now, math.MaxInt)
	switch {
	case len(k.entries) < k.opts.MaxKeys:
		return 0, true
	case !k.returns:
		return weir.Never, false
	}
	first := k.order[0]
	for k.refresh(first, now); first != k.order[0]; k.refresh(first, now) {
		first = k.order[0] // the one before was used since, and is free later than was known
	}
	if first.free == math.MaxInt64 {
		return weir.Never, false
	}
	return until(now, first.free), false
}

// release lets go, up to a number, of keys whose states equal untouched ones.
func (k *Limiter[K]) release(now int64, most int) {
	if !k.returns {
		return
	}
	for most > 0 && len(k.order) > 0 && k.order[0].free <= now && k.order[0].free != math.MaxInt64 {
		e := k.order[0]
		if free := k.freeAt(e, now); free > now || free == math.MaxInt64 { // at the end of the clock nothing is free for certain
			e.free = free
			heap.Fix(&k.order, 0)
			continue
		}
		k.drop(e)
		k.stats.Released++
		most--
	}
}

// refresh brings an entry's free up to date.
func (k *Limiter[K]) refresh(e *entry[K], now int64) {
	e.free = k.freeAt(e, now)
	heap.Fix(&k.order, e.index)
}

// freeAt is when an entry's state equals an untouched one, as of now. One that is pinned is not free for a while yet.
func (k *Limiter[K]) freeAt(e *entry[K], now int64) int64 {
	var reset time.Duration
	if e.lim != nil {
		reset = e.lim.Peek(0).ResetAfter
	} else {
		reset = k.prepared.Peek(e.state, now, 0).ResetAfter
	}
	if reset == 0 && e.pins > 0 {
		reset = sweepEvery
	}
	return later(now, reset)
}

// forget makes room by letting go of the least restricted key that nobody waits for. It reports false where somebody waits for each.
func (k *Limiter[K]) forget(now int64) bool {
	var kept []*entry[K]
	defer func() {
		for _, e := range kept {
			heap.Push(&k.order, e)
		}
	}()
	for len(k.order) > 0 {
		e := k.order[0]
		known := e.free
		if k.refresh(e, now); e.free != known && k.order[0] != e {
			continue // it was used since, and another is less restricted
		}
		if e.pins == 0 && (e.lim == nil || e.lim.Waiting() == 0) {
			k.drop(e)
			k.stats.Forgotten++
			return true
		}
		heap.Pop(&k.order)
		kept = append(kept, e)
	}
	return false
}

// drop takes an entry out.
func (k *Limiter[K]) drop(e *entry[K]) {
	heap.Remove(&k.order, e.index)
	delete(k.entries, e.key)
}

// wakeJanitor sets the janitor's timer for when the first key may be let go, unless it is set.
func (k *Limiter[K]) wakeJanitor(now int64) {
	if k.waking || k.closed || !k.returns || len(k.order) == 0 || k.order[0].free == math.MaxInt64 {
		return
	}
	k.waking = true
	d := max(until(now, k.order[0].free), sweepEvery)
	if k.janitor == nil {
		k.janitor = k.timers(d, k.sweep)
	} else {
		k.janitor.Reset(d)
	}
}

// sweep is what the janitor does: it gives the memory of keys back that nobody asks about any more.
func (k *Limiter[K]) sweep() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waking = false
	now := k.now()
	k.release(now, eachSweep)
	if len(k.entries) < k.peak/8 { // a map never gives memory back by itself
		entries := make(map[K]*entry[K], len(k.entries))
		for key, e := range k.entries {
			entries[key] = e
		}
		k.entries, k.peak = entries, len(entries)
	}
	k.wakeJanitor(now)
}

// Close ends the janitor, which lets go of idle keys between calls. Decisions go on, and clean up as they go.
func (k *Limiter[K]) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if k.janitor != nil {
		k.janitor.Stop()
	}
	return nil
}

// later is the time d after now, or the end of the clock.
func later(now int64, d time.Duration) int64 {
	if t := now + int64(d); t >= now {
		return t
	}
	return math.MaxInt64
}

// until is how long after now a time is: 0 where it is past, and the longest duration where it does not fit.
func until(now, t int64) time.Duration {
	switch d := t - now; {
	case t <= now:
		return 0
	case d < 0:
		return math.MaxInt64
	default:
		return time.Duration(d)
	}
}

// byRelease orders entries by when they are free to go.
type byRelease[K comparable] []*entry[K]

func (h byRelease[K]) Len() int           { return len(h) }
func (h byRelease[K]) Less(i, j int) bool { return h[i].free < h[j].free }
func (h byRelease[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *byRelease[K]) Push(x any) {
	e := x.(*entry[K])
	e.index = len(*h)
	*h = append(*h, e)
}
func (h *byRelease[K]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
