package keyed_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

func TestConcurrencySetLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency[int](t, weir.Concurrency{Limit: 1, Queue: 5}, keyed.Options{})
		spare, _ := c.TryEnter(100)
		spare.Done(weir.OK) // this leaves a spare state with the old parameters
		const keys = 50
		var wg sync.WaitGroup
		for key := range keys {
			c.TryEnter(key)
			wg.Go(func() {
				if _, err := c.EnterCost(t.Context(), key, 1); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if err := c.SetLimit(weir.Concurrency{Limit: 3, Queue: 1}); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		for key := range keys {
			if d := c.Peek(key, 1); c.Holding(key) != 2 || d.Remaining != 1 || d.Limit != 3 {
				t.Errorf("%d: %+v", key, d)
			}
		}
		if _, d := c.TryEnterCost(100, 3); !d.Allowed || d.Limit != 3 {
			t.Errorf("a new key: %+v", d)
		}
		// Lowered: holds stay, and a waiter whose cost does not fit any more gets an error.
		wg.Go(func() {
			if _, err := c.EnterCost(t.Context(), 0, 3); !errors.Is(err, weir.ErrLimited) {
				t.Errorf("%v", err)
			}
		})
		synctest.Wait()
		c.SetLimit(weir.Concurrency{Limit: 1})
		wg.Wait()
		if d := c.Peek(0, 1); c.Holding(0) != 2 || d.Allowed || d.Limit != 1 {
			t.Errorf("%+v", d)
		}
		if got := c.Stats().Outcomes.OK; got != 1 {
			t.Errorf("%d have left: the counts of spare states are lost", got)
		}
	})
}

// TestConcurrencyExpiry: a holder that never calls Done loses its place, and its key is dropped
// without any call.
func TestConcurrencyExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency[string](t, weir.Concurrency{Limit: 1, Queue: 1, MaxHold: 10 * sec}, keyed.Options{})
		lost, _ := c.TryEnter("a")
		beaten, _ := c.TryEnter("b")
		go func() {
			for range 3 {
				<-time.After(8 * sec)
				if !beaten.Extend() {
					t.Error("extended in time, and yet gone")
				}
			}
		}()
		start := time.Now()
		next, err := c.Enter(t.Context(), "a") // waits
		if err != nil || time.Since(start) != 10*sec {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if lost.Extend() || next.Fence() <= lost.Fence() {
			t.Errorf("fences %d, %d", lost.Fence(), next.Fence())
		}
		lost.Done(weir.OK)
		if c.Holding("a") != 1 {
			t.Error("one that had expired left")
		}
		<-time.After(12 * sec)
		if c.Len() != 1 {
			t.Errorf("after 22 seconds %d are kept", c.Len())
		}
		<-time.After(12*sec + time.Second)
		nothing(t, c)
		if got, want := c.Stats().Outcomes, (weir.Outcomes{Expired: 3}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// TestConcurrencyExpiryAfterAChange: MaxHold changes while a caller waits, and while there are
// holds that expire under the old value.
func TestConcurrencyExpiryAfterAChange(t *testing.T) {
	for _, next := range []time.Duration{0, time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c := newConcurrency[string](t, weir.Concurrency{Limit: 1, Queue: 1, MaxHold: time.Minute}, keyed.Options{})
			first, _ := c.TryEnter("a")
			c.TryEnter("b")
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := c.Enter(t.Context(), "a"); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			first.Done(weir.OK) // the waiter's hold begins now, under the old parameters
			c.SetLimit(weir.Concurrency{Limit: 1, Queue: 1, MaxHold: next})
			wg.Wait()
			if h, d := c.TryEnter("c"); !d.Allowed || h.Fence() == 0 {
				t.Errorf("%+v", d)
			}
			<-time.After(max(2*time.Minute, next+time.Minute))
			want := 0
			if next == 0 {
				want = 1 // c, which does not expire
			}
			if c.Len() != want {
				t.Errorf("MaxHold %v: %d are kept", next, c.Len())
			}
		})
	}
}

// TestConcurrencyJanitor: its timer is set only while something expires, and Close ends it.
func TestConcurrencyJanitor(t *testing.T) {
	clock := new(weirtest.Clock)
	o := keyed.Options{Clock: clock.Now, Timers: clock.AfterFunc}
	c := newConcurrency[int](t, weir.Concurrency{Limit: 1}, o)
	c.TryEnter(1)
	if _, set := clock.Next(); set {
		t.Error("a timer, and nothing expires")
	}
	c = newConcurrency[int](t, weir.Concurrency{Limit: 1, MaxHold: 5 * sec}, o)
	c.TryEnter(1)
	if at, set := clock.Next(); !set || at != int64(5*sec) {
		t.Errorf("%v, %v", at, set)
	}
	clock.Set(int64(5 * sec))
	nothing(t, c)
	if _, set := clock.Next(); set {
		t.Error("a timer, and nothing is there")
	}
	c.TryEnter(1)
	c.Close()
	if _, set := clock.Next(); set {
		t.Error("a timer after Close")
	}
	c.TryEnter(2)
	if _, set := clock.Next(); set {
		t.Error("a timer after Close")
	}
	clock.Set(int64(20 * sec))
	if d := c.Peek(1, 1); !d.Allowed || c.Holding(2) != 0 || c.Len() != 0 {
		t.Errorf("%+v: %d kept", d, c.Len())
	}
}

// TestConcurrencyFencesGrow: also for a key that was dropped and is entered again, whatever the
// clock does.
func TestConcurrencyFencesGrow(t *testing.T) {
	for name, l := range map[string]weir.Concurrency{"expiring": {Limit: 1, MaxHold: time.Hour}, "not": {Limit: 1}} {
		wall := int64(5_000_000)
		c := newConcurrency[int](t, l, keyed.Options{WallClock: func() int64 { return wall }, Timers: neverFires})
		last := map[int]int64{}
		for i := range 2000 {
			for key := range 30 {
				h, d := c.TryEnter(key)
				f := h.Fence()
				if !d.Allowed || f <= last[key] || f < wall/1000 {
					t.Fatalf("%s: %d after %d: %+v", name, f, last[key], d)
				}
				if last[key] = f; (i+key)%3 > 0 {
					h.Done(weir.OK)
					continue
				}
				c.TryEnter(1000 + key) // so that other keys take the spare states
				h.Done(weir.OK)
			}
			switch i {
			case 500:
				wall = 1000 // the clock goes back
			case 1000:
				wall = 1e15
			}
		}
		if last[3] < 1e12 {
			t.Errorf("%s: the fence does not follow the clock", name)
		}
	}
	c := newConcurrency[int](t, weir.Concurrency{Limit: 1, MaxHold: time.Hour}, keyed.Options{})
	before := time.Now().UnixMicro()
	if h, _ := c.TryEnter(1); h.Fence() < before {
		t.Errorf("%d, at %d", h.Fence(), before)
	}
}

func TestConcurrencyDo(t *testing.T) {
	c := newConcurrency[string](t, weir.Concurrency{Limit: 1}, keyed.Options{})
	failed := errors.New("failed")
	for _, want := range []error{nil, failed, context.DeadlineExceeded, weir.ErrLimited} {
		err := c.Do(t.Context(), "a", func(context.Context) error {
			if c.Holding("a") != 1 {
				t.Error("not held")
			}
			if err := c.Do(t.Context(), "a", nil); !errors.Is(err, weir.ErrLimited) {
				t.Errorf("a second: %v", err)
			}
			return want
		})
		if err != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic was lost")
			}
		}()
		c.Do(t.Context(), "a", func(context.Context) error { panic("boom") })
	}()
	ended := make(chan bool)
	go func() {
		defer close(ended)
		c.Do(t.Context(), "a", func(context.Context) error { runtime.Goexit(); return nil })
	}()
	<-ended
	nothing(t, c)
	if got, want := c.Stats().Outcomes, (weir.Outcomes{OK: 1, Ignored: 1, Dropped: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestConcurrencyMemoryComesBack: after many keys have been used and dropped, only some spare
// states are left.
func TestConcurrencyMemoryComesBack(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const crowd = 20_000
	c := newConcurrency[int](t, weir.Concurrency{Limit: 2}, keyed.Options{})
	before := heap()
	full := int64(0)
	func() {
		holds := make([]keyed.Hold[int], crowd)
		for i := range holds {
			holds[i], _ = c.TryEnter(i)
		}
		full = heap() - before
		for _, h := range holds {
			h.Done(weir.OK)
		}
	}()
	left := heap() - before
	nothing(t, c)
	t.Logf("%d bytes a key; %d are left of %d", full/crowd, left, full)
	if left > full/20 {
		t.Errorf("%d bytes are left of %d", left, full)
	}
	runtime.KeepAlive(c)
}

// TestConcurrencyAllocatesNothing: also for keys that come and go.
func TestConcurrencyAllocatesNothing(t *testing.T) {
	for name, l := range map[string]weir.Concurrency{"expiring": {Limit: 2, MaxHold: time.Hour}, "not": {Limit: 2}} {
		c := newConcurrency[int](t, l, keyed.Options{})
		i := 0
		call := func() {
			i++
			h, _ := c.TryEnter(i % 64)
			h.Done(weir.OK)
		}
		for range 3000 {
			call()
		}
		if n := testing.AllocsPerRun(3000, call); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkConcurrency(b *testing.B) {
	for name, l := range map[string]weir.Concurrency{"expiring": {Limit: 64, MaxHold: time.Hour}, "not": {Limit: 64}} {
		for _, keys := range []int{1, 1000} {
			b.Run(fmt.Sprint(name, " ", keys), func(b *testing.B) {
				c := newConcurrency[int](b, l, keyed.Options{})
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						h, _ := c.TryEnter(i % keys)
						h.Done(weir.OK)
					}
				})
			})
		}
	}
}

// Two uploads at once for each user. A user without one takes no memory.
func ExampleNewConcurrency() {
	c, err := keyed.NewConcurrency[string](weir.Concurrency{Limit: 2, Queue: 10, MaxHold: time.Minute}, keyed.Options{MaxKeys: 100_000})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	first, _ := c.TryEnter("ann")
	second, err := c.Enter(context.Background(), "ann") // would wait, in order, for up to ten
	fmt.Println(err, c.Holding("ann"), c.Len())
	_, d := c.TryEnter("ann")
	_, other := c.TryEnter("bob")
	fmt.Println(d.Allowed, other.Allowed)

	first.Done(weir.OK)
	second.Done(weir.OK)
	fmt.Println(c.Holding("ann"), c.Len())
	// Output:
	// <nil> 2 1
	// false true
	// 0 1
}
