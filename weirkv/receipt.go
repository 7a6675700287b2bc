package weirkv

import (
	"errors"
	"slices"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/outstanding"
	"github.com/weirflow/weir/internal/packed"
)

// errReceipt is about a receipt that this package has not written.
var errReceipt = errors.New("the receipt is of another store, or of a later version")

const receiptVersion = 1

// A receipt says what a charge has taken from each version of its limit.
type receipt struct {
	cost  int64
	id    outstanding.ID
	parts []part
}

func (r receipt) text() weir.Receipt {
	b := packed.Int([]byte{receiptVersion}, r.cost)
	b = packed.Uint(b, uint64(r.id))
	return weir.Receipt(appendParts(b, r.parts))
}

// readReceipt reads a receipt. The empty one is of no charge.
func readReceipt(text weir.Receipt) (r receipt, err error) {
	if text == "" {
		return r, nil
	}
	if text[0] != receiptVersion {
		return r, errReceipt
	}
	p := packed.NewReader([]byte(text[1:]))
	r = receipt{p.Int(), outstanding.ID(p.Uint()), readParts(p)}
	if p.End() != nil || r.cost < 0 {
		return r, errReceipt
	}
	return r, nil
}

// copied returns a copy of the entry that shares nothing that a charge changes.
func (e *entry) copied() *entry {
	c := *e
	c.nodes, c.brief, c.once, c.versions = slices.Clone(e.nodes), slices.Clone(e.brief), slices.Clone(e.once), nil
	for _, v := range e.versions {
		c.versions = append(c.versions, v.copied())
	}
	return &c
}
