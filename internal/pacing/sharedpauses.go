package pacing

import (
	"context"
	"sync"
	"time"

	"github.com/weirflow/weir"
)

// SharedPauses tells other processes of pauses, through a store. It is safe for concurrent use.
//
// The state of a key is a weir.SmoothBursty without burst, at one unit per millisecond: a charge of n
// closes it for n ms, which is what a pause is. Of pauses that several processes set at once, the one
// that ends last holds: see Set.
//
// A process asks the store at most once in Refresh for a key. So it keeps to a pause that another
// process has set within Refresh and the time of two calls of the store. While the store is
// unavailable, each process keeps to the pauses that it was asked for itself.
type SharedPauses struct {
	pauses *weir.Shared

	mu    sync.Mutex
	next  map[string]time.Time // when the store is asked again about a key
	rests time.Time            // when it is asked again at all
}

// Refresh is how often a process asks the store for the pause of a key.
const Refresh = 25 * time.Millisecond

// The store's time for a call, and for how long it is not asked after it failed.
const (
	storeTimeout = 100 * time.Millisecond
	storeRest    = time.Second
)

// mostKnown is for how many keys the time of the last call is kept. Beyond it, the store is asked for
// all of them anew.
const mostKnown = 4096

// NewSharedPauses returns the pauses in a store. Processes that use the same name share them.
func NewSharedPauses(store weir.Store, name string) (*SharedPauses, error) {
	l, err := weir.NewShared(weir.SmoothBursty{Rate: weir.Rate{N: 1, Per: time.Millisecond}, MaxBurst: -1}, store, weir.Named(name))
	if err != nil {
		return nil, err
	}
	return &SharedPauses{pauses: l, next: map[string]time.Time{}}, nil
}

// Set pauses a key for d from now. A pause that ends later stays. An error is the store's.
//
// A pause of r that is there already is extended by d-r, on condition that r is still the most that is
// left of it: otherwise another process has extended it in between, and Set reads it again. So a pause is at
// no moment longer than the longest that was set, and no process takes one for longer than it stays.
func (s *SharedPauses) Set(ctx context.Context, key string, d time.Duration) error {
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer end()
	for ctx.Err() == nil {
		now, err := s.pauses.Take(ctx, key, milliseconds(d))
		if err != nil || now.Allowed || now.RetryAfter >= d || now.RetryAfter < 0 {
			return err
		}
		_, extended, err := s.pauses.Reserve(ctx, key, milliseconds(d-now.RetryAfter), now.RetryAfter)
		if err != nil || extended {
			return err
		}
	}
	return ctx.Err()
}

// milliseconds rounds up: a pause that is cut short is a request that is refused.
func milliseconds(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// Left asks the store how long a key is paused from now. It returns 0 without asking if it did so less
// than Refresh ago, or if the store failed within the last second.
func (s *SharedPauses) Left(ctx context.Context, key string) time.Duration {
	now := time.Now()
	s.mu.Lock()
	ask := !now.Before(s.next[key]) && !now.Before(s.rests)
	if ask {
		if len(s.next) >= mostKnown {
			clear(s.next)
		}
		s.next[key] = now.Add(Refresh)
	}
	s.mu.Unlock()
	if !ask {
		return 0
	}
	call, end := context.WithTimeout(ctx, storeTimeout)
	defer end()
	d, err := s.pauses.Peek(call, key, 1)
	if err != nil {
		if ctx.Err() == nil {
			s.rest()
		}
		return 0
	}
	return max(d.RetryAfter, 0)
}

// rest lets the store rest after a failure.
func (s *SharedPauses) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rests = time.Now().Add(storeRest)
}
