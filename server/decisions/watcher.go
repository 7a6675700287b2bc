package decisions

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/policy"
)

// An Event is a decision, and when it was made.
type Event struct {
	At time.Time
	policy.Observed
}

// IsRefused reports whether the work may not go on; of a shadow limit, whether it would have refused.
func (e *Event) IsRefused() bool { return refused(e.Outcome) }

func refused(o policy.Outcome) bool { return o != policy.Allow && o != policy.Delay }

// A Filter says which decisions a watcher gets. The zero value is for all of them.
type Filter struct {
	Limits   []string         // only those of these limits
	Outcomes []policy.Outcome // only these
	Routes   []string         // only those of routes with these matches
	Key      string           // only those of this key, as policy.EncodeKey returns it; empty for all
	Shadows  Shadows

	// PerSecond is how many events of refused work the watcher gets in a second, and as many of other work:
	// a flood of one sort does not hide the other. default: 100
	PerSecond int
}

// Shadows says what a watcher gets of shadow limits.
type Shadows uint8

// What a watcher gets of shadow limits.
const (
	WithShadows    Shadows = iota // their decisions, too
	WithoutShadows                // none
	OnlyShadows                   // only theirs
)

// Bounds of Filter.PerSecond.
const (
	defaultPerSecond = 100
	MostPerSecond    = 10_000
)

// Lost is how many decisions that fit the filter a watcher did not get, because there were more than
// PerSecond, or because nobody called Next in time.
type Lost struct{ Refused, Others uint64 }

// A Watcher collects decisions until Next takes them.
type Watcher struct {
	of     *Observers
	filter Filter
	logs   bool // it is that of the log

	refused, others sort

	mu     sync.Mutex
	events []Event // at most what room is in both sorts
	filled time.Time
	once   sync.Once
}

// sort counts the events of one of both sorts.
type sort struct {
	room atomic.Int64 // for how many more events there is room
	lost atomic.Uint64
	rest time.Duration // of the time that has made no room yet. Guarded by the watcher's mutex
}

func newWatcher(o *Observers, f Filter) *Watcher {
	if f.PerSecond <= 0 {
		f.PerSecond = defaultPerSecond
	}
	f.PerSecond = min(f.PerSecond, MostPerSecond)
	w := &Watcher{of: o, filter: f, filled: time.Now()}
	w.refused.room.Store(int64(f.PerSecond))
	w.others.room.Store(int64(f.PerSecond))
	return w
}

func (w *Watcher) sort(o policy.Outcome) *sort {
	if refused(o) {
		return &w.refused
	}
	return &w.others
}

// fits reports whether a decision fits the part of the filter that is known before its key is.
func (w *Watcher) fits(o policy.Outcome, limit string, shadow bool) bool {
	f := &w.filter
	return (len(f.Limits) == 0 || slices.Contains(f.Limits, limit)) && (len(f.Outcomes) == 0 || slices.Contains(f.Outcomes, o)) &&
		(f.Shadows == WithShadows || (f.Shadows == OnlyShadows) == shadow)
}

// hasRoom reports whether there may be room for a decision that fits so far: for one whose key or route has
// yet to be compared, too.
func (w *Watcher) hasRoom(o policy.Outcome) bool {
	return w.filter.Key != "" || len(w.filter.Routes) > 0 || w.sort(o).room.Load() > 0
}

// take adds an event that fits, or counts it as lost.
func (w *Watcher) take(e *Event) {
	f := &w.filter
	if !w.fits(e.Outcome, e.Limit, e.Shadow) || f.Key != "" && f.Key != e.Key || len(f.Routes) > 0 && !slices.Contains(f.Routes, e.Match) {
		return
	}
	s := w.sort(e.Outcome)
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.room.Load() <= 0 {
		s.lost.Add(1)
		return
	}
	s.room.Add(-1)
	w.events = append(w.events, *e)
}

// Next returns the events since the last call, and makes room for more by the time that has gone by.
func (w *Watcher) Next(now time.Time) (events []Event, lost Lost) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events, w.events = w.events, nil
	passed := min(max(now.Sub(w.filled), 0), time.Second)
	w.filled = now
	w.refused.refill(passed, w.filter.PerSecond)
	w.others.refill(passed, w.filter.PerSecond)
	return events, Lost{w.refused.lost.Swap(0), w.others.lost.Swap(0)}
}

// refill makes room for what may come in a time.
func (s *sort) refill(passed time.Duration, perSecond int) {
	each := time.Second / time.Duration(perSecond)
	passed += s.rest
	n := int64(passed / each)
	s.rest = passed % each
	s.room.Store(min(s.room.Load()+n, int64(perSecond)))
}

// Close ends the watcher.
func (w *Watcher) Close() { w.once.Do(func() { w.of.leave(w) }) }
