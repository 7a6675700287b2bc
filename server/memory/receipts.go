package memory

import (
	"container/list"
	"crypto/rand"
	"sync"

	"github.com/weirflow/weir"
)

// receipts are the charges that may be settled. If there are too many, the oldest stays charged. Most
// charges that are no estimates are never settled, so estimates have a bound of their own.
type receipts struct {
	mu        sync.Mutex
	byID      map[weir.Receipt]*receipt
	estimates list.List // of *receipt, oldest first
	others    list.List
	most      int // of each
}

// receipt is a charge that may be settled.
type receipt struct {
	id     weir.Receipt
	of     id
	charge charge
	in     *list.List
	place  *list.Element
}

// keep makes a receipt.
func (t *receipts) keep(of *weir.Charge, c charge) weir.Receipt {
	r := &receipt{id: weir.Receipt(rand.Text()), of: id{of.Name, of.Key}, charge: c, in: &t.others}
	if of.Estimate {
		r.in = &t.estimates
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.in.Len() >= t.most {
		oldest := r.in.Front().Value.(*receipt)
		t.remove(oldest)
		oldest.charge.keep()
	}
	t.byID[r.id] = r
	r.place = r.in.PushBack(r)
	return r.id
}

// take removes a receipt of a key; nil for none.
func (t *receipts) take(of id, receipt weir.Receipt) *receipt {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.byID[receipt]
	if r == nil || r.of != of {
		return nil
	}
	t.remove(r)
	return r
}

func (t *receipts) remove(r *receipt) {
	r.in.Remove(r.place)
	delete(t.byID, r.id)
}
