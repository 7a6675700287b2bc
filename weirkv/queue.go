package weirkv

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/weirflow/weir"
)

// A request is charges that one caller wants carried out together: one, or a group.
type request struct {
	at      []int // where they are in the caller's batch
	charges []weir.Charge
	out     []weir.Decision
	dry     bool // only find out whether the group would be admitted
	done    chan struct{}
	ended   bool        // done is closed
	left    atomic.Bool // the caller has left: nothing is charged for it any more
}

// members is the request of a group.
func members(batch []weir.Charge, group int) *request {
	r := new(request)
	for i, c := range batch {
		if c.Group == group {
			r.at, r.charges = append(r.at, i), append(r.charges, c)
		}
	}
	r.out = make([]weir.Decision, len(r.at))
	return r
}

// oneKey reports whether all charges are of one key.
func (r *request) oneKey() bool {
	for _, c := range r.charges[1:] {
		if c.Name != r.charges[0].Name || c.Key != r.charges[0].Key {
			return false
		}
	}
	return true
}

// admitted reports whether all charges were admitted.
func (r *request) admitted() bool {
	return !slices.ContainsFunc(r.out, func(d weir.Decision) bool { return !d.Allowed })
}

// fail ends the request with an error, which is about the charges and not the store if foul.
func (r *request) fail(err error, foul bool) {
	for i := range r.charges {
		if r.out[i] = (weir.Decision{}); foul {
			r.charges[i].Err = fmt.Errorf("%w: weirkv: %w", weir.ErrCharge, err)
		} else {
			r.charges[i].Err = err
		}
	}
	r.end()
}

// end lets the caller have the results.
func (r *request) end() {
	r.ended = true
	close(r.done)
}

// A queue is the requests that wait for one key. While there are any, one goroutine carries them out: all
// that have come while it read or wrote the key go into the next write.
type queue struct {
	key     string
	waiting []*request
}

// mostTogether bounds the requests of one write.
const mostTogether = 1024

// submit puts a request into the queue of its key.
func (s *Store) submit(r *request) error {
	key := s.key(r.charges[0].Name, r.charges[0].Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if q := s.keys[key]; q != nil {
		q.waiting = append(q.waiting, r)
		return nil
	}
	q := &queue{key: key, waiting: []*request{r}}
	s.keys[key] = q
	s.running.Go(func() { s.serve(q) })
	return nil
}

// serve carries out the requests of a queue until there are none.
func (s *Store) serve(q *queue) {
	for {
		s.mu.Lock()
		n := min(len(q.waiting), mostTogether)
		if n == 0 {
			delete(s.keys, q.key)
			s.mu.Unlock()
			return
		}
		batch := q.waiting[:n:n]
		q.waiting = q.waiting[n:]
		s.mu.Unlock()
		s.carryOut(q.key, batch)
	}
}

// mostKnown bounds the values that are known from the latest write.
const mostKnown = 1 << 14

// remember keeps what was written to a key, for the next write.
func (s *Store) rememberItem(key string, item Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if item.Revision == 0 {
		delete(s.known, key)
		return
	}
	if len(s.known) >= mostKnown {
		for other := range s.known {
			delete(s.known, other)
			break
		}
	}
	s.known[key] = item
}

// knownItem returns what was last written to a key by this node, as far as known.
func (s *Store) knownItem(key string) (Item, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	item, ok := s.known[key]
	return item, ok
}
