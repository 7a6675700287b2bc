package weirtest_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

func openKeyed(l weir.Limit, c *weirtest.Clock) (weirtest.Taker, error) {
	k, err := keyed.New[string](l, keyed.Options{Name: weir.Algorithm(l), Clock: c.Now, Timers: c.AfterFunc})
	if err != nil {
		return nil, err
	}
	g, err := keyed.NewGroup(k)
	return keyedSubject{weirtest.Keyed(k), g}, err
}

// keyedSubject keeps places by a group of one.
type keyedSubject struct {
	weirtest.Holder
	group *keyed.Group[string]
}

func (s keyedSubject) JoinKept(key string, cost int64) (weirtest.KeptPlace, weir.Decision) {
	charges := []keyed.Charge[string]{{Key: key, Cost: cost, Wait: true, Keep: true}}
	d, err := s.group.Take(charges)
	if err != nil {
		panic(err)
	}
	return &keyedPlace{&charges[0]}, d
}

type keyedPlace struct{ c *keyed.Charge[string] }

func (p *keyedPlace) Settle(actual int64) {
	if err := p.c.Settle(actual); err != nil {
		panic(err)
	}
}

func (p *keyedPlace) Delay() time.Duration {
	if p.c.Place == nil {
		return 0
	}
	return p.c.Place.Delay()
}

func (p *keyedPlace) Ready() <-chan struct{} {
	if p.c.Place != nil {
		return p.c.Place.Ready()
	}
	ready := make(chan struct{})
	close(ready)
	return ready
}

// walks is the number of random walks for each limit. `make long` sets enough for a million steps.
var walks = flag.Int("walks", 60, "how many random walks of each limit")

func TestKeyedConforms(t *testing.T) {
	raced.Skip(t)
	weirtest.Conform(t, weirtest.Subject{Open: openKeyed, Seed: seeds.Seed(), Walks: *walks})
}

// limiters has a weir.Limiter for each key, which it makes at the key's first use.
type limiters struct {
	limit weir.Limit
	clock *weirtest.Clock
	byKey map[string]*weir.Limiter
}

func (l *limiters) of(key string) *weir.Limiter {
	if l.byKey[key] == nil {
		lim, err := weir.New(l.limit, weir.WithClock(l.clock.Now), weir.WithTimers(l.clock.AfterFunc))
		if err != nil {
			panic(err)
		}
		l.byKey[key] = lim
	}
	return l.byKey[key]
}

func (l *limiters) Take(key string, cost int64) weir.Decision { return l.of(key).Take(cost) }
func (l *limiters) Peek(key string, cost int64) weir.Decision { return l.of(key).Peek(cost) }
func (l *limiters) Reserve(key string, cost int64, maxDelay time.Duration) (weirtest.Reservation, bool) {
	return l.of(key).Reserve(cost, maxDelay)
}
func (l *limiters) Join(key string, cost int64, maxDelay time.Duration) (*weir.Place, weir.Decision) {
	return l.of(key).Join(cost, maxDelay)
}
func (l *limiters) JoinKept(key string, cost int64) (weirtest.KeptPlace, weir.Decision) {
	return l.of(key).JoinKept(cost, -1)
}
func (l *limiters) SetLimit(next weir.Limit) error {
	l.limit = next
	for _, lim := range l.byKey {
		if err := lim.SetLimit(next); err != nil {
			return err
		}
	}
	return nil
}

func TestLimitersConform(t *testing.T) {
	raced.Skip(t)
	weirtest.Conform(t, weirtest.Subject{Seed: seeds.Seed(), Walks: *walks, Open: func(l weir.Limit, c *weirtest.Clock) (weirtest.Taker, error) {
		return &limiters{l, c, map[string]*weir.Limiter{}}, nil
	}})
}

// stepper is an implementation like a store's: states by key, and the pure function, in
// microseconds.
type stepper struct {
	p      weir.Prepared
	c      *weirtest.Clock
	states map[string][]int64
}

func (s *stepper) Take(key string, cost int64) (d weir.Decision) {
	s.states[key], d = s.p.Step(s.states[key], s.c.Now()/1000, cost)
	return d
}

func openStepper(l weir.Limit, c *weirtest.Clock) (weirtest.Taker, error) {
	p, err := weir.Prepare(l, time.Microsecond)
	return &stepper{p, c, map[string][]int64{}}, err
}

func TestAStoreConforms(t *testing.T) {
	raced.Skip(t)
	weirtest.Conform(t, weirtest.Subject{Open: openStepper, Tick: time.Microsecond, Seed: seeds.Seed(), Walks: *walks})
}

// generous sometimes admits one more than the limit.
type generous struct {
	*stepper
	refused int
}

func (g *generous) Take(key string, cost int64) weir.Decision {
	d := g.stepper.Take(key, cost)
	if !d.Allowed && d.RetryAfter > 0 {
		if g.refused++; g.refused == 3 {
			d.Allowed, d.RetryAfter = true, 0
		}
	}
	return d
}

// recorder is a TB that records failures.
type recorder struct{ errors []string }

func (t *recorder) Helper()             {}
func (t *recorder) Logf(string, ...any) {}
func (t *recorder) Errorf(format string, args ...any) {
	t.errors = append(t.errors, fmt.Sprintf(format, args...))
}

// TestConformFinds: for each algorithm, Conform finds an implementation that admits too much, and
// reports it in a few calls.
func TestConformFinds(t *testing.T) {
	var found recorder
	weirtest.Conform(&found, weirtest.Subject{Tick: time.Microsecond, Seed: 1, Open: func(l weir.Limit, c *weirtest.Clock) (weirtest.Taker, error) {
		s, err := openStepper(l, c)
		return &generous{stepper: s.(*stepper)}, err
	}})
	if len(found.errors) != len(weirtest.Limits()) {
		t.Errorf("found %d of %d:\n%s", len(found.errors), len(weirtest.Limits()), strings.Join(found.errors, "\n"))
	}
	for _, e := range found.errors {
		if calls := strings.Count(e, "\n") - 3; calls > 12 || !strings.Contains(e, "seed 1") || !strings.Contains(e, "take") {
			t.Errorf("%d calls:\n%s", calls, e)
		}
	}
}
