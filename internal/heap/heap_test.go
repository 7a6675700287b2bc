package heap

import (
	"cmp"
	"slices"
	"testing"

	"github.com/weirflow/weir/internal/seeds"
)

type item struct {
	number int
	node   Node[item]

	key   int64 // in the model
	added int
}

// TestSameAsSorting makes random changes to a heap and to a slice, which it sorts after each change.
func TestSameAsSorting(t *testing.T) {
	random := seeds.Of(t.Name())
	for range 200 {
		var h Heap[item]
		var model []*item
		items := make([]item, 20)
		for i := range items {
			items[i].number = i
		}
		for step := range 200 {
			i := &items[random.IntN(len(items))]
			key := random.Int64N(10) // so few keys that many are equal
			switch in := i.node.In(); {
			case in != slices.Contains(model, i):
				t.Fatalf("In of %d is %v", i.number, in)
			case !in:
				i.key, i.added = key, step
				h.Push(&i.node, i, key)
				model = append(model, i)
			case random.IntN(2) == 0:
				i.key = key
				h.Move(&i.node, key)
			default:
				h.Remove(&i.node)
				model = slices.DeleteFunc(model, func(m *item) bool { return m == i })
			}
			slices.SortFunc(model, func(a, b *item) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.added, b.added)) })
			compare(t, &h, model)
		}
		for ; len(model) > 0; model = model[1:] {
			compare(t, &h, model)
			h.Remove(&model[0].node)
		}
	}
}

func compare(t *testing.T, h *Heap[item], model []*item) {
	t.Helper()
	var all []*item
	for i := range h.Len() {
		it, key := h.At(i)
		if key != it.key || h.Key(&it.node) != it.key {
			t.Fatalf("the key of %d is %d, %d; want %d", it.number, key, h.Key(&it.node), it.key)
		}
		all = append(all, it)
	}
	if len(all) != len(model) || slices.ContainsFunc(model, func(m *item) bool { return !slices.Contains(all, m) }) {
		t.Fatalf("the heap has %d items, want %d", len(all), len(model))
	}
	first, key := h.First()
	switch {
	case len(model) == 0 && (first != nil || h.Due(1<<60) != nil):
		t.Fatal("an empty heap has a first item")
	case len(model) == 0:
	case first != model[0] || key != model[0].key:
		t.Fatalf("the first is %d, with key %d; want %d, with key %d", first.number, key, model[0].number, model[0].key)
	case h.Due(key) != first || h.Due(key-1) != nil:
		t.Fatalf("Due of %d and below: %v, %v", key, h.Due(key), h.Due(key-1))
	}
}

func TestMisuse(t *testing.T) {
	var h Heap[item]
	var i item
	panics := func(f func()) (did bool) {
		defer func() { did = recover() != nil }()
		f()
		return false
	}
	if !panics(func() { h.Remove(&i.node) }) {
		t.Error("an item in no heap is removed")
	}
	h.Push(&i.node, &i, 1)
	if !panics(func() { h.Push(&i.node, &i, 2) }) || h.Len() != 1 {
		t.Error("an item is added twice")
	}
}

func TestNoAllocations(t *testing.T) {
	var h Heap[item]
	items := make([]item, 100)
	fill := func() {
		for i := range items {
			h.Push(&items[i].node, &items[i], int64(i*37%100))
		}
		for h.Len() > 0 {
			first, _ := h.First()
			h.Remove(&first.node)
		}
	}
	fill()
	if n := testing.AllocsPerRun(100, fill); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
