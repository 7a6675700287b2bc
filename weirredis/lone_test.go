package weirredis

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// inTest reports whether the running goroutine is that of a caller in this file.
func inTest() bool {
	stack := make([]byte, 1<<16)
	return strings.Contains(string(stack[:runtime.Stack(stack, false)]), "weirredis.take(")
}

// TestLoneCall: a call that finds no other makes its first attempt itself; one whose context may be cancelled long
// before its deadline does not, nor does any while the server does not reply.
func TestLoneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var own []bool
		s, _ := faked(t, Options{}, func(_ context.Context, n int, c Call) (string, error) {
			if own = append(own, inTest()); n == 4 {
				return "", errLost
			}
			return yesTo(c, 1e15), nil
		})
		s.clock.set(1e15)
		short, cancel := context.WithTimeout(t.Context(), soonEnough)
		defer cancel()
		for _, ctx := range []context.Context{short, context.Background(), t.Context(), short, short, short} {
			if err := take(ctx, s, "a"); err != nil {
				t.Error(err)
			}
			synctest.Wait() // the sender of the call has ended
		}
		// the first; two that find a reply before them, of which one can be cancelled; one that is lost, and its
		// repetition; two more, the first of which finds a reply again
		want := []bool{false, true, false, true, false, true, true}
		if len(own) != len(want) {
			t.Fatalf("%v, want %v", own, want)
		}
		for i := range want {
			if own[i] != want[i] {
				t.Errorf("%v, want %v", own, want)
				break
			}
		}
		s.Close()
		if err := take(short, s, "a"); !errors.Is(err, errClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestOthersDuringALoneCall: requests that come while a lone call is in flight are sent beside it, or after it
// where only one round trip may be in flight; Close waits for it.
func TestOthersDuringALoneCall(t *testing.T) {
	for _, trips := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			s, f := faked(t, Options{RoundTrips: trips}, func(_ context.Context, n int, c Call) (string, error) {
				if n == 2 {
					<-release
				}
				return yesTo(c, 1e15), nil
			})
			s.clock.set(1e15)
			var all sync.WaitGroup
			call := func(key string) {
				all.Go(func() {
					if err := take(context.Background(), s, key); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			call("first")
			call("lone")
			call("b")
			call("c")
			if n := f.sent("weir:{b}:api") + f.sent("weir:{c}:api"); n != 2*(trips-1) {
				t.Errorf("%d round trips at once: %d were sent beside the lone call", trips, n)
			}
			closed := make(chan struct{})
			if trips == 2 {
				go func() { s.Close(); close(closed) }()
				synctest.Wait()
				select {
				case <-closed:
					t.Error("Close did not wait for the call in flight")
				default:
				}
			}
			close(release)
			all.Wait()
			if trips == 1 {
				go func() { s.Close(); close(closed) }()
			}
			<-closed
			if f.sent("weir:{b}:api") != 1 || f.sent("weir:{c}:api") != 1 {
				t.Error("a request was not sent, or twice")
			}
		})
	}
}

// TestLoneCallWithoutReply: a lone call that is not answered is repeated with its nonce in the background, and its
// caller leaves at its deadline.
func TestLoneCallWithoutReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := faked(t, Options{}, func(ctx context.Context, n int, c Call) (string, error) {
			switch {
			case n == 1:
				return yesTo(c, 1e15), nil
			case n < 4:
				return "", errLost
			}
			<-ctx.Done()
			return "", ctx.Err()
		})
		s.clock.set(1e15)
		if err := take(context.Background(), s, "first"); err != nil {
			t.Fatal(err)
		}
		const patience = 40 * time.Millisecond
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		began := time.Now()
		if err := take(ctx, s, "a"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != patience {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		s.Close()
		nonces := map[string]bool{}
		for _, c := range f.calls[1:] {
			nonces[c.Keys[0]] = true
		}
		if len(f.calls) != 4 || len(nonces) != 1 {
			t.Errorf("%d calls with %d nonces", len(f.calls), len(nonces))
		}
	})
}
