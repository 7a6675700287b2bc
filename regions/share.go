package regions

import (
	"sync"
	"sync/atomic"

	"github.com/weirflow/weir"
)

// A share is what this region has of a limit.
type share struct {
	name string

	offered atomic.Int64 // what callers of this node wanted since the latest report

	current atomic.Pointer[part] // of the limit that was asked for last

	mu      sync.Mutex
	known   terms
	parts   map[weir.Limit]*part // of a limit with several versions or plans
	learned bool                 // the current term is known

	// of the calls of the home, which are made one at a time
	index    int   // where the limit begins in a call's batch
	reported int64 // when demand was last reported
	took     int64 // what was reported in the present call, and since when
	since    int64
}

// A part is this region's part of a limit, until a time of this node's clock.
type part struct {
	of, limit weir.Limit
	until     int64
}

// mostParts bounds the limits of one name that are remembered.
const mostParts = 64

// mostDemand bounds what a node reports, so that no sum overflows.
const mostDemand = 1 << 36

// terms are the units beyond the guaranteed ones that this region has claimed, with the times of this
// node's clock between which they are surely in force at the home.
type terms struct {
	units, ends            int64 // of the term that has begun; 0 after it
	next, begins, nextEnds int64 // of the one after it
	hasClaimed             bool  // next is known
}

// at returns the units at a time, and until when. settles returns how long before its end a larger
// share has to be given up.
func (t *terms) at(now int64, settles func(units int64) int64) (units, until int64) {
	const forever = 1<<63 - 1
	switch {
	case now < t.ends && t.next >= t.units:
		return t.units, t.ends
	case now < t.ends:
		if cut := t.ends - settles(t.units); now < cut {
			return t.units, cut
		}
		return t.next, t.ends
	case now < t.begins:
		return min(t.units, t.next), t.begins
	case now < t.nextEnds:
		if cut := t.nextEnds - settles(t.next); now < cut {
			return t.next, cut
		}
	}
	return 0, forever
}

// learn takes in that the home's window ends between lo and hi, and what this region has claimed in it
// for the next one, if it has. It reports whether the units of the term that has begun are known.
func (t *terms) learn(lo, hi, term, claimed int64, hasClaimed bool) (known bool) {
	near := func(end int64) bool { return end != 0 && end-hi < term/2 && hi-end < term/2 }
	switch {
	case near(t.nextEnds):
		t.units, known = t.next, t.hasClaimed
	case near(t.ends):
		known = true
	default:
		t.units = 0
	}
	t.ends, t.next, t.begins, t.nextEnds, t.hasClaimed = lo, claimed, hi, lo+term, hasClaimed
	return known
}

// partOf returns this region's part of a charge's limit, and counts the demand.
func (s *Store) partOf(c *weir.Charge, now int64) (weir.Limit, error) {
	h := s.find(c.Name)
	if h == nil {
		var err error
		if h, err = s.add(c.Name); err != nil {
			return nil, err
		}
	}
	p := h.current.Load()
	if p == nil || p.of != c.Limit || now >= p.until {
		var err error
		if p, err = s.inForce(h, c.Limit, now); err != nil {
			return nil, err
		}
	}
	h.count(c)
	return p.limit, nil
}

// inForce returns the part of a limit that is in force now, and remembers it.
func (s *Store) inForce(h *share, l weir.Limit, now int64) (*part, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.parts[l]
	if p == nil || now >= p.until {
		if p == nil {
			if err := s.opts.divisible(l); err != nil {
				return nil, err
			}
		}
		own, late := s.guaranteed(), int64(s.opts.Timeout)
		units, until := h.known.at(now, func(units int64) int64 { return settles(s.part(l, own+units)) + late })
		if len(h.parts) >= mostParts {
			clear(h.parts)
		}
		p = &part{of: l, limit: s.part(l, own+units), until: until}
		h.parts[l] = p
	}
	h.current.Store(p)
	return p, nil
}

// changed makes what is in force be found again.
func (h *share) changed() {
	clear(h.parts)
	h.current.Store(nil)
}

// count adds what a caller wants to the demand, whether or not it gets it.
func (h *share) count(c *weir.Charge) {
	if c.Cost > 0 && demands(c.Op) {
		h.offered.Add(min(c.Cost, mostDemand))
	}
}

// uncount takes it back.
func (h *share) uncount(c *weir.Charge) {
	if h != nil && c.Cost > 0 && demands(c.Op) {
		h.offered.Add(-min(c.Cost, mostDemand))
	}
}

func demands(op weir.Op) bool {
	return op == weir.OpTake || op == weir.OpReserve || op == weir.OpTakeSome
}

// find returns the share of a limit; nil if there is none yet.
func (s *Store) find(name string) *share {
	all := s.shares.Load()
	if all == nil {
		return nil
	}
	return (*all)[name]
}

// add returns the share of a limit that was not charged before. It has the guaranteed units until the
// home has been asked.
func (s *Store) add(name string) (*share, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.shares.Load()
	if s.closed || old == nil {
		return nil, ErrClosed
	}
	if h := (*old)[name]; h != nil {
		return h, nil
	}
	h := &share{name: name, parts: map[weir.Limit]*part{}, reported: s.clock()}
	if len(*old) >= MaxLimits {
		return h, nil // it is made anew for each call, and never has more than what is guaranteed
	}
	all := make(map[string]*share, len(*old)+1)
	for name, h := range *old {
		all[name] = h
	}
	all[name] = h
	s.shares.Store(&all)
	s.wake(s.clock())
	return h, nil
}

// Share returns how many thousandths of a limit this region has now, and how many it has claimed for
// the next Term. 0 means that the limit has not been charged here.
func (s *Store) Share(name string) (now, next int) {
	h := s.find(name)
	if h == nil {
		return 0, 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	own := s.guaranteed()
	t := s.clock()
	units, _ := h.known.at(t, func(int64) int64 { return 0 })
	after := int64(0)
	if t < h.known.begins {
		after = h.known.next
	}
	return int(own + units), int(own + after)
}
