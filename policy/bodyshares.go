package policy

import "sync"

// BodyShares divides a memory for bodies among clients: none may have more of it than is still free
// after that. So one client that sends many bodies slowly gets half of it, and leaves room for others.
// The zero value is ready to use. It is safe for concurrent use.
type BodyShares struct {
	mu   sync.Mutex
	used map[string]int64 // by client; those without any are left out
}

// A SharedMemory is a BodyMemory that BodyShares divides.
type SharedMemory interface {
	BodyMemory
	Free() int64 // bytes
	Refused()    // counts a request that found no room
}

// Of returns the memory for the bodies of one client.
func (s *BodyShares) Of(client string, all SharedMemory) BodyMemory {
	return &bodyShare{s, all, client}
}

type bodyShare struct {
	shares *BodyShares
	all    SharedMemory
	client string
}

// Reserve implements BodyMemory.
func (b *bodyShare) Reserve(n int64) bool {
	s := b.shares
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[b.client]+n > b.all.Free()-n || !b.all.Reserve(n) {
		b.all.Refused()
		return false
	}
	if s.used == nil {
		s.used = map[string]int64{}
	}
	s.used[b.client] += n
	return true
}

// Release implements BodyMemory.
func (b *bodyShare) Release(n int64) {
	b.all.Release(n)
	s := b.shares
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[b.client] -= n; s.used[b.client] <= 0 {
		delete(s.used, b.client)
	}
}
