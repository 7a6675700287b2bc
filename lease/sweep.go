package lease

import "slices"

// wake sets the timer of the next look, if it is not set. The store's lock is held.
func (s *Store) wake() {
	if s.timer == nil && !s.closed.Load() {
		s.timer = s.after(s.opts.Lifetime/looks, s.sweep)
	}
}

// snapshot returns the entries that there are. Only sweep, of which there is one at a time, takes any out.
func (s *Store) snapshot() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.keys.all)
}

// sweep looks at each key: it takes the measure of its demand, gives back what will not be used, asks for more where a lease ends that is
// still in use, and lets go of keys that nobody asks about any more.
func (s *Store) sweep() {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	if s.closed.Load() {
		return
	}
	t := new(trip)
	var gone []*entry
	all := s.snapshot()
	crowded := len(all) > s.opts.MaxKeys-s.opts.MaxKeys/4
	for _, e := range all {
		e.mu.Lock()
		s.inspect(e, t)
		if e.idle >= looks || crowded && e.idle > 0 {
			e.gone = len(e.held) == 0 && len(e.back) == 0 && e.ask == nil && e.direct == 0
		}
		if e.gone {
			gone = append(gone, e)
		}
		e.mu.Unlock()
	}
	s.mu.Lock()
	for _, e := range gone {
		s.keys.remove(e)
	}
	if s.timer = nil; len(s.keys.all) > 0 {
		s.wake()
	}
	s.mu.Unlock()
	for _, t := range t.cut() {
		t.flights++
		s.flights.Add(1)
		s.carry(t)
	}
}

// inspect looks at one key, and adds to a trip what it needs.
func (s *Store) inspect(e *entry, t *trip) {
	now, next := s.now(), int64(s.opts.Lifetime/looks)
	e.look()
	e.tidy(now)
	ended := false
	kept := e.held[:0]
	for _, g := range e.held {
		if e.idle >= 2 || g.ends-now <= next { // there is no other look before it ends
			e.end(g, now)
			ended = true
		} else {
			kept = append(kept, g)
		}
	}
	clear(e.held[len(kept):])
	e.held = kept
	e.publish()
	if ended && len(kept) == 0 && e.idle == 0 {
		if a := s.next(e, now); a != nil {
			t.add(a)
			return
		}
	}
	t.settle(e)
}
