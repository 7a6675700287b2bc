package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/policy"
)

// adaptively returns an upstream whose targets have an adaptive limit of at most that many requests.
func adaptively(most int64, weights ...int) policy.Upstream {
	return policy.Upstream{Targets: targets(weights...), Adaptive: policy.Adaptive{On: true, Algorithm: adaptive.Knee{Initial: most, Max: most}}}
}

// limits returns the state of the targets' adaptive limits.
func (b *bench) limits() string {
	var all []string
	for _, t := range b.Stats()[0].Targets {
		a := t.Adaptive
		all = append(all, fmt.Sprintf("%s %d/%d %d", t.Target, a.InFlight, a.Limit, a.Outcomes))
	}
	return strings.Join(all, ", ")
}

// TestOverloadedTarget: a target whose adaptive limit is reached gets no requests, and the others get
// theirs. If none has a place, the error says so.
func TestOverloadedTarget(t *testing.T) {
	b := newBench(t, adaptively(2, 1, 1))
	var slow []Exchange // of target a, which does not respond
	for _, e := range []Exchange{b.pick(), b.pick(), b.pick(), b.pick()} {
		if e.Target.URL().Host == "a" {
			slow = append(slow, e)
		} else {
			e.Done(Answered, "")
		}
	}
	if got := b.ends(5, Answered); got != "bbbbb" {
		t.Errorf("the requests went to %s, and b alone has places", got)
	}
	first, second := b.pick(), b.pick()
	if _, err := b.Pick(); !errors.Is(err, ErrOverloaded) {
		t.Errorf("without a place: %v", err)
	}
	if _, err := b.Enter(t.Context(), adaptive.Request{}, nil); !errors.Is(err, ErrOverloaded) {
		t.Errorf("Enter without a place: %v", err)
	}
	first.Done(Failed, "a test")
	second.Done(Left, "")
	second.Done(Answered, "")
	slow[0].Done(Answered, "")
	if got, want := b.limits(), "a 1/2 {1 0 0 1}, b 0/2 {7 1 1 1}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestOverloadWhileAllAreDown: targets that are down and get requests anyway have their places, too. A
// request without one is told that they are down, which is the reason.
func TestOverloadWhileAllAreDown(t *testing.T) {
	u := adaptively(1, 1)
	u.Health.Failures = 1
	b := newBench(t, u)
	b.ends(1, Failed)
	e := b.pick()
	if _, err := b.Pick(); !errors.Is(err, ErrOut) {
		t.Errorf("a second request: %v", err)
	}
	if b.Full(adaptive.Request{}) {
		t.Error("targets that are down are said to be overloaded")
	}
	e.Done(Answered, "")
	b.pick()
}

// TestFull: a look ahead finds out whether a request would be refused, takes no place, and counts only the
// requests that it refuses. What is refused for its priority is found, too.
func TestFull(t *testing.T) {
	b := newBench(t, adaptively(8, 1))
	look := func(want bool, as adaptive.Request) {
		t.Helper()
		if got := b.Full(as); got != want {
			t.Errorf("full: %v, want %v at %s", got, want, b.limits())
		}
	}
	look(false, adaptive.Request{})
	var all []Exchange
	for range 8 {
		all = append(all, b.pick())
	}
	look(true, adaptive.Request{Priority: adaptive.Sheddable})
	look(true, adaptive.Request{Priority: adaptive.CriticalPlus})
	if got, want := b.limits(), "a 8/8 {0 0 0 2}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	all[0].Done(Answered, "")
	look(true, adaptive.Request{Priority: adaptive.Sheddable}) // the place is kept for the more important
	look(false, adaptive.Request{Priority: adaptive.CriticalPlus})
	if got, want := b.limits(), "a 7/8 {1 0 0 3}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestPlace: a place that was taken beforehand moves with its request, and is given back once.
func TestPlace(t *testing.T) {
	b := newBench(t, adaptively(1, 1, 1))
	unused, err := b.Enter(t.Context(), adaptive.Request{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	unused.Done(weir.OK)
	unused.Done(weir.Dropped)
	if got, want := b.limits(), "a 0/1 {0 1 0 0}, b 0/1 {0 0 0 0}"; got != want {
		t.Errorf("a place that was not used: %s, want %s", got, want)
	}
	p, err := b.Enter(t.Context(), adaptive.Request{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var went []string
	err = b.try(b.settings.Load(), p, func(e Exchange) (bool, error) {
		went = append(went, e.Target.URL().Host)
		if len(went) == 1 {
			e.Done(Failed, "a test")
			return true, errors.New("a test")
		}
		e.Done(Answered, "")
		return false, nil
	})
	if got := strings.Join(went, ""); err != nil || got != "ba" {
		t.Fatalf("it went to %s: %v", got, err)
	}
	if got, want := b.limits(), "a 1/1 {0 1 0 0}, b 0/1 {0 0 1 0}"; got != want {
		t.Errorf("after the second attempt: %s, want %s", got, want)
	}
	p.Done(weir.Dropped) // it responded that it is overloaded
	p.Done(weir.OK)
	if got, want := b.limits(), "a 0/1 {0 1 1 0}, b 0/1 {0 0 1 0}"; got != want {
		t.Errorf("at the end: %s, want %s", got, want)
	}
}

// TestAdaptiveAcrossPolicies: an update keeps what a limit has learnt while its parameters stay.
func TestAdaptiveAcrossPolicies(t *testing.T) {
	b := newBench(t, adaptively(2, 1))
	e := b.pick()
	u := adaptively(2, 1, 1)
	u.MaxRequests = 7
	b.change(u)
	if got, want := b.limits(), "a 1/2 {0 0 0 0}, b 0/2 {0 0 0 0}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	b.change(adaptively(3, 1))
	if got, want := b.limits(), "a 0/3 {0 0 0 0}"; got != want {
		t.Errorf("other parameters: %s, want %s", got, want)
	}
	e.Done(Answered, "") // at the limit that it has entered
	b.change(policy.Upstream{Targets: targets(1)})
	if got := b.limits(); got != "a 0/0 {0 0 0 0}" {
		t.Errorf("without one: %s", got)
	}
}

// TestQueueForATarget: with a queue, a request waits for a place, the most important one first. It ends with
// its context, and those beyond the queue are refused at once.
func TestQueueForATarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := adaptively(1, 1)
		u.Adaptive.Queue = adaptive.Queue{Length: 2, Wait: time.Minute}
		b := newBench(t, u)
		first := b.pick()
		var order []string
		wait := func(ctx context.Context, name string, p adaptive.Priority) {
			go func() {
				place, err := b.Enter(ctx, adaptive.Request{Priority: p}, nil)
				if err != nil {
					name += ": " + err.Error()
				}
				order = append(order, name)
				place.Done(weir.OK)
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		wait(ctx, "left", adaptive.Critical)
		cancel()
		synctest.Wait()
		wait(t.Context(), "batch", adaptive.Sheddable)
		wait(t.Context(), "shop", adaptive.Critical)
		if _, err := b.Enter(t.Context(), adaptive.Request{Priority: adaptive.Sheddable}, nil); !errors.Is(err, weir.ErrLimited) {
			t.Errorf("beyond the queue: %v", err)
		}
		first.Done(Answered, "")
		synctest.Wait()
		if got, want := strings.Join(order, ", "), "left: context canceled, shop, batch"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got := b.Stats()[0].Targets[0]; got.InFlight != 0 || got.Adaptive.InFlight != 0 || got.Requests != 3 {
			t.Errorf("%+v", got)
		}
	})
}

// TestQueuedIsNotRefused: a request that waits in the queue and is served then was counted as refused, and one
// that the queue refused was counted twice.
func TestQueuedIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := adaptively(1, 1)
		u.Adaptive.Queue = adaptive.Queue{Length: 1, Wait: time.Minute}
		b := newBench(t, u)
		first := b.pick()
		go func() {
			place, err := b.Enter(t.Context(), adaptive.Request{}, nil)
			if err != nil {
				t.Error(err)
			}
			place.Done(weir.Ignore)
		}()
		synctest.Wait()
		if _, err := b.Enter(t.Context(), adaptive.Request{}, nil); !errors.Is(err, weir.ErrLimited) {
			t.Errorf("beyond the queue: %v", err)
		}
		first.Done(Answered, "")
		synctest.Wait()
		if got, want := b.limits(), "a 0/1 {1 1 0 1}"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// TestQueueWithinMaxRequests: a request without a place waited at a target that had max_requests in flight, and
// was sent there beyond them.
func TestQueueWithinMaxRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := adaptively(1, 1)
		u.MaxRequests = 2
		u.Adaptive.Queue = adaptive.Queue{Length: 5, Wait: time.Minute}
		b := newBench(t, u)
		first := b.pick()
		var last error
		go func() {
			_, last = b.Enter(t.Context(), adaptive.Request{}, nil)
		}()
		synctest.Wait()
		b.Upstream.mu.Lock()
		b.targets[0].inFlight += 2 // connections that have switched to their protocol, and left the adaptive limit
		b.Upstream.mu.Unlock()
		first.Done(Answered, "")
		synctest.Wait()
		got := b.Stats()[0].Targets[0]
		if !errors.Is(last, ErrFull) || got.InFlight != 2 || got.Adaptive.InFlight != 0 {
			t.Errorf("%v, %d in flight, %d at the adaptive limit", last, got.InFlight, got.Adaptive.InFlight)
		}
	})
}

// TestServedElsewhere: a request for which one target kept its free places, and that another target served,
// counted as refused.
func TestServedElsewhere(t *testing.T) {
	b := newBench(t, adaptively(8, 1, 1))
	b.targets[1].up = false
	var all []Exchange
	for range 8 {
		all = append(all, b.pick())
	}
	for _, p := range []adaptive.Priority{adaptive.Sheddable, adaptive.Critical} { // from now on, a place is kept
		if _, err := b.Enter(t.Context(), adaptive.Request{Priority: p}, nil); !errors.Is(err, ErrOverloaded) {
			t.Fatal(err)
		}
	}
	all[0].Done(Answered, "")
	b.targets[1].up = true
	for range 7 { // as many as a has, so that it is a's turn
		b.targets[1].limit.TryEnter()
		b.targets[1].inFlight++
	}
	for range 2 {
		if b.Full(adaptive.Request{Priority: adaptive.Sheddable}) {
			t.Error("b has a place")
		}
		p, err := b.Enter(t.Context(), adaptive.Request{Priority: adaptive.Sheddable}, nil)
		if err != nil || p.exchange.Target != b.targets[1] {
			t.Fatal(err)
		}
		p.Done(weir.OK)
	}
	if got, want := b.limits(), "a 7/8 {1 0 0 2}, b 7/8 {0 2 0 0}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
