package failover

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

var errDown = errors.New("connection refused")

// A fake is a store in this process whose behaviour a test sets.
type fake struct {
	mu      sync.Mutex
	act     func(ctx context.Context) error // called before it responds; nil: it responds at once
	charge  func(c *weir.Charge) error      // returns the error of a charge
	keys    map[string]*keyed.Limiter[string]
	calls   int // calls of Do so far, and those in flight
	going   int
	settled map[weir.Receipt]int64
}

func newFake() *fake {
	return &fake{keys: map[string]*keyed.Limiter[string]{}, settled: map[weir.Receipt]int64{}}
}

// set changes what the store does from now on.
func (f *fake) set(act func(ctx context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.act = act
}

func (f *fake) count() (calls, going int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls, f.going
}

func (f *fake) Close() error { return nil }

func (f *fake) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) (first error) {
	f.mu.Lock()
	f.calls++
	f.going++
	act := f.act
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.going--
		f.mu.Unlock()
	}()
	if act != nil {
		if err := act(ctx); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range batch {
		c := &batch[i]
		c.Err = nil
		if f.charge != nil {
			c.Err = f.charge(c)
		}
		if c.Err == nil {
			out[i], c.Err = f.one(c)
		}
		if first == nil {
			first = c.Err
		}
	}
	return first
}

func (f *fake) one(c *weir.Charge) (d weir.Decision, err error) {
	l := f.keys[c.Name]
	if l == nil {
		if l, err = keyed.New[string](c.Limit, keyed.Options{Name: c.Name}); err != nil {
			return d, err
		}
		f.keys[c.Name] = l
	}
	switch c.Op {
	case weir.OpTake:
		d = l.Take(c.Key, c.Cost)
	case weir.OpReserve:
		r, _ := l.Reserve(c.Key, c.Cost, c.Within)
		d, c.Delay, c.Receipt = r.Decision(), r.Delay(), "store-1"
	case weir.OpSettle:
		f.settled[c.Receipt] = c.Cost
	default:
		d = l.Peek(c.Key, 0)
	}
	d.Source = weir.SourceStore
	return d, nil
}

// What a store can do during an outage.
func down(context.Context) error { return errDown }

func deaf(until <-chan struct{}) func(context.Context) error { // it ignores the context
	return func(context.Context) error { <-until; return nil }
}

func patient(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func slow(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var perSecond = weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}

// open makes a Store for a test in a bubble, and closes it at the end.
func open(t *testing.T, f weir.Store, o Options) *Store {
	t.Helper()
	s, err := New(f, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// take charges a key, and fails the test on an error.
func take(t *testing.T, s *Store, key string, cost int64) weir.Decision {
	t.Helper()
	return do(t, s, weir.Charge{Name: "api", Key: key, Limit: perSecond, Cost: cost})
}

func do(t *testing.T, s *Store, c weir.Charge) weir.Decision {
	t.Helper()
	out := make([]weir.Decision, 1)
	if err := s.Do(t.Context(), []weir.Charge{c}, out); err != nil {
		t.Fatalf("%v of %q: %v", c.Op, c.Key, err)
	}
	return out[0]
}

// breakIt makes the store fail until the breaker is open.
func breakIt(t *testing.T, s *Store, f *fake) {
	t.Helper()
	f.set(down)
	for range 5 {
		take(t, s, "breaks", 1)
	}
	if s.State() == Closed {
		t.Fatal("5 failures in a row do not open the breaker")
	}
	synctest.Wait()
}

// mend makes the store respond, and waits until it is used again.
func mend(t *testing.T, s *Store, f *fake) {
	t.Helper()
	f.set(nil)
	began := time.Now()
	for s.State() != Closed {
		wait(10 * time.Millisecond)
		if time.Since(began) > 2*time.Second {
			t.Fatal("the store has answered for 2 s, and is not asked")
		}
	}
}

// wait lets the bubble's time pass.
func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// bubble runs a test in virtual time. It fails if a goroutine is left.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}
