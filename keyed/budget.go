package keyed

import (
	"math"
	"sync/atomic"
)

// A budget is what outstanding reservations may take of Options.MaxBytes, for all keys of a table.
type budget struct{ left atomic.Int64 }

// take takes bytes out of the budget. It reports false, and takes nothing, if too few are left.
func (b *budget) take(bytes int64) bool {
	if b.left.Add(-bytes) >= 0 {
		return true
	}
	b.left.Add(bytes)
	return false
}

// A keyBudget is what one key has taken of its table's budget. It is the outstanding.Budget of the
// key's limiter, and counts for as long as the table keeps the limiter.
type keyBudget struct {
	table *budget
	taken atomic.Int64 // far below 0 once it is closed
}

const closedBudget = math.MinInt64 / 2

// Take implements outstanding.Budget.
func (b *keyBudget) Take(bytes int) bool {
	n := int64(bytes)
	if !b.table.take(n) {
		return false
	}
	if b.taken.Add(n) < 0 { // closed, perhaps just now
		b.table.left.Add(n)
		return false
	}
	return true
}

// Return implements outstanding.Budget.
func (b *keyBudget) Return(bytes int) {
	if n := int64(bytes); b.taken.Add(-n) >= 0 {
		b.table.left.Add(n)
	}
}

// close returns everything to the table. The callers that still hold reservations of an evicted key
// keep its limiter, which then cannot grow.
func (b *keyBudget) close() {
	if n := b.taken.Swap(closedBudget); n > 0 {
		b.table.left.Add(n)
	}
}
