package decisions

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
)

// Bounds of the refusals that are kept for Refusals: about 1 MiB.
const (
	mostKept    = 4096
	keptAtOnce  = 50 // in keptEvery
	keptEvery   = 100 * time.Millisecond
	mostRefused = 10 // of one key
)

// latest keeps the latest refusals. In a flood, it keeps some of them.
type latest struct {
	room   atomic.Int64 // for how many more there is room
	filled atomic.Int64 // when room was made, as a Unix time in nanoseconds

	mu   sync.Mutex
	ring []Event
	next int // where the next one goes
}

// wants takes room for a refusal. It reads no clock: each Timed does, which is called for one of about policy.TimedOneIn
// decisions.
func (l *latest) wants() bool { return l.room.Load() > 0 && l.room.Add(-1) >= 0 }

// refill makes room, if that was long enough ago.
func (l *latest) refill(now time.Time) {
	if last := l.filled.Load(); now.UnixNano()-last >= int64(keptEvery) && l.filled.CompareAndSwap(last, now.UnixNano()) {
		l.room.Store(keptAtOnce)
	}
}

// keep keeps a refusal, in place of the oldest one.
func (l *latest) keep(e *Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ring) < mostKept {
		l.ring = append(l.ring, *e)
		return
	}
	l.ring[l.next] = *e
	l.next = (l.next + 1) % mostKept
}

// A Refusal is what an explanation of a key says of a refusal.
type Refusal struct {
	At         string `json:"at"`
	Route      string `json:"route,omitempty"`
	Cost       int64  `json:"cost"`
	Capacity   int64  `json:"capacity"`
	Remaining  int64  `json:"remaining"`
	RetryAfter *int64 `json:"retry_after_ms,omitempty"` // rounded up; nil if no wait helps
	Shadow     bool   `json:"shadow,omitempty"`
	Banned     bool   `json:"banned,omitempty"`
}

// Refusal returns an event in that form.
func (e *Event) Refusal() Refusal {
	r := Refusal{
		At: e.At.UTC().Format("2006-01-02T15:04:05.000Z"), Route: e.Match, Cost: e.Cost, Capacity: e.Decision.Limit, Remaining: e.Decision.Remaining,
		Shadow: e.Shadow, Banned: e.Banned,
	}
	if after := e.Decision.RetryAfter; after != weir.Never {
		r.RetryAfter = new(int64((max(after, 0) + time.Millisecond - 1) / time.Millisecond))
	}
	return r
}

// Refusals returns the latest refusals of a key at a limit, the latest first, at most ten. The key is as policy.EncodeKey
// returns it. Of all limits, the latest 4096 are kept, and at most 500 in a second: in a flood, some are missing.
func (o *Observers) Refusals(limit, key string) []Refusal {
	found := []Refusal{} // in JSON an empty list
	l := &o.latest
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.ring) - 1; i >= 0 && len(found) < mostRefused; i-- {
		if e := &l.ring[(l.next+i)%len(l.ring)]; e.Limit == limit && e.Key == key {
			found = append(found, e.Refusal())
		}
	}
	return found
}
