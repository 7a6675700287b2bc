package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/internal/seeds"
)

// TestQueueBesideASlowTarget: a request waited in the queue of the target with the fewest requests in flight, which
// may be the slow one, and was refused there while another target had places.
func TestQueueBesideASlowTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := adaptively(1, 1, 1)
		u.Adaptive.Queue = adaptive.Queue{Length: 2, Wait: time.Second}
		b := newBench(t, u)
		first, second := b.pick(), b.pick() // the slow one keeps its place
		fast := second
		if first.Target.URL().Host == "b" {
			fast = first
		}
		var served, refused int
		var all sync.WaitGroup
		for range 4 { // two in each queue
			all.Go(func() {
				place, err := b.Enter(t.Context(), adaptive.Request{}, nil)
				if err != nil {
					refused++
					return
				}
				time.Sleep(10 * time.Millisecond)
				served++
				place.Done(weir.OK)
			})
		}
		synctest.Wait()
		if _, err := b.Enter(t.Context(), adaptive.Request{}, nil); !errors.Is(err, weir.ErrLimited) {
			t.Errorf("beyond both queues: %v", err)
		}
		fast.Done(Answered, "")
		all.Wait()
		if served != 4 || refused != 0 {
			t.Errorf("%d were served and %d refused, beside a target that does not respond", served, refused)
		}
	})
}

// TestImportantWaitersFirst: a place that gets free goes to the most important request in the queues of the other
// targets, and to none whose context has ended.
func TestImportantWaitersFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := adaptively(1, 1, 1, 1)
		u.Adaptive.Queue = adaptive.Queue{Length: 5, Wait: time.Hour}
		b := newBench(t, u)
		held := []Exchange{b.pick(), b.pick(), b.pick()}
		var order []string
		ctx, cancel := context.WithCancel(t.Context())
		for i, p := range []adaptive.Priority{adaptive.Sheddable, adaptive.Critical, adaptive.CriticalPlus, adaptive.Critical} {
			go func() {
				ctx := ctx
				if i != 1 {
					ctx = t.Context()
				}
				place, err := b.Enter(ctx, adaptive.Request{Priority: p}, nil)
				order = append(order, fmt.Sprint(p, " ", err))
				time.Sleep(time.Minute)
				place.Done(weir.OK)
			}()
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		held[2].Done(Answered, "")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		want := []string{"critical context canceled", "critical_plus <nil>", "critical <nil>", "sheddable <nil>"}
		if !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
		held[0].Done(Left, "")
		held[1].Done(Failed, "a test")
		for _, target := range b.Stats()[0].Targets {
			if target.InFlight != 0 || target.Adaptive.InFlight != 0 || target.Adaptive.Waiting != 0 {
				t.Errorf("%+v", target)
			}
		}
	})
}

// TestKeptPlacesOfManyTargets: of nine targets each kept its free place for more important requests. The tenth had
// places for all, but was not asked.
func TestKeptPlacesOfManyTargets(t *testing.T) {
	u := adaptively(16, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	b := newBench(t, u)
	for _, target := range b.targets[:9] {
		l := target.limit
		h, _ := l.TryEnter()
		for ok := true; ok; {
			_, ok = l.TryEnter()
		}
		l.TryEnterAs(adaptive.Request{Priority: adaptive.Sheddable})
		l.TryEnterAs(adaptive.Request{Priority: adaptive.CriticalPlus}) // refused: from now on, places are kept
		if h.Done(weir.OK); !l.HasPlace(adaptive.Request{Priority: adaptive.CriticalPlus}) || l.HasPlace(adaptive.Request{Priority: adaptive.Sheddable}) {
			t.Fatalf("the free place is not kept: %+v", l.Stats())
		}
	}
	b.targets[9].inFlight = 10 // it comes last
	for range 30 {
		place, err := b.Enter(t.Context(), adaptive.Request{Priority: adaptive.Sheddable}, nil)
		if err != nil {
			t.Fatal(err)
		}
		place.Done(weir.Ignore)
	}
}

// TestWaitersRace: places, waits that end, and targets that change at once: no place is lost.
func TestWaitersRace(t *testing.T) {
	u := adaptively(2, 1, 1, 1)
	u.Adaptive.Queue = adaptive.Queue{Length: 20, Wait: 20 * time.Millisecond}
	b := newBench(t, u)
	r := seeds.Of(t.Name())
	draws := make([]int, 4000)
	for i := range draws {
		draws[i] = r.IntN(1000)
	}
	var all sync.WaitGroup
	for g := range 20 {
		all.Go(func() {
			for i := g; i < len(draws); i += 20 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(draws[i])*10*time.Microsecond)
				place, err := b.Enter(ctx, adaptive.Request{Priority: adaptive.Priority(draws[i]%4 - 2)}, nil)
				if err == nil {
					time.Sleep(time.Duration(draws[i]) * time.Microsecond / 2)
					place.Done(weir.OK)
				}
				cancel()
			}
		})
	}
	all.Wait()
	for _, target := range b.Stats()[0].Targets {
		if target.InFlight != 0 || target.Adaptive.InFlight != 0 || target.Adaptive.Waiting != 0 {
			t.Errorf("%+v", target)
		}
	}
}
