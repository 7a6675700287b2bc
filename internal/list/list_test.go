package list

import (
	"slices"
	"testing"

	"github.com/weirflow/weir/internal/seeds"
)

type item struct {
	number int
	node   Node[item]
}

// forward and backward return all items by their numbers: along the next links, and along the prev
// links.
func forward(l *List[item]) (all []int) {
	for i := l.First(); i != nil; i = i.node.Next() {
		all = append(all, i.number)
	}
	return all
}

func backward(l *List[item]) (all []int) {
	for i := l.Last(); i != nil; i = i.node.Prev() {
		all = append(all, i.number)
	}
	slices.Reverse(all)
	return all
}

// TestSameAsSlice makes random changes to a list and to a slice.
func TestSameAsSlice(t *testing.T) {
	random := seeds.Of(t.Name())
	for range 200 {
		var l List[item]
		var model []*item
		items := make([]item, 12)
		for i := range items {
			items[i].number = i
		}
		for range 100 {
			i := &items[random.IntN(len(items))]
			place := slices.Index(model, i)
			if i.node.Listed() != (place >= 0) {
				t.Fatalf("Listed of %d is %v; the list should be %v", i.number, i.node.Listed(), forward(&l))
			}
			switch at := random.IntN(len(model) + 1); {
			case place >= 0:
				l.Remove(&i.node)
				model = slices.Delete(model, place, place+1)
			case random.IntN(3) == 0:
				l.PushBack(&i.node, i)
				model = append(model, i)
			case at == 0:
				l.PushFront(&i.node, i)
				model = slices.Insert(model, 0, i)
			default:
				l.InsertBehind(&model[at-1].node, &i.node, i)
				model = slices.Insert(model, at, i)
			}
			var want []int
			for _, i := range model {
				want = append(want, i.number)
			}
			if got := forward(&l); !slices.Equal(got, want) || !slices.Equal(backward(&l), want) || l.Len() != len(want) {
				t.Fatalf("the list is %v, backward %v, of length %d; want %v", got, backward(&l), l.Len(), want)
			}
		}
	}
}

// TestStackSameAsSlice makes random changes to a stack and to a slice.
func TestStackSameAsSlice(t *testing.T) {
	random := seeds.Of(t.Name())
	var s Stack[item]
	var model []*item
	items := make([]item, 12)
	for range 5000 {
		if i := &items[random.IntN(len(items))]; !i.node.Listed() {
			s.Push(&i.node, i)
			model = append(model, i)
		} else {
			last := model[len(model)-1]
			if got := s.Pop(); got != last || got.node.Listed() {
				t.Fatalf("Pop returns %v, want %v", got, last)
			}
			model = model[:len(model)-1]
		}
		n := len(model)
		for i := s.Top(); i != nil; i = i.node.Next() {
			if n--; n < 0 || i != model[n] {
				t.Fatalf("item %d from the bottom is %v", n, i)
			}
		}
		if n != 0 || s.Len() != len(model) {
			t.Fatalf("%d items are missing, and Len is %d of %d", n, s.Len(), len(model))
		}
	}
	for len(model) > 0 {
		s.Pop()
		model = model[1:]
	}
	if s.Pop() != nil || s.Top() != nil {
		t.Error("an empty stack has an item")
	}
}

func TestMisuse(t *testing.T) {
	var l List[item]
	var i item
	panics := func(f func()) (did bool) {
		defer func() { did = recover() != nil }()
		f()
		return false
	}
	if !panics(func() { l.Remove(&i.node) }) {
		t.Error("an item in no list is removed")
	}
	l.PushBack(&i.node, &i)
	var s Stack[item]
	for what, add := range map[string]func(){
		"PushFront": func() { l.PushFront(&i.node, &i) },
		"PushBack":  func() { l.PushBack(&i.node, &i) },
		"Push":      func() { s.Push(&i.node, &i) },
	} {
		if !panics(add) || l.Len() != 1 || s.Len() != 0 {
			t.Errorf("%s adds an item twice", what)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	var l List[item]
	var a, b item
	var s Stack[item]
	if n := testing.AllocsPerRun(100, func() {
		s.Push(&a.node, &a)
		s.Pop()
		l.PushBack(&a.node, &a)
		l.PushFront(&b.node, &b)
		l.Remove(&a.node)
		l.Remove(&b.node)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
