package failover

import (
	"fmt"
	"sync"
	"time"

	"github.com/weirflow/weir/internal/pause"
)

// State is that of the breaker.
type State int32

// The states of the breaker.
const (
	Closed   State = iota // the store is asked
	Open                  // it is not
	HalfOpen              // it is not, but for a probe that is under way
)

// String returns the state's name.
func (s State) String() string {
	names := [...]string{"closed", "open", "half-open"}
	if s >= 0 && int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("State(%d)", int32(s))
}

const (
	span        = time.Second // calls of this and the span before it are counted together
	enoughCalls = 20          // of which half must have failed
	calm        = time.Second // a breaker that opens again sooner than this after it closed has probes that prove little
	longestGap  = time.Second // to which the time between probes then grows
)

// A breaker is what is known of the store's failures, and who watches it.
type breaker struct {
	mu       sync.Mutex
	now, was counted
	watched  bool // a goroutine watches
	doubted  bool // callers left without an answer: the store is to be probed
	told     []transition
	interval time.Duration // until the next probe
	closedAt int64         // when it was closed last
	returned bool          // it was closed once
}

// counted is what has failed in a span of time.
type counted struct {
	start    int64
	answered uint64 // by the counter at the start; of a past span, in it
	failed   uint64
}

type transition struct{ from, to State }

// State returns the breaker's state.
func (s *Store) State() State { return State(s.state.Load()) }

// answered notes that the store answered a call.
func (s *Store) answered() {
	s.counters.answered.Add(1)
	if s.row.Load() != 0 {
		s.row.Store(0)
	}
	if s.silent.Load() != 0 {
		s.silent.Store(0)
	}
}

// left notes a caller whose context ended before the store answered. That is no failure. But where nobody waits for long enough to see one, a
// probe does.
func (s *Store) left() {
	s.counters.left.Add(1)
	if s.silent.Add(1) < int64(s.opts.Failures) {
		return
	}
	s.silent.Store(0)
	b := &s.breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.State() == Closed {
		b.doubted = true
		s.watch()
	}
}

// failed notes a failure, and opens the breaker where there were too many.
func (s *Store) failed() {
	row := s.row.Add(1)
	b := &s.breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.State() != Closed {
		return
	}
	calls, failed := b.count(s.now(), s.counters.answered.Load())
	if failed*2 >= calls && (row >= int64(s.opts.Failures) || calls >= enoughCalls) {
		s.open()
	}
}

// count counts a failure, and returns the numbers of this span and the one before it.
func (b *breaker) count(now int64, answered uint64) (calls, failed uint64) {
	if past := now - b.now.start; past >= int64(span) || b.now.failed == 0 {
		b.was = counted{}
		if past < 2*int64(span) && b.now.failed > 0 {
			b.was = counted{answered: answered - b.now.answered, failed: b.now.failed}
		}
		b.now = counted{start: now, answered: answered}
	}
	b.now.failed++
	failed = b.now.failed + b.was.failed
	return failed + answered - b.now.answered + b.was.answered, failed
}

// open opens the breaker, whose lock is held.
func (s *Store) open() {
	b := &s.breaker
	if b.returned && s.now()-b.closedAt < int64(calm) {
		b.interval = max(b.interval, min(2*b.interval, longestGap))
	} else {
		b.interval = s.opts.Probe
	}
	s.shares.begin(s.now(), time.Now().UnixNano())
	s.next.Store(s.now() + int64(b.interval))
	s.turn(Open)
	s.watch()
}

// turn changes the state. The breaker's lock is held.
func (s *Store) turn(to State) {
	b := &s.breaker
	from := State(s.state.Swap(int32(to)))
	s.counters.turned(from, to)
	if s.opts.OnTransition != nil {
		b.told = append(b.told, transition{from, to})
	}
}

// watch starts the goroutine that watches the store, unless it runs. The breaker's lock is held.
func (s *Store) watch() {
	if b := &s.breaker; !b.watched && !s.closed.Load() {
		b.watched = true
		s.tasks.Go(s.watcher)
	}
}

// watcher probes the store for as long as the breaker is open or the store doubted, and tells the transitions.
func (s *Store) watcher() {
	b := &s.breaker
	for {
		b.mu.Lock()
		told, doubted, open := b.told, b.doubted, s.State() == Open
		b.told, b.doubted = nil, false
		if s.closed.Load() || len(told) == 0 && !doubted && !open {
			b.watched = false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		for _, t := range told {
			s.opts.OnTransition(t.from, t.to)
		}
		switch {
		case open:
			s.tryAgain()
		case doubted && s.probe() != nil:
			b.mu.Lock()
			if s.State() == Closed && !s.closed.Load() {
				s.open()
			}
			b.mu.Unlock()
		}
	}
}

// tryAgain waits for its time, and probes the store.
func (s *Store) tryAgain() {
	if pause.For(s.life, time.Duration(s.next.Load()-s.now())) != nil {
		return
	}
	b := &s.breaker
	b.mu.Lock()
	s.turn(HalfOpen)
	b.mu.Unlock()
	err := s.probe()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		s.next.Store(s.now() + int64(b.interval))
		s.turn(Open)
		return
	}
	b.now, b.was = counted{}, counted{}
	b.closedAt, b.returned = s.now(), true
	s.row.Store(0)
	s.silent.Store(0)
	s.turn(Closed)
	s.shares.end()
}

// untilAsked is how long it is until the store is asked again.
func (s *Store) untilAsked() time.Duration {
	switch s.State() {
	case Open:
		return max(time.Duration(s.next.Load()-s.now()), s.opts.Deadline)
	case HalfOpen:
		return s.opts.Deadline
	}
	return s.opts.Probe // this call failed, and the next one may not
}
