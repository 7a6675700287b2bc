package pacing

import "sync"

// A Signal tells all that wait for it of a change. The zero value is ready.
type Signal struct {
	mu      sync.Mutex
	changed chan struct{} // nil if nobody waits
}

// Changed returns a channel that is closed by the next Notify.
func (s *Signal) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// Notify closes the channel.
func (s *Signal) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}
