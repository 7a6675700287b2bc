package lease

import (
	"context"

	"github.com/weirflow/weir"
)

// A way is how a charge is carried out.
type way uint8

const (
	byLease  way = iota // from leased tokens, or by a round trip that leases some
	byStore             // by the store, unchanged
	byNobody            // not at all: it is invalid
)

// do is Do for charges that TryNow cannot decide.
func (s *Store) do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if s.closed.Load() {
		return ErrClosed
	}
	ways := make([]way, len(batch))
	choose(batch, ways)
	for i := 0; i < len(batch); {
		j := i + 1
		for j < len(batch) && ways[j] == ways[i] {
			j++
		}
		var err error
		switch ways[i] {
		case byLease:
			s.fromLeases(ctx, batch[i:j], out[i:j])
		case byStore:
			err = s.passOn(ctx, batch[i:j], out[i:j])
		}
		if err != nil {
			return err
		}
		i = j
	}
	for i := range batch {
		if err := batch[i].Err; err != nil {
			return err
		}
	}
	return nil
}

// choose sets how each charge is carried out. A group with an invalid charge is invalid.
func choose(batch []weir.Charge, ways []way) {
	var members map[int]int
	var bad map[int]error
	for i := range batch {
		c := &batch[i]
		if c.Err = Leasable(c.Limit); c.Group <= 0 {
			continue
		}
		if members == nil {
			members, bad = map[int]int{}, map[int]error{}
		}
		if members[c.Group]++; c.Err != nil {
			bad[c.Group] = c.Err
		}
	}
	for i := range batch {
		c := &batch[i]
		if err := bad[c.Group]; err != nil {
			c.Err = err
		}
		switch {
		case c.Err != nil:
			ways[i] = byNobody
		case c.Op != weir.OpTake || c.Cost <= 0 || c.Keep || c.Group > 0 && members[c.Group] > 1:
			ways[i] = byStore
		}
	}
}

// passOn lets the store decide.
func (s *Store) passOn(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	for i := range batch {
		if batch[i].Op == weir.OpReset {
			s.forget(&batch[i])
		}
	}
	s.stats.roundTrips.Add(1)
	err := s.inner.Do(ctx, batch, out)
	named := false
	for i := range batch {
		c := &batch[i]
		switch {
		case c.Err != nil:
			named = true
		case c.Op == weir.OpReset:
			s.forget(c) // also tokens that were granted before the reset and arrived meanwhile
		case c.Op == weir.OpPeek:
			s.peeked(c, &out[i])
		}
	}
	if named {
		return nil // do returns the first of these errors
	}
	return err
}

// forget drops the tokens of a key. They are not returned: the store does not know any more that they
// were leased.
func (s *Store) forget(c *weir.Charge) {
	if e := s.keys.find(c.Name, c.Key); e != nil {
		e.mu.Lock()
		e.endAll(s.now())
		e.back, e.given = nil, 0
		e.mu.Unlock()
	}
}

// peeked adds the tokens of this node to the store's decision.
func (s *Store) peeked(c *weir.Charge, d *weir.Decision) {
	e := s.keys.find(c.Name, c.Key)
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit != c.Limit {
		return
	}
	e.tidy(s.now())
	d.Remaining = min(d.Remaining+e.left(), d.Limit)
	c.Used = max(c.Used-e.left(), 0)
	if !d.Allowed && c.Cost > 0 && c.Cost <= d.Remaining {
		d.Allowed, d.RetryAfter = true, 0
	}
}

// A verdict is what happens next to a charge.
type verdict uint8

const (
	decided verdict = iota
	waits           // for the answer to a request
	direct          // its caller requests exactly its cost from the store
)

// A turn is a charge that is not decided yet.
type turn struct {
	c       *weir.Charge
	d       *weir.Decision
	e       *entry   // nil where there is no room for one
	request *request // that it waits for
}

// mostTries is how often a caller waits for leased tokens that other callers then take first. After
// that it requests its own cost.
const mostTries = 4

// here decides about charges from leased tokens.
func (s *Store) fromLeases(ctx context.Context, batch []weir.Charge, out []weir.Decision) {
	turns := make([]turn, len(batch))
	for i := range batch {
		turns[i] = turn{c: &batch[i], d: &out[i]}
	}
	for try := 0; len(turns) > 0; try++ {
		own, waiting := turns[:0:0], turns[:0]
		for _, t := range turns {
			switch s.begin(&t, try) {
			case waits:
				waiting = append(waiting, t)
			case direct:
				own = append(own, t)
			}
		}
		if len(own) > 0 {
			t := s.own(own)
			_ = s.transmit(ctx, t) // receive puts the error where it belongs
			s.receive(t)
		}
		turns = s.wait(ctx, waiting)
	}
}

// wait waits for the requests of the turns, and returns those that were answered. If the context
// ends first, the others get its error: a part of the store may have answered, and another not.
func (s *Store) wait(ctx context.Context, turns []turn) (answered []turn) {
	answered = turns[:0]
	for _, t := range turns {
		if isDone := t.request.wait(ctx); isDone {
			answered = append(answered, t)
		} else {
			t.c.Err = ctx.Err()
		}
		t.e.mu.Lock()
		t.e.need -= t.c.Cost
		t.e.mu.Unlock()
	}
	return answered
}

// wait waits until a request is answered, and reports false if the context ends first.
func (a *request) wait(ctx context.Context) bool {
	select {
	case <-a.done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-a.done: // it was, while another was waited for
		return true
	default:
		return false
	}
}

// begin decides about a charge, or returns what has to happen first.
func (s *Store) begin(t *turn, try int) verdict {
	if t.request != nil && t.request.err != nil {
		t.c.Err = t.request.err
		return decided
	}
	e := s.enter(t.c)
	if t.e = e; e == nil {
		return direct
	}
	if s.closed.Load() {
		e.mu.Unlock()
		t.c.Err = ErrClosed
		return decided
	}
	v, a := s.decide(e, t, try)
	e.mu.Unlock()
	if a != nil {
		s.send(a)
	}
	return v
}

// enter returns the entry of a charge's key, locked; nil if there is no room for one.
func (s *Store) enter(c *weir.Charge) *entry {
	for {
		e := s.keys.find(c.Name, c.Key)
		if e == nil {
			if e = s.insert(c); e == nil {
				return nil
			}
		}
		e.mu.Lock()
		if !e.removed || s.closed.Load() {
			return e
		}
		e.mu.Unlock()
	}
}

// insert adds an entry for a key, or finds the one that another caller has added; nil if there is
// no room.
func (s *Store) insert(c *weir.Charge) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.keys.find(c.Name, c.Key); e != nil {
		return e
	}
	if len(s.keys.all) >= s.opts.MaxKeys {
		return nil
	}
	e := &entry{name: c.Name, key: c.Key}
	e.setLimit(c.Limit, s.opts.Lifetime)
	s.keys.put(e)
	s.wake()
	return e
}

// decide is begin for an entry that is locked. The caller sends the request that it returns.
func (s *Store) decide(e *entry, t *turn, try int) (verdict, *request) {
	c, now := t.c, s.now()
	if e.limit != c.Limit {
		e.endAll(now)
		e.setLimit(c.Limit, s.opts.Lifetime)
	}
	e.tidy(now)
	if e.take(c.Cost, t.d, now) {
		return decided, s.next(e, now)
	}
	left := e.left()
	r := e.refused.Load()
	if r.decide(t.d, c, left, now) {
		e.unmet(c.Cost)
		return decided, nil
	}
	need := c.Cost - left
	room := s.opts.MaxOutstanding - left
	// the store would refuse it, but for how long is not known
	known := r != nil && now < r.until && need > r.cost
	switch {
	case known || try >= mostTries || need > room || c.Cost > e.capacity && e.capacity > 0 || len(e.grants) >= mostHeld:
		return s.alone(e, c, now), nil
	case e.request != nil:
		t.request = e.request
		e.need += c.Cost
		return waits, nil
	}
	n := max(e.amount(now, s.opts.Lifetime, s.opts.MaxOutstanding), min(need+e.need, room))
	if left == 0 && n <= c.Cost && e.direct == 0 {
		return s.alone(e, c, now), nil
	}
	if t.request = s.newRequest(e, n, now); t.request == nil {
		c.Err = ErrClosed
		return decided, nil
	}
	e.need += c.Cost
	return waits, t.request
}

// alone lets a caller request exactly its own cost from the store.
func (s *Store) alone(e *entry, c *weir.Charge, now int64) verdict {
	e.direct++
	e.unmet(c.Cost)
	e.lastSent, e.lastSize, e.last = now, c.Cost, nil
	return direct
}
