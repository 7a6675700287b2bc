package adaptive

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive/signals"
	"github.com/weirflow/weir/internal/held"
)

// Options are the settings of a Limiter.
type Options struct {
	Algorithm Algorithm // how the limit is found; default: Knee{}
	Name      string    // becomes Decision.By of a refusal

	Partitions []Partition // shares of the limit for some of the requests
	Queue      Queue       // how requests wait that find no place; default: they do not

	// Clock replaces the clock, for virtual time: nanoseconds that never go back. A finished request
	// whose duration is not above 0 counts as 1 ns. Waits in the queue end in real time.
	Clock func() int64

	// Signals say whether the machine bears its load, for BBR: a Monitor of package adaptive/signals.
	Signals signals.Source

	// Draw replaces the random numbers of Vegas, from 0 up to but not including 1.
	Draw func() float64
}

// A Limiter limits how many requests are in flight, and finds the limit itself. All methods are safe
// for concurrent use. It starts no goroutine and needs no Close.
//
// Entering and leaving are lock-free and allocate nothing. Some of the requests are measured: all of
// them up to about 60,000 a second, and of more so many that measuring takes less than 1 % of a
// core. The request that ends a period changes the limit, which takes about ten microseconds.
type Limiter struct {
	name  string
	clock func() int64 // nil: time.Since(start)
	start time.Time

	// plan has what callers need of the plan in force: see the constants in word.go
	plan   atomic.Uint64
	ranked atomic.Bool              // requests differ in priority or user
	leave  [levelCount]atomic.Int64 // how many places those of a level leave free

	// keeps the word, which every call writes, off the cache line that every call reads
	_    [64]byte
	word atomic.Uint64
	_    [56]byte

	slots [slotCount]holder
	pool  sync.Pool // holders beyond the slots

	window  window
	waves   bool   // a sample has the requests in flight when it began or ended, whichever are more: Knee
	paced   *paced // nil unless the algorithm is BBR
	refused atomic.Uint64
	waited  atomic.Uint64 // how many requests had to wait
	ignored atomic.Uint64
	dropped atomic.Uint64
	pooled  atomic.Uint64 // how many lives of pooled holders have ended

	gate gate
}

// New returns a limiter. The error says which parameter is invalid.
func New(o Options) (*Limiter, error) {
	if o.Algorithm == nil {
		o.Algorithm = Knee{}
	}
	if err := o.Algorithm.Validate(); err != nil {
		return nil, err
	}
	if err := validPartitions(o.Partitions); err != nil {
		return nil, err
	}
	if err := o.Queue.complete(); err != nil {
		return nil, err
	}
	if o.Draw == nil {
		o.Draw = rand.Float64
	}
	l := &Limiter{name: o.Name, clock: o.Clock, start: time.Now()}
	for i := range l.slots {
		l.slots[i].l, l.slots[i].slot = l, 2<<i
	}
	l.pool.New = func() any { return &holder{l: l} }
	var first plan
	l.window.controller, first = o.Algorithm.begin(o.Draw)
	_, l.waves = l.window.controller.(*knee)
	l.window.counted = l.now()
	l.apply(first, 0)
	var err error
	if l.paced, err = newPaced(l, o); err != nil {
		return nil, err
	}
	l.gate.init(l, o)
	return l, nil
}

func (l *Limiter) now() int64 {
	if l.clock != nil {
		return l.clock()
	}
	return int64(time.Since(l.start))
}

// Enter takes a place and returns it as a Hold: the caller must call Done when the request has
// finished. If the limit is reached, it returns a *weir.LimitedError, in which errors.Is finds
// weir.ErrLimited. Its RetryAfter is weir.Never, as nobody knows when a place is left. If the
// context has ended, Enter returns its error.
func (l *Limiter) Enter(ctx context.Context) (Hold, error) {
	if err := ctx.Err(); err != nil {
		return Hold{}, err
	}
	if h, ok := l.take(0, nil); ok {
		return h, nil
	}
	return l.enterSlowly(ctx, anyone)
}

// TryEnter takes a place if one is free now. It is Enter that never waits, without an error to
// allocate.
func (l *Limiter) TryEnter() (Hold, bool) { return l.take(0, &anyone) }

// Do enters, calls fn, and leaves. If it cannot enter, it returns Enter's error and does not call
// fn; otherwise it returns fn's error. The outcome depends on how fn ends:
//
//   - OK: fn returns nil.
//   - Dropped: fn returns an error in which errors.Is finds context.DeadlineExceeded or
//     weir.ErrLimited; or fn panics or ends the goroutine, which Do lets continue.
//   - Ignore: fn returns any other error, such as context.Canceled.
func (l *Limiter) Do(ctx context.Context, fn func(context.Context) error) error {
	h, err := l.Enter(ctx)
	if err != nil {
		return err
	}
	return held.Do[weir.Outcome](ctx, h, weir.ErrLimited, fn)
}

// Limit returns the limit in force.
func (l *Limiter) Limit() int64 { return limitOf(l.plan.Load()) }

// InFlight returns how many requests are in flight. It exceeds the limit only after the limit was
// lowered.
func (l *Limiter) InFlight() int64 { return inFlight(l.word.Load()) }

// Outcomes counts the requests so far.
type Outcomes struct {
	OK, Ignored, Dropped uint64 // those that have finished
	Refused              uint64 // those that got no place
}

// Outcomes returns how many requests have finished or were refused so far.
func (l *Limiter) Outcomes() Outcomes {
	o := Outcomes{Ignored: l.ignored.Load(), Dropped: l.dropped.Load(), Refused: l.refused.Load()}
	o.OK = l.pooled.Load()
	for i := range l.slots {
		o.OK += l.slots[i].life.Load()
	}
	if others := o.Ignored + o.Dropped; o.OK >= others {
		o.OK -= others
	}
	return o
}
