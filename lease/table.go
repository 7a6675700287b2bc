package lease

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

// A table finds the entries of keys. A lookup takes no lock; put and remove need the store's.
type table struct {
	seed    maphash.Seed
	buckets []atomic.Pointer[entry]
	all     []*entry // in no order
}

// newTable returns a table for at most so many keys.
func newTable(most int) table {
	return table{seed: maphash.MakeSeed(), buckets: make([]atomic.Pointer[entry], 1<<bits.Len(uint(most-1)))}
}

func (t *table) hash(name, key string) uint64 {
	return maphash.String(t.seed, key) ^ bits.RotateLeft64(maphash.String(t.seed, name), 32)
}

// find returns a key's entry, or nil.
func (t *table) find(name, key string) *entry {
	h := t.hash(name, key)
	for e := t.buckets[h&uint64(len(t.buckets)-1)].Load(); e != nil; e = e.after.Load() {
		if e.hash == h && e.key == key && e.name == name {
			return e
		}
	}
	return nil
}

// put adds an entry that is not there.
func (t *table) put(e *entry) {
	e.hash = t.hash(e.name, e.key)
	b := &t.buckets[e.hash&uint64(len(t.buckets)-1)]
	e.after.Store(b.Load())
	b.Store(e)
	e.place = len(t.all)
	t.all = append(t.all, e)
}

// remove removes an entry that is there. A lookup that has reached it still finds the entries after
// it.
func (t *table) remove(e *entry) {
	at := &t.buckets[e.hash&uint64(len(t.buckets)-1)]
	for at.Load() != e {
		at = &at.Load().after
	}
	at.Store(e.after.Load())
	last := len(t.all) - 1
	moved := t.all[last]
	t.all[e.place], moved.place = moved, e.place
	t.all[last] = nil
	t.all = t.all[:last]
}
