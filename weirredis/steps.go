package weirredis

import (
	"sync"
	"time"
)

// ClockSteps is what a Store has seen of steps back of its servers' clocks.
type ClockSteps struct {
	// how many times a key went on by its own clock, as the server's had stepped back: once for each
	// key and step
	Keys uint64
	// how far the clock was behind what the key had reached, in the latest step: it may have stepped
	// back by more
	Behind time.Duration
	Last   time.Time // when a call last met one, by this process's clock; zero for never
}

// stepWatch counts steps back. The scripts say in their replies that a key met one.
type stepWatch struct {
	mu    sync.Mutex
	steps ClockSteps
	tell  func(behind time.Duration)
}

// quietFor is how long no key meets a step back before another one is reported: a step is met by each
// key that is in use.
const quietFor = time.Minute

// ClockSteps returns what is known of steps back of the server's clock.
func (s *Store) ClockSteps() ClockSteps {
	s.steps.mu.Lock()
	defer s.steps.mu.Unlock()
	return s.steps.steps
}

// OnClockStep sets what is called when the server's clock has stepped back: once for all keys that
// meet it within a minute of each other. It must not wait, or call the Store.
func (s *Store) OnClockStep(tell func(behind time.Duration)) {
	s.steps.mu.Lock()
	defer s.steps.mu.Unlock()
	s.steps.tell = tell
}

// stepped counts keys that met a step back.
func (s *Store) stepped(keys int64, behind time.Duration) {
	w, now := &s.steps, time.Now()
	w.mu.Lock()
	tell := w.tell
	if !w.steps.Last.IsZero() && now.Sub(w.steps.Last) < quietFor {
		tell = nil
	}
	w.steps = ClockSteps{Keys: w.steps.Keys + uint64(keys), Behind: behind, Last: now}
	w.mu.Unlock()
	if tell != nil {
		tell(behind)
	}
}
