package weirkv

import (
	"context"
	"errors"

	"github.com/weirflow/weir"
)

// startGroup carries out a group whose charges are of several keys, in a goroutine of the Store: what it
// charges is given back if one of them is refused, even if the caller has left.
func (s *Store) startGroup(ctx context.Context, r *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.running.Go(func() { s.group(ctx, r) })
	return nil
}

// group first finds out whether all charges would be admitted, and then makes them. So a refusal mostly writes
// nothing.
func (s *Store) group(ctx context.Context, r *request) {
	if !s.groupStep(ctx, r, true) || !r.admitted() {
		close(r.done)
		return
	}
	peeked := r.out
	keys, ok := s.chargeKeys(ctx, r)
	if ok && r.admitted() && ctx.Err() == nil {
		for i, c := range r.kept() {
			if !c {
				r.charges[i].Receipt = ""
			}
		}
		close(r.done)
		return
	}
	s.giveBack(keys)
	for i := range r.out {
		if r.out[i].Allowed { // decided anew, but not charged
			r.out[i] = peeked[i]
		}
		r.charges[i].Receipt = ""
	}
	if !ok {
		r.sameError()
	}
	close(r.done)
}

// kept reports which charges want a receipt.
func (r *request) kept() []bool {
	keep := make([]bool, len(r.charges))
	for i, c := range r.charges {
		keep[i] = c.Keep
	}
	return keep
}

// sameError gives all charges the error of the first that has one.
func (r *request) sameError() {
	var err error
	for _, c := range r.charges {
		if err == nil {
			err = c.Err
		}
	}
	for i := range r.charges {
		r.charges[i].Err = err
	}
}

// groupStep carries out the charges of each key, all at the same time.
func (s *Store) groupStep(ctx context.Context, r *request, dry bool) bool {
	parts := r.byKey(dry)
	ok := s.run(ctx, parts)
	for _, p := range parts {
		for j, i := range p.at {
			r.out[i], r.charges[i].Err = p.out[j], p.charges[j].Err
		}
	}
	if !ok {
		r.sameError()
	}
	return ok
}

// chargeKeys makes the charges, and returns what was asked for each key.
func (s *Store) chargeKeys(ctx context.Context, r *request) (parts []*request, ok bool) {
	parts = r.byKey(false)
	ok = s.run(ctx, parts)
	r.out = make([]weir.Decision, len(r.charges))
	for _, p := range parts {
		for j, i := range p.at {
			r.out[i], r.charges[i].Err, r.charges[i].Receipt = p.out[j], p.charges[j].Err, p.charges[j].Receipt
		}
	}
	return parts, ok
}

// byKey splits a group into a request for each key. at then are indexes of the group's charges.
func (r *request) byKey(dry bool) (parts []*request) {
	type id struct{ name, key string }
	of := map[id]*request{}
	for i, c := range r.charges {
		p := of[id{c.Name, c.Key}]
		if p == nil {
			p = &request{dry: dry, done: make(chan struct{})}
			of[id{c.Name, c.Key}] = p
			parts = append(parts, p)
		}
		c.Keep = c.Keep || !dry // it may have to be given back
		p.at, p.charges, p.out = append(p.at, i), append(p.charges, c), append(p.out, weir.Decision{})
	}
	return parts
}

// run carries out requests. It reports whether none of them failed. A caller that leaves is charged for nothing
// that has not begun.
func (s *Store) run(ctx context.Context, all []*request) (ok bool) {
	ok = true
	for _, p := range all {
		if err := s.submit(p); err != nil {
			p.fail(err, false)
		}
	}
	for _, p := range all {
		if wait(ctx, p.done) != nil {
			for _, p := range all {
				p.left.Store(true)
			}
			<-p.done // what was charged has to be given back
		}
		for _, c := range p.charges {
			ok = ok && c.Err == nil
		}
	}
	return ok
}

// giveBack gives back what was charged for a group that is refused.
func (s *Store) giveBack(parts []*request) {
	var undo []*request
	for _, p := range parts {
		for j, c := range p.charges {
			if p.out[j].Allowed && c.Err == nil && c.Receipt != "" {
				c.Op, c.Cost, c.Group = weir.OpSettle, 0, 0
				undo = append(undo, &request{at: []int{0}, charges: []weir.Charge{c}, out: make([]weir.Decision, 1), done: make(chan struct{})})
			}
		}
	}
	s.run(context.WithoutCancel(s.ctx), undo)
}

// errStale is the error of a heartbeat that others kept from being written.
var errStale = errors.New("weirkv: other nodes wrote the list of nodes between each read and write")
