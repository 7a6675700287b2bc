package scripted

import (
	"sync"
	"time"
)

// Steps is what a store has seen of steps back of its servers' clocks.
type Steps struct {
	Keys   uint64
	Behind time.Duration
	Last   time.Time
}

// A StepWatch counts steps back. The replies say that a key met one. The zero value is ready to use.
type StepWatch struct {
	mu    sync.Mutex
	steps Steps
	tell  func(behind time.Duration)
}

// quietFor is how long no key meets a step back before another one is reported: a step is met by each
// key that is in use.
const quietFor = time.Minute

// Steps returns what was seen.
func (w *StepWatch) Steps() Steps {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.steps
}

// Tell sets what is called once for all keys that meet a step within a minute of each other.
func (w *StepWatch) Tell(tell func(behind time.Duration)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell = tell
}

// Stepped counts keys that met a step back.
func (w *StepWatch) Stepped(keys int64, behind time.Duration) {
	now := time.Now()
	w.mu.Lock()
	tell := w.tell
	if !w.steps.Last.IsZero() && now.Sub(w.steps.Last) < quietFor {
		tell = nil
	}
	w.steps = Steps{Keys: w.steps.Keys + uint64(keys), Behind: behind, Last: now}
	w.mu.Unlock()
	if tell != nil {
		tell(behind)
	}
}
