package policy

import (
	"sync"
	"time"

	"github.com/weirflow/weir/internal/list"
)

// maxWarned is how many keys a limit remembers that it has warned of; the one that was warned of first is
// forgotten, and may be warned of again.
const maxWarned = 16384

// warnedKeys remembers the keys that a limit has warned of, until what was used is back. It is for costs
// that are known only afterwards: what is used then goes up and down with the estimates of requests in
// flight, so that it reaches the limit's share more than once, or while no request is decided.
type warnedKeys struct {
	mu    sync.Mutex
	keys  map[string]*warnedKey
	order list.List[warnedKey] // the last one is in front
}

type warnedKey struct {
	node  list.Node[warnedKey]
	key   string
	until int64
}

// add remembers a key for a time, and reports whether it was not remembered.
func (w *warnedKeys) add(key string, now int64, d time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.keys[key]
	switch {
	case k != nil && now < k.until:
		return false
	case k != nil:
		w.order.Remove(&k.node)
	case len(w.keys) == maxWarned:
		first := w.order.Last()
		w.order.Remove(&first.node)
		delete(w.keys, first.key)
	}
	k = &warnedKey{key: key, until: now + int64(d)}
	if k.until < now {
		k.until = int64(^uint64(0) >> 1)
	}
	if w.keys == nil {
		w.keys = map[string]*warnedKey{}
	}
	w.keys[key] = k
	w.order.PushFront(&k.node, k)
	return true
}
