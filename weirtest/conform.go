package weirtest

import (
	"embed"
	"io/fs"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// A Subject is an implementation of limits that Conform compares with the reference model: an
// in-process limiter, or a store.
type Subject struct {
	// Tick is its clock unit; default: a nanosecond.
	Tick time.Duration
	// Latest is the latest reading of its clock, in clock units; default: the end of a 64-bit
	// nanosecond clock. A Subject with a Latest, such as a store, is tested less at the extremes:
	// no reading is negative, no cost exceeds what a double can count exactly, and states with a
	// wait or a debt of more than a century are not compared further.
	Latest int64
	// Open returns a new Taker of a limit. Its clock reads nanoseconds and stands still until it is
	// set. Conform also tests those of Peeker, Reserver, Joiner, KeptJoiner, Keeper, SomeTaker and Setter
	// that the Taker implements, and reservations that are Expiring. It closes a Taker that implements
	// io.Closer. The scripts need a Holder; there, By of decisions is the name of the algorithm, such as
	// token_bucket.
	Open func(l weir.Limit, c *Clock) (Taker, error)
	// Blind means that the Subject is a store: it has only the states. Those of TokenBucket, LeakyBucket,
	// SmoothBursty, IntervalBucket and WarmUp hold their outstanding reservations, as NewStoreModel has
	// it. Its keys have a state for each of the
	// last two versions of their limit, and clocks that go on where the store's steps back: see
	// Versions. Its Takers must be Switchers.
	Blind bool
	// Places returns a store that keeps the places of Concurrency limits; nil for a Subject that
	// keeps none. All stores that it returns share their places. Conform closes those that implement
	// io.Closer.
	Places func() (policy.Holder, error)
	// Limits draw the limits for the random walks, with random parameters; default: Limits, or
	// StoredLimits for a Blind subject.
	Limits []func(random *rand.Rand) weir.Limit

	Seed  uint64 // of the random walks; the same seed always gives the same walks
	Walks int    // per algorithm; default: 200
	Steps int    // calls in each walk; default: 60
}

// A Taker decides about keys.
type Taker interface {
	Take(key string, cost int64) weir.Decision
}

// A Peeker decides like Take, but charges nothing.
type Peeker interface {
	Peek(key string, cost int64) weir.Decision
}

// A Reserver charges ahead of time.
type Reserver interface {
	Reserve(key string, cost int64, maxDelay time.Duration) (Reservation, bool)
}

// A Joiner has queues to wait in.
type Joiner interface {
	Join(key string, cost int64, maxDelay time.Duration) (*weir.Place, weir.Decision)
}

// A KeptJoiner has places in queues that can be settled, before and after their turns.
type KeptJoiner interface {
	JoinKept(key string, cost int64) (KeptPlace, weir.Decision)
}

// A KeptPlace is a place of JoinKept. *weir.Place is one.
type KeptPlace interface {
	Ready() <-chan struct{}
	Delay() time.Duration
	Settle(actual int64)
}

// A Keeper is a store whose takes can be settled: OpTake with Keep. estimate is the Estimate of the
// charge.
type Keeper interface {
	TakeKept(key string, cost int64, estimate bool) (Reservation, bool)
}

// A SomeTaker is a store that charges as much of a cost as there is: OpTakeSome. taken is 0 where the
// decision is a refusal.
type SomeTaker interface {
	TakeSome(key string, cost int64) (taken int64, d weir.Decision)
}

// An Expiring is a Reservation in a store. SettleInTime is Settle, and reports whether the store has
// remembered the reservation until then: if not, it stays charged, and the store's error is
// weir.ErrExpired.
type Expiring interface {
	Reservation
	SettleInTime(actual int64) bool
}

// A Setter changes its limit.
type Setter interface {
	SetLimit(weir.Limit) error
}

// A Switcher is a store whose callers have different versions of a limit: the following calls are
// those of a caller with another version. Unlike SetLimit, it carries no state over.
type Switcher interface {
	Switch(weir.Limit) error
}

// TB is the part of *testing.T that Conform needs.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
}

//go:embed testdata
var testdata embed.FS

// Testdata returns the scripts of each limit (*.weir), and the test vectors of other
// implementations.
func Testdata() fs.FS {
	sub, err := fs.Sub(testdata, "testdata")
	if err != nil {
		panic(err) // the name is a constant
	}
	return sub
}

// Conform compares a subject with the reference model, the scripts of this package (if it is a
// Holder) and the test vectors of other implementations.
//
// The comparison with the model uses random walks, with any cost and a clock that steps back and
// jumps. If the subject supports them, the walks include reservations, queues and changes of the
// limit. All fields of a decision must be equal, except Source. By is compared only for an All:
// after a slash, it names the limit that decided. Conform shortens a failing walk as far as
// possible, and reports it call by call.
//
// A store that keeps places is compared with a model of them: two stores share the places, no more
// is held than the limit, a place that was left comes back once, and callers that give up hold
// nothing. Its clock is the real one, and it may give back a place in the background.
func Conform(t TB, s Subject) {
	t.Helper()
	if s.Tick == 0 {
		s.Tick = 1
	}
	if s.Walks == 0 {
		s.Walks = 200
	}
	if s.Steps == 0 {
		s.Steps = 60
	}
	limits := s.Limits
	if limits == nil && s.Blind {
		limits = StoredLimits()
	} else if limits == nil {
		limits = Limits()
	}
	for i, draw := range limits {
		for walk := range s.Walks {
			random := rand.New(rand.NewPCG(s.Seed, uint64(i)<<32|uint64(walk)))
			w := s.walk(random, draw, limits)
			found, err := s.try(w)
			if err != nil {
				t.Errorf("%v: %v", w.limit, err)
				return
			}
			if found != nil {
				w, found = s.shorten(w, found)
				t.Errorf("seed %d: %T does not do as the model:\n%s%s", s.Seed, w.limit, w.script(s.Tick), found)
				break
			}
		}
	}
	if s.Limits == nil {
		Vectors(t, s)
	}
	s.scripts(t)
	if s.Places != nil {
		s.places(t)
	}
}

func (s Subject) scripts(t TB) {
	t.Helper()
	probe, err := s.Open(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, new(Clock))
	if err != nil {
		t.Errorf("a token bucket cannot be opened: %v", err)
		return
	}
	shut(probe)
	if _, ok := probe.(Switcher); !ok && s.Blind {
		t.Errorf("%T has no method Switch: callers of a store may have two versions of a limit at once, as during a rolling deploy", probe)
	}
	if _, ok := probe.(Holder); !ok || s.Tick != 1 || s.Limits != nil {
		t.Logf("the scripts are left out: they ask for all verbs, for each limit, and for a clock of nanoseconds")
		return
	}
	r := Runner{Open: func(l weir.Limit, c *Clock) (Holder, error) {
		opened, err := s.Open(l, c)
		if err != nil {
			return nil, err
		}
		return opened.(Holder), nil
	}}
	names, err := fs.Glob(Testdata(), "*.weir")
	if err != nil {
		t.Errorf("%v", err)
	}
	for _, name := range names {
		f, err := Testdata().Open(name)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		mismatches, err := r.Run(name, f)
		if err != nil {
			t.Errorf("%v", err)
		}
		for _, m := range mismatches {
			t.Errorf("%s", m)
		}
		shut(f)
	}
}

// shut closes v if it is an io.Closer.
func shut(v any) {
	if c, ok := v.(interface{ Close() error }); ok {
		_ = c.Close() // a test's own
	}
}

// try makes the calls on a subject and on a model, until the results differ.
func (s Subject) try(w walk) (*difference, error) {
	clock := new(Clock)
	clock.Set(w.calls[0].at * int64(s.Tick))
	subject, err := s.Open(w.limit, clock)
	if err != nil {
		return nil, err
	}
	defer shut(subject)
	p := &pair{blind: s.Blind, tick: s.Tick, doubles: s.Latest > 0, clock: clock, limit: w.limit, subject: subject, models: map[string]reference{}, made: map[int]made{}, queued: map[int]queuedPlace{}, kept: map[int]keptPlace{}}
	for i, c := range w.calls {
		if got, want := p.do(i, c); got != want {
			if s.Latest > 0 && strings.Contains(want, time.Duration(math.MaxInt64).String()) {
				break // beyond the end of a store's clock
			}
			return &difference{i, got, want}, nil
		}
		if s.Latest > 0 && p.endless() {
			break
		}
	}
	return nil, nil
}
