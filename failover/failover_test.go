package failover

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
)

func TestAnswersPass(t *testing.T) {
	for _, direct := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			f := newFake()
			s := open(t, f, Options{Direct: direct})
			if d := take(t, s, "a", 3); !d.Allowed || d.Remaining != 17 || d.Source != weir.SourceStore {
				t.Errorf("%+v", d)
			}
			batch := []weir.Charge{
				{Name: "api", Key: "a", Limit: perSecond, Cost: 2, Op: weir.OpReserve, Within: -1},
				{Name: "api", Key: "b", Limit: perSecond, Cost: 21},
			}
			out := make([]weir.Decision, 2)
			if err := s.Do(t.Context(), batch, out); err != nil || batch[0].Receipt != "store-1" || out[1].Allowed {
				t.Errorf("%v: %+v %+v", err, batch, out)
			}
			batch[0].Op, batch[0].Cost = weir.OpSettle, 1
			if err := s.Do(t.Context(), batch[:1], out); err != nil || f.settled["store-1"] != 1 {
				t.Errorf("%v: settled %v", err, f.settled)
			}
			f.set(slow(19 * time.Millisecond))
			if d := take(t, s, "a", 1); d.Source != weir.SourceStore {
				t.Errorf("an answer within the deadline: %+v", d)
			}
			if err := s.Do(t.Context(), nil, nil); err != nil {
				t.Error(err)
			}
			if err := s.Do(t.Context(), batch, out[:1]); err == nil {
				t.Error("out is too short")
			}
			if got := s.Stats(); got.Answered != 4 || got.State != Closed || got.Opened != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestOutages runs through whole outages, of each manner.
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
				var told []string
				s := open(t, f, Options{OnFailure: Allow, Direct: c.direct, OnTransition: func(from, to State) {
					told = append(told, fmt.Sprint(from, " to ", to))
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
				if !slices.Equal(told[:3], want) || told[len(told)-1] != "half-open to closed" {
					t.Errorf("%q", told)
				}
				got := s.Stats()
				if got.Opened != 1 || got.Returned != 1 || got.Probed != got.Reopened+1 || got.Probed < 4 || int(got.Probed+got.Reopened+2) != len(told) {
					t.Errorf("%+v", got)
				}
				if got.Late+got.Failed != 5 || (got.Late == 5) != (c.took > 0) || got.Rejected != 100 || got.Allowed != 105 || got.Answered != 1 || got.UnderWay != 0 {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

func TestDeny(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		s := open(t, f, Options{ByName: map[string]OnFailure{"free": Allow}})
		f.set(down)
		if d := take(t, s, "a", 1); d.Allowed || d.Source != weir.SourceDeny || d.RetryAfter != 250*time.Millisecond || d.Limit != 20 || d.By != "api" {
			t.Errorf("closed: %+v", d)
		}
		breakIt(t, s, f)
		wait(100 * time.Millisecond)
		d := take(t, s, "a", 1)
		if d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > 250*time.Millisecond || d.Remaining != 0 {
			t.Errorf("%+v", d)
		}
		wait(d.RetryAfter - time.Millisecond)
		if d := take(t, s, "a", 1); d.RetryAfter != 20*time.Millisecond {
			t.Errorf("just before the probe: %+v", d)
		}
		for _, c := range []struct {
			weir.Charge
			allowed bool
			retry   bool
			taken   int64
		}{
			{weir.Charge{Cost: 0}, true, false, 0},
			{weir.Charge{Cost: -1}, false, false, 0},
			{weir.Charge{Cost: 21}, false, false, 0},
			{weir.Charge{Cost: 5, Op: weir.OpPeek}, false, true, 0},
			{weir.Charge{Cost: 5, Op: weir.OpReserve, Within: -1}, false, true, 0},
			{weir.Charge{Cost: 5, Op: weir.OpTakeSome}, false, true, 0},
			{weir.Charge{Op: weir.OpCarry}, true, false, 0},
			{weir.Charge{Name: "free", Cost: 20}, true, false, 0},
			{weir.Charge{Name: "free", Cost: 21}, false, false, 0},
			{weir.Charge{Name: "free", Cost: 30, Op: weir.OpTakeSome}, true, false, 20},
			{weir.Charge{Name: "free", Cost: 5, Op: weir.OpReserve}, true, false, 0},
		} {
			if c.Limit = perSecond; c.Name == "" {
				c.Name = "api"
			}
			batch, out := []weir.Charge{c.Charge}, make([]weir.Decision, 1)
			err := s.Do(t.Context(), batch, out)
			if d := out[0]; err != nil || d.Allowed != c.allowed || (d.RetryAfter > 0) != c.retry || batch[0].Taken != c.taken || batch[0].Receipt != "" {
				t.Errorf("%+v: %+v, %+v, %v", c, d, batch[0], err)
			}
		}
	})
}

// TestWhatOnlyTheStoreCanDo: to settle what the store has charged, and to reset a key.
func TestWhatOnlyTheStoreCanDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		s := open(t, f, Options{OnFailure: Local, Nodes: 2})
		shared, err := weir.NewShared(perSecond, s, weir.Named("api"))
		if err != nil {
			t.Fatal(err)
		}
		r, ok, err := shared.Reserve(t.Context(), "a", 5, 0)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		f.set(down)
		if err := r.Cancel(t.Context()); !errors.Is(err, ErrOut) || !errors.Is(err, errDown) {
			t.Errorf("Cancel: %v", err)
		}
		breakIt(t, s, f)
		if err := shared.Reset(t.Context(), "a"); !errors.Is(err, ErrOut) || !strings.Contains(err.Error(), `reset of "api"`) {
			t.Errorf("Reset: %v", err)
		}
		mend(t, s, f)
		if len(f.settled) != 0 {
			t.Errorf("settled %v", f.settled)
		}
	})
}

// TestChargesAreNotTheStore: what is wrong with a charge is told to the caller, and opens nothing.
func TestChargesAreNotTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		s := open(t, f, Options{OnFailure: Allow})
		wrong := fmt.Errorf("%w: the key holds a list", weir.ErrCharge)
		f.charge = func(c *weir.Charge) error {
			switch c.Key {
			case "list":
				return wrong
			case "node 2":
				return errDown
			case "negative":
				return weir.ErrCost
			}
			return nil
		}
		batch := make([]weir.Charge, 3)
		out := make([]weir.Decision, 3)
		ask := func(keys ...string) error {
			for i, key := range keys {
				batch[i] = weir.Charge{Name: "api", Key: key, Limit: perSecond, Cost: 1}
			}
			return s.Do(t.Context(), batch, out)
		}
		for range 100 {
			if err := ask("a", "list", "negative"); !errors.Is(err, wrong) || out[0].Source != weir.SourceStore || batch[1].Err == nil || batch[2].Err == nil {
				t.Fatalf("%v: %+v", err, out)
			}
		}
		if got := s.Stats(); got.State != Closed || got.Answered != 100 || got.Failed != 0 {
			t.Fatalf("%+v", got)
		}
		if err := ask("b", "node 2", "list"); !errors.Is(err, wrong) || out[0].Source != weir.SourceStore || out[1].Source != weir.SourceAllow || batch[1].Err != nil {
			t.Errorf("one node is down: %v: %+v", err, out)
		}
		batch[0] = weir.Charge{Name: "api", Key: "b", Limit: perSecond, Cost: 1, Group: 7}
		batch[1] = weir.Charge{Name: "other", Key: "node 2", Limit: perSecond, Cost: 1, Group: 7}
		if err := s.Do(t.Context(), batch[:2], out); err != nil || out[0].Source != weir.SourceAllow || out[1].Source != weir.SourceAllow {
			t.Errorf("a group of which one is on that node: %v: %+v", err, out)
		}
		if got := s.Stats(); got.Failed != 2 || got.State != Closed {
			t.Errorf("%+v", got)
		}
		f.charge = nil
		f.set(func(context.Context) error { return wrong })
		if err := ask("a", "b", "c"); !errors.Is(err, wrong) {
			t.Errorf("an error for all: %v", err)
		}
	})
}

// TestACallersContext: who leaves says nothing about the store, but a store that nobody waits for is asked whether it is there.
func TestACallersContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		s := open(t, f, Options{OnFailure: Allow})
		out := make([]weir.Decision, 1)
		leave := func() {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := s.Do(ctx, []weir.Charge{{Name: "api", Key: "a", Limit: perSecond, Cost: 1}}, out)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Millisecond {
				t.Fatalf("%v after %v", err, time.Since(began))
			}
		}
		f.set(slow(10 * time.Millisecond)) // it would have answered
		for range 23 {
			leave()
		}
		wait(time.Second)
		if got := s.Stats(); got.State != Closed || got.Left != 23 || got.Late+got.Failed != 0 {
			t.Errorf("%+v", got)
		}
		f.set(patient) // it would not
		for range 5 {
			leave()
		}
		wait(21 * time.Millisecond)
		if s.State() == Closed {
			t.Error("a store that does not answer those who leave early is asked for ever")
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Do(gone, make([]weir.Charge, 1), out); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestFewFailuresDoNotOpen: it takes half of the calls.
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

// TestFlapping: probes that prove nothing come more rarely.
func TestFlapping(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &pinged{fake: newFake()}
		s := open(t, f, Options{OnFailure: Allow})
		f.set(down) // but pings are answered
		for began := time.Now(); time.Since(began) < time.Minute; {
			take(t, s, "a", 1)
			wait(10 * time.Millisecond)
		}
		if got := s.Stats(); got.Opened < 50 || got.Opened > 70 {
			t.Errorf("%+v", got)
		}
	})
}

// pinged is a store that can be pinged.
type pinged struct {
	*fake
	err error
}

func (p *pinged) Ping(context.Context) error { return p.err }

// TestNoMoreCallsThanThat: a store that does not return holds no more than MaxCalls goroutines, and those who come then wait no longer.
func TestNoMoreCallsThanThat(t *testing.T) {
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
		if _, going := f.count(); going != 3 || s.Stats().UnderWay != 3 {
			t.Errorf("%d are under way, of %+v", going, s.Stats())
		}
		for range 10 {
			take(t, s, "a", 1)
		}
		wait(5 * time.Second)
		if _, going := f.count(); going > 3+mostAsides {
			t.Errorf("%d are under way, with those of probes", going)
		}
		if err := s.Close(); err == nil {
			t.Error("Close does not tell of calls that do not return")
		}
		close(back)
		synctest.Wait()
		if _, going := f.count(); going != 0 {
			t.Errorf("%d are under way", going)
		}
	})
}

// TestReturnWhileManyAsk: no request fails while the store comes back.
func TestReturnWhileManyAsk(t *testing.T) {
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

func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &beating{fake: newFake(), nodes: 2}
		s, err := New(f, Options{OnFailure: Local, Nodes: 2})
		if err != nil {
			t.Fatal(err)
		}
		breakIt(t, s, f.fake)
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := s.Do(t.Context(), make([]weir.Charge, 1), make([]weir.Decision, 1)); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}) // which fails if a goroutine is left
}

// beating is a store that takes heartbeats.
type beating struct {
	*fake
	nodes int
}

func (b *beating) Beat(ctx context.Context, id string, ttl time.Duration) (int, error) {
	b.mu.Lock()
	act, n := b.act, b.nodes
	b.mu.Unlock()
	if id == "" || ttl != DefaultBeatTTL {
		return 0, fmt.Errorf("beat of %q for %v", id, ttl)
	}
	if act != nil {
		return 0, act(ctx)
	}
	return n, nil
}

func (b *beating) are(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = n
}

func TestNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &beating{fake: newFake(), nodes: 8}
		s := open(t, f, Options{OnFailure: Local, Nodes: 4})
		if s.Nodes() != 4 {
			t.Errorf("%d nodes before any heartbeat", s.Nodes())
		}
		is := func(n int, when string) {
			t.Helper()
			if synctest.Wait(); s.Nodes() != n {
				t.Errorf("%d nodes %s, want %d", s.Nodes(), when, n)
			}
		}
		is(8, "after one")
		f.are(9)
		wait(time.Second)
		is(9, "when one has come")
		f.are(3)
		wait(5 * time.Second)
		is(9, "while those that left may come back")
		f.are(5)
		wait(2 * time.Second)
		is(5, "when they have not")
		breakIt(t, s, f.fake)
		f.are(1)
		wait(time.Minute)
		is(5, "while the store is out")
		mend(t, s, f.fake)
		wait(2 * time.Second)
		is(5, "while the others come back")
		f.are(5)
		wait(time.Minute)
		is(5, "when they are there")
	})
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		Options
		say string
	}{
		{Options{OnFailure: 3}, "OnFailure"},
		{Options{ByName: map[string]OnFailure{"api": 9}}, `"api"`},
		{Options{OnFailure: Local}, "Nodes: 0"},
		{Options{ByName: map[string]OnFailure{"api": Local}}, "Nodes: 0"},
		{Options{Nodes: -1}, "Nodes: -1"},
		{Options{Deadline: -1}, "Deadline"},
		{Options{Probe: -1}, "Probe"},
		{Options{MaxCalls: -1}, "MaxCalls"},
		{Options{MaxKeys: -1}, "MaxKeys"},
		{Options{Full: 9}, "Full"},
	} {
		if _, err := New(newFake(), c.Options); err == nil || !strings.Contains(err.Error(), "failover.Options.") || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%+v: %v", c.Options, err)
		}
	}
	if _, err := New(nil, Options{}); err == nil {
		t.Error("no store")
	}
	if Deny.String() != "deny" || Local.String() != "local" || OnFailure(7).String() != "OnFailure(7)" || State(9).String() != "State(9)" {
		t.Error("names")
	}
}
