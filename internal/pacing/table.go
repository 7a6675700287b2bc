package pacing

import (
	"sync"

	"github.com/weirflow/weir/internal/list"
)

// A Table has a T for each key, such as the name of a host, and no more than a number of them: that
// which was used longest ago goes first. It is safe for concurrent use.
//
// A caller that still uses a removed entry goes on with it; others get a new one.
type Table[T any] struct {
	most  int
	begin func() *T

	mu    sync.Mutex
	kept  map[string]*kept[T]
	order list.List[kept[T]] // that which was used longest ago first
}

// A kept is an entry.
type kept[T any] struct {
	key  string
	of   *T
	node list.Node[kept[T]]
}

// DefaultKeys is how many keys are kept unless the user says otherwise.
const DefaultKeys = 1024

// NewTable returns a table of at most so many keys, or DefaultKeys for 0. begin makes the entry of a new
// key.
func NewTable[T any](most int, begin func() *T) *Table[T] {
	if most <= 0 {
		most = DefaultKeys
	}
	return &Table[T]{most: most, begin: begin, kept: map[string]*kept[T]{}}
}

// Of returns the entry of a key, and begins one if there is none.
func (t *Table[T]) Of(key string) *T {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.kept[key]
	if k == nil {
		k = &kept[T]{key: key, of: t.begin()}
		if len(t.kept) >= t.most {
			oldest := t.order.First()
			t.order.Remove(&oldest.node)
			delete(t.kept, oldest.key)
		}
		t.kept[key] = k
		t.order.PushBack(&k.node, k)
		return k.of
	}
	if t.order.Last() != k {
		t.order.Remove(&k.node)
		t.order.PushBack(&k.node, k)
	}
	return k.of
}

// Look returns the entry of a key, or nil if there is none.
func (t *Table[T]) Look(key string) *T {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.kept[key]; k != nil {
		return k.of
	}
	return nil
}

// Len is how many keys are kept.
func (t *Table[T]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.kept)
}
