package weirredis

import "time"

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

// ClockSteps returns what is known of steps back of the server's clock.
func (s *Store) ClockSteps() ClockSteps { return ClockSteps(s.steps.Steps()) }

// OnClockStep sets what is called when the server's clock has stepped back: once for all keys that
// meet it within a minute of each other. It must not wait, or call the Store.
func (s *Store) OnClockStep(tell func(behind time.Duration)) { s.steps.Tell(tell) }
