// Package heap is a priority queue whose items know their place in it: any of them can be moved or
// removed without a search.
package heap

// A Heap gives out the item with the smallest key first. Of items with equal keys, the one that was
// added first comes first. The zero value is empty. It is not safe for concurrent use.
//
// It is a binary heap. The keys are stored in it and not in the items, so that comparing two items
// loads neither of them. Adding allocates only when the heap grows beyond its largest size so far.
type Heap[T any] struct {
	entries []entry[T]
	serial  uint64 // of the last item added
}

// A Node is an item's place in a Heap. The zero value is in no heap.
type Node[T any] struct {
	index int
	item  *T // nil in no heap
}

type entry[T any] struct {
	key    int64
	serial uint64
	node   *Node[T]
}

func (e *entry[T]) before(other *entry[T]) bool {
	return e.key < other.key || e.key == other.key && e.serial < other.serial
}

// Len returns how many items the heap has.
func (h *Heap[T]) Len() int { return len(h.entries) }

// First returns the item with the smallest key, and the key. It returns nil if the heap is empty.
func (h *Heap[T]) First() (item *T, key int64) {
	if len(h.entries) == 0 {
		return nil, 0
	}
	return h.entries[0].node.item, h.entries[0].key
}

// Due returns the first item if its key is at most key, and otherwise nil.
func (h *Heap[T]) Due(key int64) *T {
	if len(h.entries) == 0 || h.entries[0].key > key {
		return nil
	}
	return h.entries[0].node.item
}

// At returns an item and its key, for i from 0 to Len()-1. Small keys are near the front, though
// not in order.
func (h *Heap[T]) At(i int) (item *T, key int64) {
	return h.entries[i].node.item, h.entries[i].key
}

// Key returns the key of an item of this heap.
func (h *Heap[T]) Key(n *Node[T]) int64 { return h.entries[n.index].key }

// In reports whether the item is in a heap.
func (n *Node[T]) In() bool { return n.item != nil }

// Push adds an item. n is its Node, which must be in no heap.
func (h *Heap[T]) Push(n *Node[T], item *T, key int64) {
	if n.item != nil {
		panic("heap: the item is in a heap")
	}
	h.serial++
	n.item = item
	h.entries = append(h.entries, entry[T]{})
	h.rise(len(h.entries)-1, entry[T]{key, h.serial, n})
}

// Move changes the key of an item of this heap. The item keeps its rank among those with equal
// keys: it still counts as added when it was.
func (h *Heap[T]) Move(n *Node[T], key int64) {
	e := h.entries[n.index]
	e.key = key
	h.place(n.index, e)
}

// Remove removes an item of this heap.
func (h *Heap[T]) Remove(n *Node[T]) {
	if n.item == nil {
		panic("heap: the item is in no heap")
	}
	i, last := n.index, len(h.entries)-1
	moved := h.entries[last]
	h.entries[last] = entry[T]{}
	h.entries = h.entries[:last]
	if i != last {
		h.place(i, moved)
	}
	*n = Node[T]{}
}

// place puts an entry at i, or above or below if it does not belong there.
func (h *Heap[T]) place(i int, e entry[T]) {
	if i > 0 && e.before(&h.entries[(i-1)/2]) {
		h.rise(i, e)
	} else {
		h.sink(i, e)
	}
}

// rise puts an entry at i, or above.
func (h *Heap[T]) rise(i int, e entry[T]) {
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&h.entries[parent]) {
			break
		}
		h.set(i, h.entries[parent])
		i = parent
	}
	h.set(i, e)
}

// sink puts an entry at i, or below.
func (h *Heap[T]) sink(i int, e entry[T]) {
	for {
		child := 2*i + 1
		if child >= len(h.entries) {
			break
		}
		if right := child + 1; right < len(h.entries) && h.entries[right].before(&h.entries[child]) {
			child = right
		}
		if !h.entries[child].before(&e) {
			break
		}
		h.set(i, h.entries[child])
		i = child
	}
	h.set(i, e)
}

func (h *Heap[T]) set(i int, e entry[T]) {
	h.entries[i] = e
	e.node.index = i
}
