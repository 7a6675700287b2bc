package weirredis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
)

// fake is an Evaler without a server: the test makes its replies.
type fake struct {
	mu    sync.Mutex
	calls []Call
	eval  func(ctx context.Context, n int, c Call) (string, error) // n counts from 1
}

func (f *fake) Eval(ctx context.Context, c Call) (string, error) {
	f.mu.Lock()
	f.calls = append(f.calls, c)
	n := len(f.calls)
	f.mu.Unlock()
	return f.eval(ctx, n, c)
}

func (f *fake) EvalAll(ctx context.Context, calls []Call, replies []Reply) {
	for i, c := range calls {
		replies[i].Text, replies[i].Err = f.Eval(ctx, c)
	}
}

// sent returns the number of calls with a key.
func (f *fake) sent(key string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if slices.Contains(c.Keys, key) {
			n++
		}
	}
	return n
}

// yesTo returns a reply that admits all charges of a call, with a reading of the server's clock: of take.lua,
// whose argument has five elements, an empty backlog for each key; otherwise a decision for each.
func yesTo(c Call, now int64) string {
	each := []int64{0, 1, 1}
	if in := (reader{b: c.Args[0]}); in.array() == 5 {
		each = []int64{0, 0}
	}
	b := appendInt(appendArray(nil, 1+len(each)*(len(c.Keys)-1)), now)
	for range c.Keys[1:] {
		for _, v := range each {
			b = appendInt(b, v)
		}
	}
	return string(b)
}

func faked(t *testing.T, o Options, eval func(context.Context, int, Call) (string, error)) (*Store, *fake) {
	t.Helper()
	f := &fake{eval: eval}
	s, err := New(f, o)
	if err != nil {
		t.Fatal(err)
	}
	return s, f
}

func take(ctx context.Context, s *Store, keys ...string) error {
	var batch []weir.Charge
	for _, key := range keys {
		batch = append(batch, weir.Charge{Name: "api", Key: key, Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 9}, Cost: 1})
	}
	return s.Do(ctx, batch, make([]weir.Decision, len(batch)))
}

var errLost = errors.New("the connection is lost")

// TestCallersLeaveAClientThatDoesNotReturn: a client that does not return delays no caller beyond its
// deadline, or the Timeout.
func TestCallersLeaveAClientThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s, _ := faked(t, Options{}, func(context.Context, int, Call) (string, error) { <-release; return "", errLost })
		for _, deadline := range []time.Duration{0, 30 * time.Millisecond} {
			ctx, want := t.Context(), time.Second
			if deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, deadline)
				defer cancel()
				want = deadline
			}
			began := time.Now()
			if err := take(ctx, s, "a"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != want {
				t.Errorf("%v after %v, not %v", err, time.Since(began), want)
			}
		}
		close(release)
		s.Close()
	})
}

// TestRequestsOfCallersThatLeftAreNotSent: callers that left while they waited for a round trip are
// not charged by a later one, and their requests are not kept.
func TestRequestsOfCallersThatLeftAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s, f := faked(t, Options{RoundTrips: 1}, func(_ context.Context, _ int, c Call) (string, error) {
			<-release
			return yesTo(c, 1e15), nil
		})
		s.clock.set(1e15)
		var wg sync.WaitGroup
		call := func(key string, deadline time.Duration, want error) {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				if err := take(ctx, s, key); !errors.Is(err, want) {
					t.Errorf("%s: %v", key, err)
				}
			})
			synctest.Wait()
		}
		call("first", time.Hour, nil)
		const many = 10 * minSweep
		for i := range many {
			if call("gone", time.Millisecond, context.DeadlineExceeded); i%100 == 0 {
				<-time.After(time.Second)
			}
		}
		s.queues.mu.Lock()
		if n := len(s.queues.shared.waiting); n > 2*minSweep {
			t.Errorf("%d that have gone wait", n)
		}
		s.queues.mu.Unlock()
		call("last", time.Hour, nil)
		<-time.After(time.Second)
		close(release)
		wg.Wait()
		if f.sent("weir:{gone}:api") != 0 || f.sent("weir:{last}:api") != 1 {
			t.Errorf("%d calls are for those who had gone, %d for who waits", f.sent("weir:{gone}:api"), f.sent("weir:{last}:api"))
		}
		s.Close()
	})
}

// TestCallersDoNotWaitForRefunds: if the store stops responding within a group that is charged
// in order, the caller leaves in time, and the charges are cancelled without it.
func TestCallersDoNotWaitForRefunds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *Store
		settled := make(chan time.Duration, 1)
		began := time.Now()
		s, _ = faked(t, Options{Cluster: true}, func(ctx context.Context, n int, c Call) (string, error) {
			switch {
			case n == 1: // a group of one is made with a receipt
				return string(appendString([]byte(yesTo(c, 1e15)), "receipt")), nil
			case strings.Contains(c.Args[0], "receipt"):
				settled <- time.Since(began)
				return yesTo(c, 1e15), nil
			}
			<-ctx.Done()
			return "", ctx.Err()
		})
		s.clock.set(1e15)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		limit := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 9}
		batch := []weir.Charge{{Name: "api", Key: "a", Limit: limit, Cost: 1, Group: 1}, {Name: "api", Key: "b", Limit: limit, Cost: 1, Group: 1}}
		err := s.Do(ctx, batch, make([]weir.Decision, 2))
		if d := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || d != 50*time.Millisecond {
			t.Errorf("%v after %v", err, d)
		}
		if d := <-settled; d > patience {
			t.Errorf("given back after %v", d)
		}
		s.Close()
	})
}

// TestLostBeforeTheClockWasKnown: the very first call has an expiry in the past, to learn the
// server's clock. If its reply is lost, nothing was charged, and it is repeated.
func TestLostBeforeTheClockWasKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := faked(t, Options{}, func(_ context.Context, n int, c Call) (string, error) {
			switch n {
			case 1:
				return "", errLost
			case 2:
				return "", fmt.Errorf("WEIRLATE %d", int64(1e15))
			}
			return yesTo(c, 1e15), nil
		})
		if err := take(t.Context(), s, "a"); err != nil {
			t.Errorf("after %d calls: %v", len(f.calls), err)
		}
		s.Close()
	})
}

// TestRefusedIsNotLost: a call that the server says it did not carry out is repeated, also after
// its time.
func TestRefusedIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := faked(t, Options{}, func(_ context.Context, n int, c Call) (string, error) {
			switch n {
			case 1:
				return "", errors.New("LOADING Redis is loading the dataset in memory")
			case 2:
				return "", fmt.Errorf("WEIRLATE %d", int64(2e15))
			}
			return yesTo(c, 2e15), nil
		})
		s.clock.set(1e15)
		if err := take(t.Context(), s, "a"); err != nil {
			t.Error(err)
		}
		s.Close()
	})
}

// TestDeadConnection: calls without a reply, on a connection that does not end, are sent again
// while there is time.
func TestDeadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := faked(t, Options{}, func(ctx context.Context, n int, c Call) (string, error) {
			if n == 1 {
				<-ctx.Done()
				return "", ctx.Err()
			}
			return yesTo(c, 1e15), nil
		})
		s.clock.set(1e15)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := take(ctx, s, "a"); err != nil || len(f.calls) != 2 || f.calls[0].Keys[0] != f.calls[1].Keys[0] {
			t.Errorf("%v after %d calls", err, len(f.calls))
		}
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("it took %v", d)
		}
		s.Close()
	})
}

// TestTheErrorSaysThatACallMayHaveBeenCharged: a call whose reply was lost, and whose repeat came too late, may have been
// charged. The error says so, and it is not charged again.
func TestTheErrorSaysThatACallMayHaveBeenCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := faked(t, Options{}, func(_ context.Context, n int, c Call) (string, error) {
			if n == 1 {
				return "", errLost
			}
			return "", fmt.Errorf("WEIRLATE %d", int64(2e15))
		})
		s.clock.set(1e15)
		if err := take(t.Context(), s, "a"); err == nil || len(f.calls) != 2 || f.calls[0].Keys[0] != f.calls[1].Keys[0] {
			t.Errorf("%v after %d calls", err, len(f.calls))
		}
		s.Close()
	})
}

// TestClockPutBack: if the server's clock steps back by less than a call's time, calls expire by
// the new clock. By the old one they could be charged that much too late.
func TestClockPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := faked(t, Options{}, nil)
		end := time.Now().Add(time.Second)
		s.clock.set(1e15)
		before := s.clock.expiry(end)
		sent := time.Now()
		<-time.After(time.Millisecond)
		s.clock.see(1e15+500, sent) // read in flight
		if got := s.clock.expiry(end); got != before {
			t.Errorf("expiry %d, not %d", got, before)
		}
		sent = time.Now()
		<-time.After(time.Millisecond)
		s.clock.see(1e15-5e6, sent)
		if got := s.clock.expiry(end); got > before-5e6 {
			t.Errorf("after a step back by 5 s, expiry %d, was %d", got, before)
		}
		s.Close()
	})
}

// TestEachNodeHasItsClock: if the clocks of a cluster's nodes differ by more than a call's time,
// each node's calls expire by its own clock.
func TestEachNodeHasItsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := map[string]int64{"weir:{a}:api": 1e15, "weir:{b}:api": 1e15 + 5e6}
		s, f := faked(t, Options{Cluster: true}, func(_ context.Context, _ int, c Call) (string, error) {
			r := &reader{b: c.Args[0]}
			r.array()
			r.int()
			if expiry := r.int(); expiry < now[c.Keys[1]] || expiry > now[c.Keys[1]]+2e6 {
				return "", fmt.Errorf("WEIRLATE %d", now[c.Keys[1]])
			}
			return yesTo(c, now[c.Keys[1]]), nil
		})
		for range 10 {
			for _, key := range []string{"a", "b"} {
				if err := take(t.Context(), s, key); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(f.calls) != 22 { // the clock of each is learnt once
			t.Errorf("%d calls", len(f.calls))
		}
		s.Close()
	})
}

// TestCallersOfOneCallExpireSeparately: callers with different deadlines share a call. One that is late only
// by the server's clock is sent again; one that is late by our clock has left.
func TestCallersOfOneCallExpireSeparately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := faked(t, Options{RoundTrips: 1}, func(_ context.Context, n int, c Call) (string, error) {
			if n != 2 || len(c.Keys) != 3 {
				return yesTo(c, 1e15), nil
			}
			b := appendString(appendInt(appendArray(nil, 4), 1e15), "WEIRLATE")
			return string(appendInt(appendInt(b, 0), 0)), nil
		})
		s.clock.set(1e15)
		gate := make(chan struct{})
		inner := f.eval
		f.eval = func(ctx context.Context, n int, c Call) (string, error) {
			if n == 1 {
				<-gate
			}
			return inner(ctx, n, c)
		}
		var wg sync.WaitGroup
		for _, c := range []struct {
			key  string
			left time.Duration
		}{{"first", time.Minute}, {"short", time.Second}, {"long", time.Minute}} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), c.left)
				defer cancel()
				if err := take(ctx, s, c.key); err != nil {
					t.Errorf("%s: %v", c.key, err)
				}
			})
			synctest.Wait()
		}
		close(gate)
		wg.Wait()
		if f.sent("weir:{short}:api") != 2 || f.sent("weir:{long}:api") != 1 || f.calls[1].Keys[0] == f.calls[2].Keys[0] {
			t.Errorf("%+v", f.calls)
		}
		s.Close()
	})
}

// TestRunsOfOneKey: charges of a key that are alike are one run of a call, and each gets its own decision.
// Those with another cost, and those that expire much sooner, are runs of their own, in order. Several
// charges of one batch are late together, or some of them would be carried out twice.
func TestRunsOfOneKey(t *testing.T) {
	bucket := weir.TokenBucket{Rate: weir.PerHour(3), Burst: 3}
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s, f := faked(t, Options{RoundTrips: 1}, func(_ context.Context, n int, c Call) (string, error) {
			if n == 1 {
				<-gate
			}
			return yesTo(c, 1e15), nil
		})
		s.clock.set(1e15)
		type call struct {
			key   string
			costs []int64
			left  time.Duration
			want  []int64 // what remains; -1 for a refusal
		}
		var wg sync.WaitGroup
		for _, c := range []call{
			{"first", []int64{1}, time.Minute, []int64{2}}, // keeps the sender busy
			{"a", []int64{1}, time.Minute, []int64{2}},
			{"b", []int64{1}, time.Minute, []int64{2}},
			{"a", []int64{1}, time.Minute, []int64{1}},
			{"a", []int64{2}, time.Minute, []int64{1}}, // as if the server still had no backlog: a run of its own
			{"b", []int64{1}, time.Second, []int64{2}}, // expires much sooner: a run of its own
			{"c", []int64{1, 1}, time.Minute, []int64{2, 1}},
			{"c", []int64{1, 1}, time.Minute, []int64{0, -1}},
		} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), c.left)
				defer cancel()
				var batch []weir.Charge
				for _, cost := range c.costs {
					batch = append(batch, weir.Charge{Name: "api", Key: c.key, Limit: bucket, Cost: cost})
				}
				out := make([]weir.Decision, len(batch))
				if err := s.Do(ctx, batch, out); err != nil {
					t.Error(err)
				}
				for i, d := range out {
					if d.Allowed != (c.want[i] >= 0) || d.Remaining != max(c.want[i], 0) {
						t.Errorf("%+v: %d: %+v", c, i, d)
					}
				}
			})
			synctest.Wait()
		}
		close(gate)
		wg.Wait()
		if keys := f.calls[1].Keys[1:]; len(f.calls) != 2 || len(keys) != 5 {
			t.Errorf("%d calls, the second about %q", len(f.calls), keys)
		}
		s.Close()
	})
}
