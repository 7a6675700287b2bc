package weirtest

import (
	"container/heap"
	"encoding/binary"
	"fmt"

	"github.com/weirflow/weir"
)

// receipts holds the charges of a Store that may be settled. The zero value is ready to use.
type receipts struct {
	serial   uint64
	bySerial map[uint64]*kept
	ends     receiptHeap
}

// kept is the charge of a receipt.
type kept struct {
	of     *stored
	limit  weir.Limit // at the time of the charge
	r      weir.Reservation
	cost   int64
	serial uint64
	ends   int64 // when nothing can be given back any more
	index  int   // in the heap
}

// keep stores a charge and returns its receipt. The receipt also contains the cost, because a
// higher actual cost is charged even when nothing can be given back any more.
func (s *receipts) keep(r *kept) weir.Receipt {
	s.serial++
	r.serial = s.serial
	if r.cost > 0 {
		s.remember(r)
	}
	text := binary.BigEndian.AppendUint64([]byte("weirtest"), r.serial)
	return weir.Receipt(binary.BigEndian.AppendUint64(text, uint64(r.cost)))
}

func (s *receipts) remember(r *kept) {
	if len(s.ends) >= storeMost {
		s.forget(s.ends[0])
	}
	if s.bySerial == nil {
		s.bySerial = map[uint64]*kept{}
	}
	s.bySerial[r.serial] = r
	heap.Push(&s.ends, r)
}

// take removes a receipt and returns its charge and cost. The charge is nil if nothing can be given
// back.
func (s *receipts) take(text weir.Receipt) (cost int64, r *kept, err error) {
	const length = len("weirtest") + 16
	if len(text) != length || text[:8] != "weirtest" {
		return 0, nil, fmt.Errorf("weirtest: %q is no receipt of this store", text)
	}
	if r = s.bySerial[binary.BigEndian.Uint64([]byte(text[8:]))]; r != nil {
		s.forget(r)
	}
	return int64(binary.BigEndian.Uint64([]byte(text[16:]))), r, nil
}

// forget removes a receipt.
func (s *receipts) forget(r *kept) {
	delete(s.bySerial, r.serial)
	heap.Remove(&s.ends, r.index)
}

// receiptHeap is a heap with the receipt that ends first on top.
type receiptHeap []*kept

func (h receiptHeap) Len() int           { return len(h) }
func (h receiptHeap) Less(i, j int) bool { return h[i].ends < h[j].ends }
func (h receiptHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *receiptHeap) Push(x any) {
	r := x.(*kept)
	r.index = len(*h)
	*h = append(*h, r)
}
func (h *receiptHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return r
}
