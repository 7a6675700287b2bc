package failover

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// receiptPrefix begins the receipts of local charges. The receipts of stores are random or counted
// bytes, and do not begin with it.
const receiptPrefix = "weir-share:"

// isLocal reports whether a charge settles a local charge, of this node or another.
func isLocal(c *weir.Charge) bool {
	return c.Op == weir.OpSettle && strings.HasPrefix(string(c.Receipt), receiptPrefix)
}

// A settler is a local charge that can be settled.
type settler interface{ Settle(actual int64) }

// kept is a charge of a group that was kept, and can be settled for that.
type kept struct{ charge *keyed.Charge[string] }

// the error is for one that was not kept
func (k kept) Settle(actual int64) { _ = k.charge.Settle(actual) }

// receipts are the local charges that can be settled. If there are too many, the oldest is dropped,
// and stays charged in full.
type receipts struct {
	mu        sync.Mutex
	byReceipt map[weir.Receipt]heldCharge
	oldest    uint64 // no receipt has a number below it
	last      uint64
	evicted   uint64
}

// heldCharge is the charge of a receipt.
type heldCharge struct {
	settler
	record *record
}

// keep remembers a charge.
func (s *Store) keep(h heldCharge) weir.Receipt {
	r := &s.receipts
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.byReceipt) >= s.opts.MaxReceipts {
		if old := s.receipt(r.oldest); r.byReceipt[old].settler != nil {
			delete(r.byReceipt, old)
			r.evicted++
		}
		r.oldest++
	}
	receipt := s.receipt(r.last)
	r.last++
	r.byReceipt[receipt] = h
	return receipt
}

// receipt is the receipt of a number.
func (s *Store) receipt(n uint64) weir.Receipt {
	return weir.Receipt(s.mark + strconv.FormatUint(n, 36))
}

// release removes a receipt and returns its charge.
func (r *receipts) release(receipt weir.Receipt) (heldCharge, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.byReceipt[receipt]
	delete(r.byReceipt, receipt)
	return h, ok
}

func (r *receipts) count() (kept int, evicted uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byReceipt), r.evicted
}

// settle settles a local charge, also after the store has come back.
func (s *Store) settle(c *weir.Charge) weir.Decision {
	d := weir.Decision{By: c.Name, Source: weir.SourceShare}
	h, ok := s.receipts.release(c.Receipt)
	if !ok {
		c.Err = fmt.Errorf("%w: its receipt is of a local share in another process, or was evicted, or settled before", weir.ErrCharge)
		return d
	}
	c.Err = nil
	s.shares.mu.RLock()
	defer s.shares.mu.RUnlock()
	h.Settle(c.Cost)
	d = h.record.keys.Peek(c.Key, 0)
	d.Source = weir.SourceShare
	return d
}
