// Package list has intrusive lists and stacks: the links are fields of the items, so adding an item
// allocates nothing, and removing one needs no search.
package list

// A List is a doubly linked list. Each of its items has a Node as a field. The zero value is empty.
// It is not safe for concurrent use.
type List[T any] struct {
	first, last *Node[T]
	n           int
}

// A Node holds the links of an item. The zero value is in no list. An item that can be in several
// lists at a time has a Node for each of them.
type Node[T any] struct {
	next, prev *Node[T]
	item       *T // nil: the Node is in no list
}

// Len returns how many items the list has.
func (l *List[T]) Len() int { return l.n }

// First returns the first item, or nil.
func (l *List[T]) First() *T { return l.first.get() }

// Last returns the last item, or nil.
func (l *List[T]) Last() *T { return l.last.get() }

// Next returns the next item, or nil. It returns nil for an item in no list.
func (n *Node[T]) Next() *T { return n.next.get() }

// Prev returns the previous item, or nil. It returns nil for an item in no list.
func (n *Node[T]) Prev() *T { return n.prev.get() }

// Listed reports whether the item is in a list.
func (n *Node[T]) Listed() bool { return n.item != nil }

func (n *Node[T]) get() *T {
	if n == nil {
		return nil
	}
	return n.item
}

// PushBack appends an item. n is its Node, which must be in no list.
func (l *List[T]) PushBack(n *Node[T], item *T) {
	if n.item != nil {
		panic("list: the item is in a list")
	}
	n.prev, n.item = l.last, item
	if l.last != nil {
		l.last.next = n
	} else {
		l.first = n
	}
	l.last = n
	l.n++
}

// PushFront adds an item before all others. n is its Node, which must be in no list.
func (l *List[T]) PushFront(n *Node[T], item *T) { l.InsertBehind(nil, n, item) }

// InsertBehind adds an item behind the one whose Node is at, and before all others if at is nil. n
// is the item's Node, which must be in no list.
func (l *List[T]) InsertBehind(at, n *Node[T], item *T) {
	if n.item != nil {
		panic("list: the item is in a list")
	}
	next := l.first
	if at != nil {
		next, at.next = at.next, n
	} else {
		l.first = n
	}
	if next != nil {
		next.prev = n
	} else {
		l.last = n
	}
	n.prev, n.next, n.item = at, next, item
	l.n++
}

// Remove removes an item of this list.
func (l *List[T]) Remove(n *Node[T]) {
	if n.item == nil {
		panic("list: the item is in no list")
	}
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		l.first = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	} else {
		l.last = n.prev
	}
	*n = Node[T]{}
	l.n--
}

// A Stack is a singly linked list, last in, first out: a free list, say. It takes less time than a
// List. The zero value is empty. It is not safe for concurrent use.
type Stack[T any] struct {
	top *Node[T]
	n   int
}

// Len returns how many items the stack has.
func (s *Stack[T]) Len() int { return s.n }

// Top returns the item that Pop would return, or nil. Next of an item leads to the item below it.
func (s *Stack[T]) Top() *T { return s.top.get() }

// Push adds an item. n is its Node, which must be in no list and no stack.
func (s *Stack[T]) Push(n *Node[T], item *T) {
	if n.item != nil {
		panic("list: the item is in a list")
	}
	n.next, n.item = s.top, item
	s.top = n
	s.n++
}

// Pop removes the item that was added last, and returns it. It returns nil if there is none.
func (s *Stack[T]) Pop() *T {
	n := s.top
	if n == nil {
		return nil
	}
	item := n.item
	s.top, n.next, n.item = n.next, nil, nil
	s.n--
	return item
}
