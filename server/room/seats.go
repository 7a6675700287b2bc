package room

import (
	"sync"

	"github.com/weirflow/weir/internal/heap"
)

// seats bounds how many visitors of one client address wait and are inside. A visitor counts for the
// address from which they joined until their ticket expires, wherever they are by then.
type seats struct {
	mu        sync.Mutex
	byID      map[string]*seat
	byAddress map[string]int64
	byEnd     heap.Heap[seat]
}

type seat struct {
	id, address string
	end         heap.Node[seat]
}

// maxSeats bounds the memory. Beyond it, the seat that ends first is no longer counted.
const maxSeats = 1 << 18

func newSeats() *seats {
	return &seats{byID: map[string]*seat{}, byAddress: map[string]int64{}}
}

// take counts a new visitor until a moment, or reports that the address has as many as it may.
func (s *seats) take(id, address string, now, until, most int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	if s.byID[id] == nil && s.byAddress[address] >= most {
		return false
	}
	s.set(id, address, until)
	return true
}

// keep counts a visitor until another moment. One who is not known, as after a restart, counts for
// the address that the request came from.
func (s *seats) keep(id, address string, now, until int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	s.set(id, address, until)
}

// leave no longer counts a visitor.
func (s *seats) leave(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.byID[id]; v != nil {
		s.remove(v)
	}
}

// set is keep while the lock is held.
func (s *seats) set(id, address string, until int64) {
	if v := s.byID[id]; v != nil {
		s.byEnd.Move(&v.end, until)
		return
	}
	if len(s.byID) >= maxSeats {
		first, _ := s.byEnd.First()
		s.remove(first)
	}
	v := &seat{id: id, address: address}
	s.byID[id] = v
	s.byAddress[address]++
	s.byEnd.Push(&v.end, v, until)
}

func (s *seats) expire(now int64) {
	for v := s.byEnd.Due(now); v != nil; v = s.byEnd.Due(now) {
		s.remove(v)
	}
}

func (s *seats) remove(v *seat) {
	s.byEnd.Remove(&v.end)
	delete(s.byID, v.id)
	if s.byAddress[v.address]--; s.byAddress[v.address] == 0 {
		delete(s.byAddress, v.address)
	}
}
