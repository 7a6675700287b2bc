package failover

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pause"
)

// State is the state of a circuit breaker.
type State int32

// The states of a breaker.
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

// trouble is what tells one outage from the next.
type trouble struct {
	lasts    bool
	failedAt int64  // the last failure
	answered uint64 // how many calls the shard had answered at the last failure
	before   uint64 // and when the outage began
}

// counted is the calls of a span of time.
type counted struct {
	start    int64
	answered uint64 // of the current span: the counter at its start; of the past one: how many
	failed   uint64
}

type transition struct {
	from, to State
	cause    error
}

// A failure is the latest failure of a shard: of a call before its breaker opened, or of a probe.
type failure struct {
	at  int64
	err error
}

// answered notes that the store answered a call about some charges.
func (s *Store) answered(batch []weir.Charge) {
	s.counters.answered.Add(1)
	if s.shards.sharded == nil {
		s.shards.whole.heard()
		return
	}
	if len(*s.shards.byName.Load()) > 0 {
		s.sort(batch, func(*weir.Charge) bool { return true }, nil)
	}
}

// sort tells the shards of some charges, once each, whether they answered a call. One that left
// any charge unanswered has not.
func (s *Store) sort(batch []weir.Charge, answered func(*weir.Charge) bool, silent func(*shard, *weir.Charge)) {
	var room [8]*shard
	seen := room[:0]
	for i := range batch {
		if !answered(&batch[i]) {
			if d := s.failing(&batch[i]); !slices.Contains(seen, d) {
				seen = append(seen, d)
				silent(d, &batch[i])
			}
		}
	}
	for i := range batch {
		if d := s.shards.of(&batch[i]); d != nil && answered(&batch[i]) && !slices.Contains(seen, d) {
			seen = append(seen, d)
			if d != &s.shards.whole { // whose answers are those of the store
				d.answered.Add(1)
			}
			d.heard()
		}
	}
}

// unanswered notes that the store failed to answer a call about some charges: all of them, or those
// whose Err is about the store. err is the error of the call. left means that the caller did not wait
// for it.
func (s *Store) unanswered(batch []weir.Charge, err error, all, left bool) {
	silent := func(d *shard, c *weir.Charge) {
		if all {
			s.failed(d, err)
		} else {
			s.failed(d, c.Err)
		}
	}
	if left {
		silent = func(d *shard, _ *weir.Charge) { s.left(d) }
	} else if all && s.several(batch) {
		// Any of the shards may have failed. A probe finds out which.
		silent = func(d *shard, _ *weir.Charge) { s.suffered(d); s.left(d) }
	}
	s.sort(batch, func(c *weir.Charge) bool { return !all && !ofStore(c.Err) }, silent)
}

// several reports whether charges are about several shards.
func (s *Store) several(batch []weir.Charge) bool {
	if s.shards.sharded == nil || len(batch) < 2 {
		return false
	}
	first := s.shards.sharded.Shard(batch[0].Name, batch[0].Key)
	return slices.ContainsFunc(batch[1:], func(c weir.Charge) bool { return s.shards.sharded.Shard(c.Name, c.Key) != first })
}

// left notes a caller whose context ended before the shard answered. That is no failure of the
// shard. But if no caller waits long enough to see one, a probe has to find out.
func (s *Store) left(d *shard) {
	if d.silent.Add(1) < int64(s.opts.Failures) {
		return
	}
	s.shards.mu.Lock()
	defer s.shards.mu.Unlock()
	d = s.live(d)
	d.silent.Store(0)
	if d.State() == Closed {
		d.doubted = true
		s.watch(d)
	}
}

// failed notes a failure, and opens the breaker if there were too many.
func (s *Store) failed(d *shard, err error) {
	row := d.row.Add(1)
	s.shards.mu.Lock()
	defer s.shards.mu.Unlock()
	if d = s.live(d); d.State() != Closed {
		return
	}
	now, answered := s.now(), d.answered.Load()
	d.suffer(now, answered)
	calls, failed := d.count(now, answered)
	if failed*2 >= calls && (row >= int64(s.opts.Failures) || calls >= enoughCalls) {
		s.open(d, err)
	}
}

// suffered notes that the fallback decides about a call, without a failure of this shard for sure.
func (s *Store) suffered(d *shard) {
	s.shards.mu.Lock()
	defer s.shards.mu.Unlock()
	if d = s.live(d); d.State() == Closed {
		d.suffer(s.now(), d.answered.Load())
	}
}

// suffer notes that a call failed while the breaker is closed. The fallback decides about this call,
// so the outage begins here and not when the breaker opens: local shares are empty from now on. A
// failure after calm, with answers in between, begins another outage. The lock is held.
func (d *shard) suffer(now int64, answered uint64) {
	o := &d.trouble
	if !o.lasts || answered != o.answered && now-o.failedAt >= int64(calm) {
		d.beginOutage(now, answered)
	}
	o.failedAt, o.answered = now, answered
}

// beginOutage begins an outage. The lock is held.
func (d *shard) beginOutage(now int64, answered uint64) {
	d.trouble = trouble{lasts: true, failedAt: now, answered: answered, before: answered}
	d.outage.Store(&outage{shard: d, began: reading{now, time.Now().UnixNano()}})
}

// count counts a failure, and returns the totals of this span and the one before it.
func (d *shard) count(now int64, answered uint64) (calls, failed uint64) {
	if past := now - d.now.start; past >= int64(span) || d.now.failed == 0 {
		d.was = counted{}
		if past < 2*int64(span) && d.now.failed > 0 {
			d.was = counted{answered: answered - d.now.answered, failed: d.now.failed}
		}
		d.now = counted{start: now, answered: answered}
	}
	d.now.failed++
	failed = d.now.failed + d.was.failed
	return failed + answered - d.now.answered + d.was.answered, failed
}

// open opens a breaker because of an error. The lock is held.
func (s *Store) open(d *shard, err error) {
	if d.returned && s.now()-d.closedAt < int64(calm) {
		d.interval = max(d.interval, min(2*d.interval, longestGap))
	} else {
		d.interval = s.opts.Probe
	}
	now, answered := s.now(), d.answered.Load()
	if !d.trouble.lasts || answered != d.trouble.before {
		d.beginOutage(now, answered) // the shard has answered since the first failure
	}
	d.next.Store(now + int64(d.interval))
	s.turn(d, Open, err)
	s.watch(d)
}

// turn changes the state of a breaker; to Open because of an error. The lock is held.
func (s *Store) turn(d *shard, to State, cause error) {
	if cause != nil {
		d.failure.Store(&failure{s.now(), cause})
	}
	from := State(d.state.Swap(int32(to)))
	switch {
	case from == Closed:
		s.shards.down.Add(1)
	case to == Closed:
		s.shards.down.Add(-1)
	}
	s.counters.turned(from, to)
	if s.opts.OnTransition != nil {
		d.unreported = append(d.unreported, transition{from, to, cause})
	}
}

// watch starts the goroutine that watches a shard, unless it runs. The lock is held.
func (s *Store) watch(d *shard) {
	if !d.watched && !s.closed.Load() {
		d.watched = true
		s.tasks.Go(func() { s.watcher(d) })
	}
}

// watcher probes a shard while its breaker is open or it is doubted, and reports the transitions.
func (s *Store) watcher(d *shard) {
	for {
		s.shards.mu.Lock()
		unreported, doubted, open := d.unreported, d.doubted, d.State() == Open
		d.unreported, d.doubted = nil, false
		if s.closed.Load() || len(unreported) == 0 && !doubted && !open {
			if d.watched = false; d.State() == Closed && s.shards.isGone(d) {
				s.drop(d)
			}
			s.shards.mu.Unlock()
			return
		}
		s.shards.mu.Unlock()
		s.report(d.name, unreported)
		switch {
		case open:
			s.tryAgain(d)
		case doubted:
			s.findOut(d)
		}
	}
}

// findOut probes a doubted shard, and opens its breaker if that fails.
func (s *Store) findOut(d *shard) {
	err := s.probe(d)
	if err == nil {
		return
	}
	s.shards.mu.Lock()
	defer s.shards.mu.Unlock()
	if d.State() == Closed && !s.closed.Load() && !s.shards.isGone(d) {
		s.open(d, err)
	}
}

// report reports transitions of a breaker.
func (s *Store) report(shard string, transitions []transition) {
	if len(transitions) == 0 {
		return
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	for _, t := range transitions {
		s.opts.OnTransition(shard, t.from, t.to, t.cause)
	}
}

// tryAgain waits until it is time for the next probe, and makes it. The breaker of a shard that is
// gone closes: its keys are with other shards now.
func (s *Store) tryAgain(d *shard) {
	if pause.For(s.life, time.Duration(d.next.Load()-s.now())) != nil {
		return
	}
	s.shards.mu.Lock()
	s.turn(d, HalfOpen, nil)
	s.shards.mu.Unlock()
	err := s.probe(d)
	s.shards.mu.Lock()
	defer s.shards.mu.Unlock()
	if err != nil && !s.shards.isGone(d) {
		d.next.Store(s.now() + int64(d.interval))
		s.turn(d, Open, err)
		return
	}
	d.now, d.was, d.trouble = counted{}, counted{}, trouble{}
	d.closedAt, d.returned = s.now(), true
	d.row.Store(0)
	d.silent.Store(0)
	s.turn(d, Closed, nil)
	s.shares.end(d)
}

// untilAsked returns how long it takes until a shard is called again.
func (s *Store) untilAsked(d *shard) time.Duration {
	switch d.State() {
	case Open:
		return max(time.Duration(d.next.Load()-s.now()), s.opts.Deadline)
	case HalfOpen:
		return s.opts.Deadline
	}
	return s.opts.Probe // this call failed; the next one may succeed
}
