package pacing

import (
	"context"
	"sync"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/heap"
	"github.com/weirflow/weir/internal/pause"
)

// LevelTime is what a level of priority is worth: a request goes before those of the level below that
// have waited for up to this much longer.
const LevelTime = 10 * time.Second

// MaxLevel is the highest level of priority, and -MaxLevel the lowest.
const MaxLevel = 10

// Lines are requests that wait until they may be sent: a line for each key. The first one of a line
// tries, while the others wait. It is safe for concurrent use, and starts no goroutine.
//
// # Priority
//
// The request goes first whose time of arrival, less LevelTime for each level, is the earliest. So a
// request of level 2 goes before all of level 0 that came up to 20 s before it. A request waits for
// no other that came later than LevelTime for each level between them: none waits for ever.
type Lines struct {
	most int

	mu      sync.Mutex
	lines   map[string]*line
	waiting int
}

// NewLines returns lines for at most so many requests together.
func NewLines(most int) *Lines { return &Lines{most: most, lines: map[string]*line{}} }

// A line is the requests with one key.
type line struct{ heap.Heap[waiter] }

// A waiter is a request in a line.
type waiter struct {
	node  heap.Node[waiter]
	costs []int64
	turn  chan struct{} // has room for one: it became the first, or is it no longer
}

// A Try is the result of an attempt to send a request.
type Try struct {
	Sent bool          // it may be sent, and everything for it is charged
	Err  error         // it can never be sent
	Wait time.Duration // otherwise: when to try again; weir.Never: nobody knows when
	// Sooner is whether a try may succeed before Wait, so that no deadline is too near for it.
	Sooner bool
	// closed when a try may succeed sooner; the try has taken it before it looked. nil for none
	Changed <-chan struct{}
	By      weir.Decision // of the limit that refused, for errors
}

// A Request is one that is to be sent.
type Request struct {
	Key     string
	Level   int       // higher ones go first; from -MaxLevel to MaxLevel
	Arrived time.Time // zero: now. A retry keeps the time of its first attempt
	Costs   []int64   // of each limit
	// TooLate returns an error if the turn after other requests would come after the context's
	// deadline. costs is what those before it and it cost together, of each limit. May be nil.
	TooLate func(costs []int64) error
}

// Unknown is how often a request tries whose Try says weir.Never, besides at each change.
const unknown = 50 * time.Millisecond

// Wait calls try until it has sent the request or failed. It is not called by two requests of one key
// at once, unless none waits. Wait returns an error at once if the turn would come after the
// context's deadline: errors.Is finds weir.ErrLimited and context.DeadlineExceeded in it. It does so
// too, with weir.ErrLimited alone, if too many requests wait already. If the context ends first, it
// returns its error.
func (l *Lines) Wait(ctx context.Context, r Request, try func() Try) error {
	var w *waiter
	if l.has(r.Key) {
		if w = l.join(&r); w == nil {
			return &weir.LimitedError{Decision: weir.Decision{RetryAfter: time.Second}}
		}
		defer l.leave(r.Key, w)
		if err := l.late(ctx, &r, w); err != nil {
			return err
		}
	}
	for {
		if w != nil && !l.first(r.Key, w) {
			if err := pause.Until(ctx, w.turn); err != nil {
				return err
			}
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		t := try()
		if t.Sent || t.Err != nil {
			return t.Err
		}
		if err := tooLate(ctx, t); err != nil {
			return err
		}
		if w == nil {
			if w = l.join(&r); w == nil {
				return &weir.LimitedError{Decision: t.By}
			}
			defer l.leave(r.Key, w)
		}
		if err := w.sleep(ctx, t); err != nil {
			return err
		}
	}
}

// tooLate returns an error if the next try comes after the context's deadline.
func tooLate(ctx context.Context, t Try) error {
	end, ok := ctx.Deadline()
	if !ok || t.Sooner || t.Wait == weir.Never || time.Until(end) > t.Wait {
		return nil
	}
	d := t.By
	d.Allowed, d.RetryAfter = false, t.Wait
	return &weir.LimitedError{Decision: d, Deadline: true}
}

// sleep waits for the next try.
func (w *waiter) sleep(ctx context.Context, t Try) error {
	d := t.Wait
	if d == weir.Never {
		d = unknown
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Changed:
	case <-w.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Waiting is how many requests wait.
func (l *Lines) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}

// Busy reports whether requests with a key wait.
func (l *Lines) Busy(key string) bool { return l.has(key) }

func (l *Lines) has(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines[key] != nil
}

// join puts a request in its place in the line. It returns nil if too many wait.
func (l *Lines) join(r *Request) *waiter {
	if r.Arrived.IsZero() {
		r.Arrived = time.Now()
	}
	level := min(max(r.Level, -MaxLevel), MaxLevel)
	w := &waiter{costs: r.Costs, turn: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting >= l.most {
		return nil
	}
	of := l.lines[r.Key]
	if of == nil {
		of = &line{}
		l.lines[r.Key] = of
	}
	l.waiting++
	before, _ := of.First()
	of.Push(&w.node, w, r.Arrived.Add(-time.Duration(level)*LevelTime).UnixNano())
	if first, _ := of.First(); first == w && before != nil {
		before.wake()
	}
	return w
}

// leave removes a request from its line. The next one has its turn.
func (l *Lines) leave(key string, w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.lines[key]
	first, _ := of.First()
	of.Remove(&w.node)
	l.waiting--
	if of.Len() == 0 {
		delete(l.lines, key)
	} else if first == w {
		next, _ := of.First()
		next.wake()
	}
}

// first reports whether a waiter may try.
func (l *Lines) first(key string, w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, _ := l.lines[key].First()
	return first == w
}

func (w *waiter) wake() {
	select {
	case w.turn <- struct{}{}:
	default:
	}
}

// late returns an error if the turn of a request that others are before would come too late.
func (l *Lines) late(ctx context.Context, r *Request, w *waiter) error {
	if _, ok := ctx.Deadline(); !ok || r.TooLate == nil {
		return nil
	}
	return r.TooLate(l.ahead(r.Key, w))
}

// ahead is what a request and those before it cost together.
func (l *Lines) ahead(key string, w *waiter) []int64 {
	sum := make([]int64, len(w.costs))
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.lines[key]
	own := of.Key(&w.node)
	for i := range of.Len() {
		other, at := of.At(i)
		if at > own {
			continue
		}
		for j, c := range other.costs {
			sum[j] += min(c, 1<<40) // so that no sum overflows
		}
	}
	return sum
}
