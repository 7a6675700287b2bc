package upstream

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/policy"
)

// queued returns an upstream of two targets with queues, each of which has no place left: a has two requests
// that do not end, and b ten.
func queued(t *testing.T, q adaptive.Queue) (b *bench, ofB []Exchange) {
	u := adaptively(2, 1, 1)
	u.Adaptive.Queue = q
	b = newBench(t, u)
	var err error
	if b.targets[1].limit, err = adaptive.New(adaptive.Options{Algorithm: adaptive.Knee{Initial: 10, Max: 10}, Queue: q}); err != nil {
		t.Fatal(err)
	}
	for range 12 {
		if e := b.pick(); e.Target == b.targets[1] {
			ofB = append(ofB, e)
		}
	}
	return b, ofB
}

// TestQueueOfASlowTarget: while no target had a place, each request waited in the queue of the target with the
// fewest requests in flight, which is a slow one with a low limit. It waited in vain there, or was refused as that
// queue was full, while the others had places again.
func TestQueueOfASlowTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ofB := queued(t, adaptive.Queue{Length: 5})
		var served, refused atomic.Int64
		for range 8 {
			go func() {
				p, err := b.Enter(t.Context(), adaptive.Request{}, nil)
				if err != nil {
					refused.Add(1)
					return
				}
				served.Add(1)
				time.Sleep(10 * time.Millisecond)
				p.Done(weir.OK)
			}()
			synctest.Wait()
		}
		if n := b.targets[1].queued; n != 5 {
			t.Errorf("%d requests wait for the target with most places, want 5", n)
		}
		for _, e := range ofB {
			time.Sleep(time.Millisecond)
			e.Done(Answered, "")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if served.Load() != 8 || refused.Load() != 0 {
			t.Errorf("%d served, %d refused", served.Load(), refused.Load())
		}
		if got, want := b.limits(), "a 2/2 {0 0 0 0}, b 0/10 {10 8 0 0}"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if n := b.queue.waiting.Load(); n != 0 || b.targets[0].queued != 0 || b.targets[1].queued != 0 {
			t.Errorf("%d still wait", n)
		}
	})
}

// TestQueueHandsOver: a place at a target for which nobody waits goes to the most important request that waits
// for another one, and to one of them alone.
func TestQueueHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ofB := queued(t, adaptive.Queue{Length: 5, Wait: time.Minute})
		b.targets[1].up = false // so all wait for a
		var mu sync.Mutex
		var order []string
		for name, p := range map[string]adaptive.Priority{"batch": adaptive.Sheddable, "shop": adaptive.Critical} {
			go func() {
				p, err := b.Enter(t.Context(), adaptive.Request{Priority: p}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, fmt.Sprint(name, " at ", p.exchange.Target.URL().Host))
			}()
			synctest.Wait()
		}
		b.targets[1].up = true
		for i := range ofB {
			ofB[i].Done(Answered, "")
			synctest.Wait()
			if want := min(i+1, 2); len(order) != want {
				t.Fatalf("after %d of b have ended: %v", i+1, order)
			}
		}
		if got := strings.Join(order, ", "); got != "shop at b, batch at b" {
			t.Error(got)
		}
		if got, want := b.limits(), "a 2/2 {0 0 0 0}, b 2/10 {10 0 0 0}"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// TestRefusedOnce: a request that other users went before was asked for again on its way to the queue, and at each of
// several targets, and counted as refused as often.
func TestRefusedOnce(t *testing.T) {
	for _, weights := range [][]int{{1}, {1, 1, 1}} {
		for _, q := range []adaptive.Queue{{}, {Length: 4, Wait: 5 * time.Millisecond}} {
			synctest.Test(t, func(t *testing.T) {
				u := adaptively(8, weights...)
				u.Adaptive.Queue = q
				b := newBench(t, u)
				var served, refused atomic.Uint64
				for i := range uint64(6000) {
					go func() {
						p, err := b.Enter(t.Context(), adaptive.Request{User: 1 + i%100*0x9E3779B97F4A7C15}, nil)
						if err != nil {
							refused.Add(1)
							return
						}
						served.Add(1)
						time.Sleep(time.Duration(5+i%7*5) * time.Millisecond)
						p.Done(weir.OK)
					}()
					time.Sleep(500 * time.Microsecond / time.Duration(len(weights)))
				}
				time.Sleep(time.Second)
				var counted, others uint64
				for _, target := range b.Stats()[0].Targets {
					counted += target.Adaptive.Outcomes.Refused
					others += target.Adaptive.Reasons.OtherUsers
				}
				if served.Load() == 0 || others == 0 || counted != refused.Load() {
					t.Errorf("%d targets, queue of %d: %d served, %d refused, and %d counted, %d of them for other users",
						len(weights), q.Length, served.Load(), refused.Load(), counted, others)
				}
			})
		}
	}
}

// TestQueueAcrossPolicies: a request that was about to wait panicked if an update took the adaptive limit away
// at that moment.
func TestQueueAcrossPolicies(t *testing.T) {
	u := adaptively(1, 1)
	u.Adaptive.Queue = adaptive.Queue{Length: 5, Wait: time.Millisecond}
	b := newBench(t, u)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			var last *Place // is held meanwhile, so that the next one waits
			for range 300 {
				p, err := b.Enter(t.Context(), adaptive.Request{}, nil)
				if err != nil && !errors.Is(err, weir.ErrLimited) && !errors.Is(err, ErrOverloaded) {
					t.Error(err)
				}
				last.Done(weir.OK)
				last = p
			}
			last.Done(weir.OK)
		})
	}
	for range 300 {
		b.change(policy.Upstream{Targets: targets(1)})
		b.change(u)
	}
	all.Wait()
	if got := b.Stats()[0].Targets[0]; got.InFlight != 0 || b.queue.waiting.Load() != 0 {
		t.Errorf("%+v", got)
	}
}
