package outstanding

import "unsafe"

// A Budget is memory that several states share for their outstanding reservations, in bytes. Its
// methods may be called under the locks of those states. A nil Budget is unlimited.
type Budget interface {
	// Take takes bytes out of the budget. It reports false, and takes nothing, if too few are left.
	Take(bytes int) bool
	// Return gives bytes back that were taken.
	Return(bytes int)
}

// FreeEntries is how many entries each list has without asking its Budget.
const FreeEntries = 4

// grow makes room for one more entry. It reports false if the list already has as many as it may,
// or if the Budget refuses more. The list is then full: its length is its capacity, or the most.
func grow[T any](list []T, most int, b Budget) ([]T, bool) {
	switch {
	case len(list) >= most:
		return list, false
	case len(list) < cap(list):
		return list, true
	}
	size := min(max(2*cap(list), FreeEntries), most)
	if bytes := charged[T](size) - charged[T](cap(list)); b != nil && bytes > 0 && !b.Take(bytes) {
		return list, false
	}
	return append(make([]T, 0, size), list...), true
}

// emptied empties a list. It keeps the memory of at most so many entries, and with a Budget only
// those that were never taken from it.
func emptied[T any](list []T, keep int, b Budget) []T {
	if b != nil {
		if bytes := charged[T](cap(list)); bytes > 0 {
			b.Return(bytes)
		}
		keep = FreeEntries
	}
	if cap(list) > keep {
		return nil
	}
	return list[:0]
}

// charged is how many bytes of a list's memory are taken from its Budget.
func charged[T any](capacity int) int {
	return max(0, capacity-FreeEntries) * int(unsafe.Sizeof(*new(T)))
}
