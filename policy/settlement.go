package policy

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// A settlement says whether charges in stores can be settled again after a store was unavailable. A store
// whose reply was lost may have carried out the first attempt: by the name, it ignores the others.
type settlement struct {
	name   string
	repeat time.Duration // for how long; 0: one attempt, whose failure is final
}

// sign names the settlement of charge i.
func (s settlement) sign(c *weir.Charge, i int) {
	if s.repeat > 0 {
		// an attempt that begins at the end takes as long as a store has
		c.Once, c.OnceFor = s.name+"."+strconv.Itoa(i), s.repeat+2*patience
	}
}

// settlementOf returns the call that replaces the cost of a charge in a store.
func settlementOf(c *weir.Charge, actual int64) weir.Charge {
	return weir.Charge{Name: c.Name, Key: c.Key, Limit: c.Limit, Plan: c.Plan, Op: weir.OpSettle, Cost: actual, Receipt: c.Receipt}
}

// nothingToSettle reports whether a settlement would change nothing in the store. An algorithm that lists
// outstanding charges has to drop the charge from its list.
func nothingToSettle(c *weir.Charge, actual int64) bool {
	return c.Receipt == "" || actual == c.Cost && !rules.Lists(weir.Parts(c.Limit))
}

// isOpen reports whether a charge can be settled again after an error.
func (s settlement) isOpen(err error) bool { return s.repeat > 0 && errors.Is(err, ErrUnsettled) }

// unsettled returns the error of Settle for that of a store. A store that does not know a receipt has
// nothing left to settle, which is no error of the caller.
func unsettled(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, weir.ErrExpired):
		return err
	case isOfCharge(err):
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnsettled, err)
}

// worse returns the error of two that the caller must know first: what is still open.
func worse(a, b error) error {
	if a == nil || errors.Is(b, ErrUnsettled) {
		return b
	}
	return a
}
