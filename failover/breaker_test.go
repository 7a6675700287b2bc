package failover

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
)

// TestOutages goes through whole outages, of each kind.
func TestOutages(t *testing.T) {
	for name, c := range map[string]struct {
		act    func(until <-chan struct{}) func(context.Context) error
		direct bool
		took   time.Duration
	}{
		"down":            {func(<-chan struct{}) func(context.Context) error { return down }, false, 0},
		"down, direct":    {func(<-chan struct{}) func(context.Context) error { return down }, true, 0},
		"deaf":            {deaf, false, 20 * time.Millisecond},
		"patient":         {func(<-chan struct{}) func(context.Context) error { return patient }, false, 20 * time.Millisecond},
		"patient, direct": {func(<-chan struct{}) func(context.Context) error { return patient }, true, 20 * time.Millisecond},
		"too slow":        {func(<-chan struct{}) func(context.Context) error { return slow(21 * time.Millisecond) }, false, 20 * time.Millisecond},
		"panics": {func(<-chan struct{}) func(context.Context) error {
			return func(context.Context) error { panic("at the store") }
		}, false, 0},
		"panics, direct": {func(<-chan struct{}) func(context.Context) error {
			return func(context.Context) error { panic("at the store") }
		}, true, 0},
		"ends a goroutine": {func(<-chan struct{}) func(context.Context) error {
			return func(context.Context) error { runtime.Goexit(); return nil }
		}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, back := newFake(), make(chan struct{})
				var transitions []string
				s := open(t, f, Options{OnFailure: Allow, Direct: c.direct, OnTransition: func(_ string, from, to State, _ error) {
					transitions = append(transitions, fmt.Sprint(from, " to ", to))
				}})
				f.set(c.act(back))
				for i := range 5 {
					began := time.Now()
					if d := take(t, s, "a", 1); !d.Allowed || d.Source != weir.SourceAllow || time.Since(began) != c.took {
						t.Fatalf("call %d: %+v after %v", i, d, time.Since(began))
					}
				}
				if s.State() != Open {
					t.Fatal("not open")
				}
				calls, _ := f.count()
				began := time.Now()
				for range 100 {
					take(t, s, "a", 1)
				}
				if again, _ := f.count(); again != calls || time.Since(began) != 0 {
					t.Errorf("while it is open, %d calls in %v", again-calls, time.Since(began))
				}
				wait(time.Second) // some probes
				close(back)
				mend(t, s, f)
				if d := take(t, s, "a", 1); d.Source != weir.SourceStore {
					t.Errorf("%+v", d)
				}
				synctest.Wait()
				want := []string{"closed to open", "open to half-open", "half-open to open"}
				if !slices.Equal(transitions[:3], want) || transitions[len(transitions)-1] != "half-open to closed" {
					t.Errorf("%q", transitions)
				}
				got := s.Stats()
				if got.Opened != 1 || got.Returned != 1 || got.Probed != got.Reopened+1 || got.Probed < 4 || int(got.Probed+got.Reopened+2) != len(transitions) {
					t.Errorf("%+v", got)
				}
				if got.Late+got.Failed != 5 || (got.Late == 5) != (c.took > 0) || got.Skipped != 100 || got.Allowed != 105 || got.Answered != 1 || got.InFlight != 0 {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// TestFewFailuresDoNotOpen: the breaker opens if half of the calls fail.
func TestFewFailuresDoNotOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		s := open(t, f, Options{OnFailure: Allow})
		one := func(fails bool) {
			if f.set(nil); fails {
				f.set(down)
			}
			take(t, s, "a", 1)
			wait(time.Millisecond)
		}
		for i := range 3000 { // 40 %, of which later 8 come in a row
			one(i < 60 && i%5 > 2 || i >= 60 && i%20 >= 12)
		}
		if s.State() != Closed {
			t.Errorf("40 %% of failures: %+v", s.Stats())
		}
		for i := 0; i < 3000 && s.State() == Closed; i++ { // 60 %, never 4 in a row
			one(i%5 > 1)
		}
		if s.State() != Open {
			t.Errorf("60 %% of failures: %+v", s.Stats())
		}
	})
}

// TestCause: the cause of an outage is the error of the latest call or probe; without an outage there
// is none.
func TestCause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &pinged{fake: newFake(), err: errors.New("NOAUTH")}
		var transitions []string
		s := open(t, f, Options{OnFailure: Allow, OnTransition: func(_ string, _, to State, cause error) {
			transitions = append(transitions, fmt.Sprint(to, ": ", cause))
		}})
		f.set(down)
		for range 5 {
			if cause := s.Stats().Cause; cause != nil {
				t.Errorf("before the breaker is open: %v", cause)
			}
			take(t, s, "a", 1)
		}
		if cause := s.Stats().Cause; !errors.Is(cause, errDown) {
			t.Errorf("after calls that failed: %v", cause)
		}
		wait(DefaultProbe)
		synctest.Wait()
		if cause := s.Stats().Cause; cause == nil || cause.Error() != "NOAUTH" {
			t.Errorf("after a probe that failed: %v", cause)
		}
		f.mu.Lock()
		f.err = nil
		f.mu.Unlock()
		wait(DefaultProbe)
		synctest.Wait()
		want := []string{"open: connection refused", "half-open: <nil>", "open: NOAUTH", "half-open: <nil>", "closed: <nil>"}
		if cause := s.Stats().Cause; cause != nil || !slices.Equal(transitions, want) {
			t.Errorf("after it is back: %v, %q", cause, transitions)
		}
	})
}

// TestFlapping: if the store fails again right after good probes, the probes become rarer.
func TestFlapping(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &pinged{fake: newFake()}
		s := open(t, f, Options{OnFailure: Allow})
		f.set(down) // but pings succeed
		for began := time.Now(); time.Since(began) < time.Minute; {
			take(t, s, "a", 1)
			wait(10 * time.Millisecond)
		}
		if got := s.Stats(); got.Opened < 50 || got.Opened > 70 {
			t.Errorf("%+v", got)
		}
	})
}

// pinged is a store with Ping.
type pinged struct {
	*fake
	err error
}

func (p *pinged) Ping(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// TestCallsInFlightAreBounded: a store that does not return holds at most MaxCalls goroutines, and
// later calls do not wait longer for that.
func TestCallsInFlightAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, back := newFake(), make(chan struct{})
		s := open(t, f, Options{OnFailure: Allow, MaxCalls: 3, Failures: 1000})
		f.set(deaf(back))
		var callers sync.WaitGroup
		for range 15 {
			callers.Go(func() {
				began := time.Now()
				if d := take(t, s, "a", 1); d.Source != weir.SourceAllow || time.Since(began) != 20*time.Millisecond {
					t.Errorf("%+v after %v", d, time.Since(began))
				}
			})
		}
		callers.Wait()
		if _, going := f.count(); going != 3 || s.Stats().InFlight != 3 {
			t.Errorf("%d are in flight, of %+v", going, s.Stats())
		}
		for range 10 {
			take(t, s, "a", 1)
		}
		wait(5 * time.Second)
		if _, going := f.count(); going > 3+mostAsides {
			t.Errorf("%d are in flight, with those of probes", going)
		}
		if err := s.Close(); err == nil {
			t.Error("Close does not tell of calls that do not return")
		}
		close(back)
		synctest.Wait()
		if _, going := f.count(); going != 0 {
			t.Errorf("%d are in flight", going)
		}
	})
}

// TestStoreReturnsUnderLoad: no request fails while the store comes back.
func TestStoreReturnsUnderLoad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		s := open(t, f, Options{OnFailure: Local, Nodes: 3})
		breakIt(t, s, f)
		wait(3 * time.Second)
		f.set(nil)
		mended := time.Now()
		var callers sync.WaitGroup
		for i := range 20 {
			callers.Go(func() {
				for time.Since(mended) < 3*time.Second {
					d := take(t, s, fmt.Sprint(i), 1)
					if time.Since(mended) > 2*time.Second && d.Source != weir.SourceStore {
						t.Errorf("2 s later: %+v", d)
					}
					<-time.After(7 * time.Millisecond)
				}
			})
		}
		callers.Wait()
	})
}
