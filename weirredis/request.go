package weirredis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/scripted"
)

// A request is what one caller sends in one call: charges of a batch that are in one slot, or one
// question about a place.
type request struct {
	protocol protocol
	slot     uint16
	charges  []charge
	place    *placeOp
	end      time.Time     // when its caller leaves
	done     chan struct{} // closed when it is complete; nil with a callback, and in lone's own attempt
	// called when it is complete, by a goroutine of the store that must not wait
	then     func(*request)
	repeated bool                    // an attempt may have been carried out whose reply was lost
	err      error                   // about all of it
	refusal  atomic.Pointer[refusal] // the latest of an attempt that is repeated: why there is no answer yet
}

// A refusal is the error of a server that did nothing, and may do it a little later.
type refusal struct{ err error }

// size is what a request counts for, of maxCharges.
func (r *request) size() int { return max(len(r.charges), 1) }

// finish gives the caller the result, or the error.
func (r *request) finish(err error) {
	if r.err == nil {
		r.err = err
	}
	switch {
	case r.then != nil:
		r.then(r)
	case r.done != nil:
		close(r.done)
	}
}

// wait waits for the answer, and returns an error if there is none. The caller may then leave: the
// goroutine that carries the request out has a copy of all that it needs.
func (s *Store) wait(ctx context.Context, r *request) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return r.orElse(r.late(ctx.Err()))
	case <-s.ctx.Done():
		return r.orElse(errClosed)
	}
}

// late is the error of a caller whose context has ended: with what the server said meanwhile, which
// tells an operator more than that time has run out.
func (r *request) late(err error) error {
	if why := r.refusal.Load(); why != nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("weirredis: %w: %w", why.err, err)
	}
	return err
}

// orElse returns nil if there is an answer, and the error if there is none.
func (r *request) orElse(err error) error {
	select {
	case <-r.done:
		return nil
	default:
		return err
	}
}

// fail gives the caller an error about all of it.
func (r *request) fail(batch []weir.Charge, err error) {
	for i := range r.charges {
		batch[r.charges[i].index].Err = err
	}
}

// A charge is a weir.Charge as a script reads it, and its answer. It is a copy: the caller may have
// left when it is answered.
type charge struct {
	index int // in the batch
	key   string
	limit *limit
	name  string
	op    weir.Op
	cost  int64
	group int
	more  int64 // Within of OpReserve; of a take, 1 where a receipt is wanted, 2 where it will be settled; of a peek, 3 for what is used
	paper weir.Receipt
	once  string // the key that a settle leaves, so that a repeat does nothing; empty for none
	ttl   int64  // of that key, in milliseconds
	run   int    // of the exchange, where a short script decides

	decision weir.Decision
	receipt  weir.Receipt
	delay    time.Duration
	taken    int64
	used     int64
	err      error
}

// ErrCharge is found by errors.Is in an error that is about one charge: a limit that cannot be kept
// in Redis, a key that holds something else.
var ErrCharge = weir.ErrCharge

// requests makes requests of a batch: one, or on a cluster one for each slot. split has the groups
// whose keys are in several slots.
func (s *Store) requests(batch []weir.Charge) (all []request, split map[int]bool, err error) {
	all = make([]request, 0, 1)
	groups := map[int]uint16{}
	for i := range batch {
		c := &batch[i]
		ready, err := s.charge(i, c)
		if err != nil {
			return nil, nil, err
		}
		slot := s.slot(ready.key)
		if c.Group > 0 {
			if c.Op != weir.OpTake {
				return nil, nil, fmt.Errorf("%w: %v in a group, which is for takes", ErrCharge, c.Op)
			}
			if other, ok := groups[c.Group]; ok && other != slot {
				if split == nil {
					split = map[int]bool{}
				}
				split[c.Group] = true
			}
			groups[c.Group] = slot
		}
		at := -1
		for j := range all {
			if all[j].slot == slot {
				at = j
			}
		}
		if at < 0 {
			all = append(all, request{slot: slot})
			at = len(all) - 1
		}
		all[at].charges = append(all[at].charges, ready)
	}
	for i := range all {
		if len(groups) > 0 {
			all[i].gather()
		}
		all[i].protocol = shortProtocol(all[i].charges)
	}
	return all, split, nil
}

// gather puts the charges of each group side by side, where the first of them is.
func (r *request) gather() {
	first := map[int]int{}
	at := func(q charge) int {
		if q.group == 0 {
			return q.index
		}
		return first[q.group]
	}
	for _, q := range r.charges {
		if _, ok := first[q.group]; !ok {
			first[q.group] = q.index
		}
	}
	slices.SortStableFunc(r.charges, func(p, q charge) int { return cmp.Compare(at(p), at(q)) })
}

// charge readies a charge for the scripts. The error is what is wrong with it.
func (s *Store) charge(index int, of *weir.Charge) (c charge, err error) {
	l, err := s.limits.Of(of.Limit, compile)
	if err != nil {
		return c, fmt.Errorf("%w: limit %q: %w", ErrCharge, of.Name, err)
	}
	c = charge{index: index, key: s.key(of.Name, of.Key), limit: l, name: of.Name, op: of.Op, cost: scripted.Cost(of.Cost), group: max(of.Group, 0)}
	switch of.Op {
	case weir.OpTake:
		switch {
		case of.Keep && of.Estimate:
			c.more = 2
		case of.Keep:
			c.more = 1
		}
	case weir.OpReserve:
		if c.more = scripted.Within(of.Within); of.Estimate {
			c.paper = "settled"
		}
	case weir.OpSettle:
		// work that is done must count: an error here would make the largest cost the cheapest one
		c.paper, c.cost = of.Receipt, min(c.cost, most)
		if of.Once != "" && of.OnceFor > 0 {
			c.once, c.ttl = onceKey(c.key, of.Once), int64(of.OnceFor/time.Millisecond)+1
		}
	case weir.OpPeek:
		if of.Usage {
			c.more = 3
		}
	case weir.OpTakeSome, weir.OpCarry, weir.OpReset, weir.OpGiveBack:
	default:
		return c, fmt.Errorf("%w: %v is no operation", ErrCharge, of.Op)
	}
	return c, nil
}

// long reports whether a charge cannot go the short way.
func (c charge) long() bool {
	return c.op > weir.OpPeek || c.group > 0 || c.more != 0 || c.limit.short == nil || c.cost < 0 || c.cost > c.limit.short.size
}

// deliver gives the caller the results.
func (r *request) deliver(batch []weir.Charge, out []weir.Decision) error {
	if r.err != nil {
		r.fail(batch, r.err)
		return r.err
	}
	var first error
	for i := range r.charges {
		c := &r.charges[i]
		to := &batch[c.index]
		out[c.index] = c.decision
		to.Delay, to.Taken, to.Used, to.Err = c.delay, c.taken, c.used, c.err
		if c.op != weir.OpSettle {
			to.Receipt = c.receipt
		}
		if c.err != nil && first == nil {
			first = c.err
		}
	}
	return first
}

// read reads the result of a charge from a reply.
func (c *charge) read(r *reader) {
	c.err = nil
	if r.text() {
		text := r.string()
		if text == "WEIRLATE" {
			c.err = errLate
			return
		}
		if text == "WEIREXPIRED" {
			c.err = fmt.Errorf("limit %q: %w", c.name, weir.ErrExpired)
			return
		}
		c.err = fmt.Errorf("%w: limit %q: %s", ErrCharge, c.name, text)
		c.decision = weir.Decision{RetryAfter: weir.Never, By: c.name, Source: weir.SourceStore}
		return
	}
	c.decided(r.int(), r.int(), r.int())
	if names := c.limit.names; names != nil {
		if part := r.int(); part >= 0 && part < int64(len(names)) {
			c.decision.By = c.name + "/" + names[part]
		}
	}
	switch {
	case c.op == weir.OpReserve:
		c.delay, c.receipt = scripted.Span(r.int()), weir.Receipt(r.string())
	case c.op == weir.OpTakeSome:
		c.taken, c.receipt = r.int(), weir.Receipt(r.string())
	case c.op == weir.OpPeek && c.more > 0:
		c.used = r.int()
	case c.op == weir.OpTake && c.more > 0:
		c.receipt = weir.Receipt(r.string())
	}
}

// decided notes a decision: the wait, of which 0 admits, what remains, and when all of it does, in
// microseconds.
func (c *charge) decided(wait, remaining, reset int64) {
	c.decision = weir.Decision{
		Allowed:    wait == 0,
		Limit:      c.limit.capacity,
		Remaining:  remaining,
		RetryAfter: scripted.Span(wait),
		ResetAfter: scripted.Span(reset),
		By:         c.name,
		Source:     weir.SourceStore,
	}
	if remaining == most && c.limit.capacity > most {
		c.decision.Remaining = c.limit.capacity
	}
}
