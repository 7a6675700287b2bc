package failover

import (
	"fmt"
	"sync"
	"time"

	"github.com/weirflow/weir/internal/pause"
)

// State is the state of the circuit breaker.
type State int32

// The states of the breaker.
const (
	Closed   State = iota // the store is called
	Open                  // the store is not called
	HalfOpen              // the store is not called, except by a probe in flight
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
	span        = time.Second // failures of this span and the one before it count together
	enoughCalls = 20          // half of which must have failed
	// If the breaker opens again sooner than this after it closed, its probes prove little. A
	// failure sooner than this after another belongs to the same outage.
	calm       = time.Second
	longestGap = time.Second // the time between probes then grows up to this
)

// A breaker is the circuit breaker: the store's failures, and the goroutine that probes the store.
type breaker struct {
	mu       sync.Mutex
	now, was counted
	watched  bool // the goroutine runs
	doubted  bool // callers left before the store answered, so the store must be probed
	told     []transition
	interval time.Duration // until the next probe
	closedAt int64         // when it was closed last
	returned bool          // it was closed once
	outage   trouble
}

// trouble is what tells one outage from the next one.
type trouble struct {
	lasts    bool
	failedAt int64  // the last failure
	answered uint64 // how many calls the store had answered at the last failure
	before   uint64 // and when the outage began
}

// counted is the calls of a span of time.
type counted struct {
	start    int64
	answered uint64 // of the current span: the counter at its start; of the past one: how many
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

// left notes a caller whose context ended before the store answered. That is no failure of the
// store. But if no caller waits long enough to see one, a probe has to find out.
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

// failed notes a failure, and opens the breaker if there were too many.
func (s *Store) failed() {
	row := s.row.Add(1)
	b := &s.breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.State() != Closed {
		return
	}
	now, answered := s.now(), s.counters.answered.Load()
	s.suffer(now, answered)
	calls, failed := b.count(now, answered)
	if failed*2 >= calls && (row >= int64(s.opts.Failures) || calls >= enoughCalls) {
		s.open()
	}
}

// suffer notes that a call failed while the breaker is closed. The fallback decides about this call,
// so the outage begins here and not when the breaker opens: local shares are empty from now on. A
// failure after calm, with answers in between, begins another outage. The breaker's lock is held.
func (s *Store) suffer(now int64, answered uint64) {
	o := &s.breaker.outage
	if !o.lasts || answered != o.answered && now-o.failedAt >= int64(calm) {
		s.beginOutage(now, answered)
	}
	o.failedAt, o.answered = now, answered
}

// beginOutage begins an outage. The breaker's lock is held.
func (s *Store) beginOutage(now int64, answered uint64) {
	s.breaker.outage = trouble{lasts: true, failedAt: now, answered: answered, before: answered}
	s.shares.begin(now, time.Now().UnixNano())
}

// count counts a failure, and returns the totals of this span and the one before it.
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
	now, answered := s.now(), s.counters.answered.Load()
	if !b.outage.lasts || answered != b.outage.before {
		s.beginOutage(now, answered) // the store has answered since the first failure
	}
	s.next.Store(now + int64(b.interval))
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

// watcher probes the store while the breaker is open or the store is doubted, and reports the
// transitions.
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

// tryAgain waits until it is time for the next probe, and makes it.
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
	b.now, b.was, b.outage = counted{}, counted{}, trouble{}
	b.closedAt, b.returned = s.now(), true
	s.row.Store(0)
	s.silent.Store(0)
	s.turn(Closed)
	s.shares.end()
}

// untilAsked returns how long it takes until the store is called again.
func (s *Store) untilAsked() time.Duration {
	switch s.State() {
	case Open:
		return max(time.Duration(s.next.Load()-s.now()), s.opts.Deadline)
	case HalfOpen:
		return s.opts.Deadline
	}
	return s.opts.Probe // this call failed; the next one may succeed
}
