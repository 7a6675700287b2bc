package weirtest

import (
	"encoding/binary"
	"fmt"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/heap"
)

// receipts holds the charges of a Store that may be settled. The zero value is ready to use.
type receipts struct {
	serial   uint64
	bySerial map[uint64]*kept
	ends     heap.Heap[kept] // by when nothing can be given back any more
}

// kept is the charge of a receipt.
type kept struct {
	of     *stored
	charge sharedCharge
	serial uint64
	node   heap.Node[kept]
}

// keep stores a charge and returns its receipt. The receipt also contains the cost, because a
// higher actual cost is charged even when nothing can be given back any more, which is the case
// from ends on.
func (s *receipts) keep(r *kept, ends int64) weir.Receipt {
	s.serial++
	r.serial = s.serial
	if r.charge.cost > 0 {
		s.remember(r, ends)
	}
	text := binary.BigEndian.AppendUint64([]byte("weirtest"), r.serial)
	return weir.Receipt(binary.BigEndian.AppendUint64(text, uint64(r.charge.cost)))
}

func (s *receipts) remember(r *kept, ends int64) {
	if first, _ := s.ends.First(); s.ends.Len() >= storeMost {
		s.forget(first)
	}
	if s.bySerial == nil {
		s.bySerial = map[uint64]*kept{}
	}
	s.bySerial[r.serial] = r
	s.ends.Push(&r.node, r, ends)
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
	s.ends.Remove(&r.node)
}
