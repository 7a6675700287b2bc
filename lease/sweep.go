package lease

import "slices"

// wake sets the timer of the next inspection, unless it is set. The store's lock is held.
func (s *Store) wake() {
	if s.timer == nil && !s.closed.Load() {
		s.timer = s.after(s.opts.Lifetime/inspections, s.sweep)
	}
}

// snapshot returns all entries. Only sweep removes any, and no two sweeps run at once.
func (s *Store) snapshot() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.keys.all)
}

// sweep inspects each key: it measures demand, returns tokens that will not be used, requests more
// for a lease in use that is about to end, and evicts idle keys.
func (s *Store) sweep() {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	if s.closed.Load() {
		return
	}
	t := new(roundTrip)
	var gone []*entry
	all := s.snapshot()
	crowded := len(all) > s.opts.MaxKeys-s.opts.MaxKeys/4
	for _, e := range all {
		e.mu.Lock()
		s.inspect(e, t)
		if e.idle >= inspections || crowded && e.idle > 0 {
			e.removed = len(e.grants) == 0 && len(e.back) == 0 && e.request == nil && e.direct == 0
		}
		if e.removed {
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
	for _, t := range t.cut(s.shardOf) {
		t.inFlight++
		s.inFlight.Add(1)
		s.run(t)
	}
}

// inspect inspects one key, and adds what it needs to a round trip.
func (s *Store) inspect(e *entry, t *roundTrip) {
	now, next := s.now(), int64(s.opts.Lifetime/inspections)
	e.measure()
	e.tidy(now)
	ended := false
	kept := e.grants[:0]
	for _, g := range e.grants {
		if e.idle >= 2 || g.ends-now <= next { // it ends before the next inspection
			e.end(g, now)
			ended = true
		} else {
			kept = append(kept, g)
		}
	}
	clear(e.grants[len(kept):])
	e.grants = kept
	e.publish()
	if ended && len(kept) == 0 && e.idle == 0 {
		if a := s.next(e, now); a != nil {
			t.add(a)
			return
		}
	}
	t.settle(e)
}
