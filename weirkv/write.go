package weirkv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pause"
)

// Pauses before a key is written again.
const (
	shortPause = 200 * time.Microsecond
	longPause  = 20 * time.Millisecond
)

// A try is the evaluation of requests on one reading of their key.
type try struct {
	requests []*request
	charges  [][]weir.Charge
	out      [][]weir.Decision
	write    uint64 // its number; 0 if nothing is to be written
	value    []byte
	ttl      time.Duration
	now      int64        // the time of the key
	unknown  []uint64     // settlements that have to be looked up; the evaluation does not count
	moves    []settlement // that get keys of their own before the write
	foreign  error        // why the value of the key cannot be read
}

// deliver ends the requests with the results. Those whose callers left after the write have ended before.
func (t *try) deliver() {
	for i, r := range t.requests {
		if !r.ended {
			r.charges, r.out = t.charges[i], t.out[i]
			r.end()
		}
	}
}

// A round carries out requests on their key: it reads, evaluates and writes until that succeeds.
type round struct {
	s     *Store
	key   string
	batch []*request // without those whose callers have left
	item  Item
	have  bool // item is known
	fresh bool // item was read since the requests came
	// tries whose writes may have been carried out or not, the latest last
	unknown []*try
	moved   map[uint64]int64 // settlements that were looked up since the item was read
	pauses  int
	taking  *taking // while the store decides by itself; nil if it cannot
	busy    bool    // another node has written the key in this round
}

// carryOut carries out requests, and ends each of them.
func (s *Store) carryOut(key string, batch []*request) {
	ctx, cancel := context.WithTimeout(s.ctx, s.o.Timeout)
	defer cancel()
	r := &round{s: s, key: key, batch: batch}
	r.item, r.have = s.knownItem(key)
	defer r.freeLane()
	if !r.have {
		r.taking = s.plainTakes(batch)
	}
	var last error
	for conflicts, failures := 0, 0; ; {
		if r.dropLeft() {
			return
		}
		done, conflict, err := r.attempt(ctx)
		switch {
		case done:
			return
		case conflict:
			conflicts++
			r.busy = true
		case err != nil:
			failures++
			if last == nil || !saysEnded(err) {
				last = err
			}
		}
		if err != nil || conflict && conflicts > 1 {
			r.pause(ctx)
		}
		if conflicts >= s.o.Attempts {
			r.fail(ErrContended)
			return
		}
		if ctx.Err() != nil {
			r.fail(r.why(last))
			return
		}
	}
}

// dropLeft ends the requests whose callers have left. It reports whether none are left.
func (r *round) dropLeft() (none bool) {
	r.batch = slices.DeleteFunc(slices.Clone(r.batch), func(q *request) bool {
		gone := q.left.Load()
		if gone {
			q.fail(context.Canceled, false)
		}
		return gone
	})
	return len(r.batch) == 0
}

// why is the error of a round that had no time left.
func (r *round) why(last error) error {
	switch {
	case r.s.ctx.Err() != nil:
		return ErrClosed
	case saysEnded(last):
		return r.s.because(last)
	case last != nil:
		return fmt.Errorf("weirkv: %w", last)
	}
	return ErrContended
}

func (r *round) fail(err error) {
	for _, q := range r.batch {
		q.fail(err, false)
	}
}

// pause waits before the next attempt: at random, and longer each time.
func (r *round) pause(ctx context.Context) {
	most := min(shortPause<<min(r.pauses, 10), longPause)
	r.pauses++
	_ = pause.For(ctx, jitter(most)) // the caller looks at the context
}

// jitter is a random time up to most.
func jitter(most time.Duration) time.Duration { return rand.N(most) + 1 }

// attempt reads, evaluates and writes once. It reports whether all requests have ended, or whether another
// node has written the key.
func (r *round) attempt(ctx context.Context) (done, conflict bool, err error) {
	if r.taking != nil {
		done, other, err := r.take(ctx)
		if !other {
			return done, false, err
		}
		r.freeLane()
		r.have = false
	}
	if !r.have {
		r.item, err = r.s.kv.Get(ctx, r.key)
		if r.s.heard(err, false); err != nil {
			return false, false, err
		}
		r.have, r.fresh, r.moved = true, true, nil
		if t := r.found(); t != nil {
			r.s.rememberItem(r.key, r.item)
			return r.delivered(t), false, nil
		}
		if r.dropLeft() {
			return true, false, nil
		}
	}
	t := r.s.evaluate(r.item, r.batch, r.moved)
	for len(t.unknown) > 0 {
		if err := r.lookUp(ctx, t.unknown); err != nil || r.dropLeft() {
			return err == nil, false, err
		}
		t = r.s.evaluate(r.item, r.batch, r.moved)
	}
	if t.write == 0 || t.foreign != nil {
		if r.have = r.fresh; !r.fresh {
			return false, false, nil // read the key: another node may have given something back
		}
		r.s.rememberItem(r.key, r.item)
		return r.delivered(t), false, nil
	}
	if err := r.move(ctx, t); err != nil {
		return false, false, err
	}
	if u, ok := r.s.kv.(Updater); ok {
		if _, patient := u.(PatientUpdater); !patient || r.busy {
			return r.update(ctx, u, t)
		}
	}
	r.s.swaps.Add(1)
	next, swapped, err := r.s.kv.CompareAndSwap(ctx, r.key, r.item.Revision, t.value, t.ttl)
	r.s.heard(err, true)
	switch {
	case err != nil:
		r.unknown = append(r.unknown, t)
	case swapped:
		r.s.rememberItem(r.key, Item{t.value, next})
		return r.delivered(t), false, nil
	default:
		r.s.lost.Add(1)
		if len(r.unknown) == 0 && isPlainValue(t.value) {
			r.taking = r.s.plainTakes(r.batch)
			r.s.shares(r.key)
		}
	}
	r.have = false
	r.s.rememberItem(r.key, Item{})
	return false, err == nil, err
}

// found returns the try whose write is in the value that was read although its outcome was unknown.
func (r *round) found() *try {
	if len(r.unknown) == 0 {
		return nil
	}
	e, err := r.s.limits.readEntry(r.item.Value, r.s.o.Remember)
	if err != nil {
		return nil
	}
	for _, t := range r.unknown {
		if e.wrote(r.s.node, t.write) {
			return t
		}
	}
	return nil
}

// delivered ends the requests of a try. It reports whether these are all; others came into the batch after
// that try, or none did.
func (r *round) delivered(t *try) bool {
	t.deliver()
	r.batch = slices.DeleteFunc(slices.Clone(r.batch), func(q *request) bool { return q.ended })
	return len(r.batch) == 0
}

// evaluate evaluates requests on the value of their key.
func (s *Store) evaluate(item Item, batch []*request, moved map[uint64]int64) *try {
	t := &try{requests: batch}
	e, err := s.limits.readEntry(item.Value, s.o.Remember)
	on := &turn{entry: e, limits: &s.limits, remember: s.o.Remember, moved: moved}
	if err == nil {
		var stepped bool
		if on.now, stepped = e.time(s.node, s.clock.now(), s.skew()); stepped {
			on.dirty = true
			s.steps.Add(1)
			s.stepped.Store(time.Now().UnixNano())
		}
	}
	for _, r := range batch {
		charges, out := slices.Clone(r.charges), make([]weir.Decision, len(r.charges))
		if t.foreign = err; err == nil {
			on.request(r, charges, out)
		}
		for i := range charges {
			if err != nil {
				charges[i].Err = err
			}
			if charges[i].Err != nil {
				charges[i].Err = fmt.Errorf("%w: weirkv: %w", weir.ErrCharge, charges[i].Err)
				out[i] = weir.Decision{}
			}
		}
		t.charges, t.out = append(t.charges, charges), append(t.out, out)
	}
	t.unknown = on.unknown
	if on.dirty {
		e.endsBrief, e.keepsOnce = !s.o.keepBrief, mostOnce
		if s.o.fewOnce {
			e.keepsOnce = 1
		}
		t.write = s.writes.Add(1)
		e.written(s.node, t.write, on.now)
		s.inexact.Add(e.inexact)
		t.ttl, t.now, t.moves = e.ttl(on.now, s.o.Grace), on.now, e.moves
		if _, ok := s.kv.(Taker); ok {
			t.value = e.plain()
		}
		if t.value == nil {
			t.value = e.value()
		}
	}
	return t
}

// request carries out a request: all of its charges or, of a group, none.
func (t *turn) request(r *request, charges []weir.Charge, out []weir.Decision) {
	for i := range charges {
		charges[i].Err = nil
	}
	if charges[0].Group <= 0 {
		out[0], charges[0].Err = t.one(&charges[0])
		return
	}
	if i := slices.IndexFunc(charges, func(c weir.Charge) bool { return c.Op != weir.OpTake }); i >= 0 {
		for j := range charges {
			charges[j].Err = fmt.Errorf("a charge of group %d is to %v: a group only takes", charges[i].Group, charges[i].Op)
		}
		return
	}
	if len(charges) == 1 && !r.dry {
		out[0], charges[0].Err = t.one(&charges[0])
		return
	}
	t.group(r, charges, out)
}

// group carries out the charges of a group in order. If one is refused, or this is a dry run, the decisions
// about the others are what they are without a charge.
func (t *turn) group(r *request, charges []weir.Charge, out []weir.Decision) {
	before, dirty := t.copied(), t.dirty
	all, refused := true, make([]bool, len(charges))
	for i := range charges {
		out[i], charges[i].Err = t.one(&charges[i])
		refused[i] = !out[i].Allowed
		all = all && out[i].Allowed && charges[i].Err == nil
	}
	if all && !r.dry {
		return
	}
	*t.entry, t.dirty = *before, dirty
	for i := range charges {
		charges[i].Receipt = ""
		switch c := charges[i]; {
		case c.Err != nil:
		case !refused[i]:
			c.Op = weir.OpPeek
			out[i], _ = t.one(&c)
		case len(charges) == 1:
			out[i], _ = t.one(&c) // refused again: this time, the state of a first call is kept
		}
	}
	for i := range charges {
		if err := charges[i].Err; err != nil {
			for j := range charges {
				charges[j].Err = err
			}
			return
		}
	}
}
