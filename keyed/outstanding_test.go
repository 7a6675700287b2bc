package keyed_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

// TestCancelledKeysAreAsIfNeverCharged: for each key, also while other keys come and go.
func TestCancelledKeysAreAsIfNeverCharged(t *testing.T) {
	clock := new(weirtest.Clock)
	k, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerHour(1), Burst: 8}, keyed.Options{MaxKeys: 64, Clock: clock.Now, Timers: clock.AfterFunc})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	open := map[string][]keyed.Reservation[string]{}
	for i := range 3 {
		for n := range 16 {
			key := fmt.Sprint("held", n)
			if !k.Allow(key) {
				t.Fatal(key)
			}
			r, ok := k.Reserve(key, 1, 0)
			if !ok {
				t.Fatal(key)
			}
			open[key] = append(open[key], r)
		}
		for n := range 1000 { // keys that evict each other
			k.Take(fmt.Sprint("other", i, n), 1)
		}
	}
	for key, all := range open {
		all[0].Cancel()
		all[2].Cancel()
		all[1].Cancel()
		all[1].Cancel()
		if d := k.Peek(key, 0); d.Remaining != 5 {
			t.Errorf("%s: %+v", key, d)
		}
	}
	if s := k.Stats(); s.Inexact != 0 {
		t.Errorf("%+v", s)
	}
}

// TestReservationsOfAnEvictedKey: a reservation that outlives its key's state gives nothing back to
// the new state.
func TestReservationsOfAnEvictedKey(t *testing.T) {
	clock := new(weirtest.Clock)
	k, err := keyed.New[int](weir.TokenBucket{Rate: weir.PerHour(1), Burst: 8}, keyed.Options{MaxKeys: 1, Clock: clock.Now, Timers: clock.AfterFunc})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	old, _ := k.Reserve(1, 3, 0)
	k.Take(2, 5) // evicts 1
	if _, ok := k.Reserve(1, 4, 0); !ok {
		t.Fatal("no room")
	}
	old.Cancel()
	if d := k.Peek(1, 0); d.Remaining != 4 {
		t.Errorf("%+v", d)
	}
}

// TestChargesThatWereNotKept: Settle and Cancel of a charge without Keep silently did nothing.
func TestChargesThatWereNotKept(t *testing.T) {
	clock := new(weirtest.Clock)
	k, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerHour(1), Burst: 2}, keyed.Options{Name: "a", Clock: clock.Now, Timers: clock.AfterFunc})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	g, err := keyed.NewGroup(k)
	if err != nil {
		t.Fatal(err)
	}
	charges := []keyed.Charge[string]{{Key: "k", Cost: 1}}
	if d, _ := g.Take(charges); !d.Allowed {
		t.Fatal(d)
	}
	if err := charges[0].Cancel(); !errors.Is(err, keyed.ErrNotKept) {
		t.Error(err)
	}
	if err := charges[0].Settle(0); !errors.Is(err, keyed.ErrNotKept) {
		t.Error(err)
	}
	charges[0].Keep = true
	if d, _ := g.Take(charges); !d.Allowed {
		t.Fatal(d)
	}
	if d, _ := g.Take([]keyed.Charge[string]{{Key: "k", Cost: 1}}); d.Allowed {
		t.Fatal(d)
	}
	if err := charges[0].Cancel(); err != nil {
		t.Error(err)
	}
	if d := k.Peek("k", 1); d.Remaining != 1 {
		t.Errorf("%+v", d)
	}
	refused := []keyed.Charge[string]{{Key: "k", Cost: 2}}
	if d, _ := g.Take(refused); d.Allowed {
		t.Fatal(d)
	}
	if err := refused[0].Cancel(); err != nil {
		t.Error("nothing was charged: ", err)
	}
}

// TestNginxBucketPeekOfAKey: Peek returns what the next Take will.
func TestNginxBucketPeekOfAKey(t *testing.T) {
	limit := weir.NginxBucket{Rate: weir.PerSecond(1), Queue: 5}
	clock := new(weirtest.Clock)
	k, err := keyed.New[string](limit, keyed.Options{Clock: clock.Now, Timers: clock.AfterFunc})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	k.Take("a", 1)
	for i, d := range []weir.Decision{k.Peek("a", 1), k.Take("a", 1)} {
		if delay, excess := limit.Delay(d, 1), limit.Excess(d, 1); delay != time.Second || excess != 1000 {
			t.Errorf("call %d: a delay of %v, an excess of %d: %+v", i, delay, excess, d)
		}
	}
}

// TestGroupWithoutRoomForWhatIsKept: a limiter without room to keep a charge refused it after the
// others had been charged.
func TestGroupWithoutRoomForWhatIsKept(t *testing.T) {
	clock := new(weirtest.Clock)
	limiter := func(name string, bytes int64) *keyed.Limiter[string] {
		k, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerHour(1), Burst: 8},
			keyed.Options{Name: name, MaxKeys: 1000, MaxBytes: bytes, Clock: clock.Now, Timers: clock.AfterFunc})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = k.Close() })
		return k
	}
	first, small := limiter("first", 0), limiter("small", 64<<10)
	g, err := keyed.NewGroup(first, small)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := range 60 {
		key := fmt.Sprint(i)
		small.Take(key, 1)
		charges := []keyed.Charge[string]{{Key: key, Cost: 1, Keep: true}, {Key: key, Cost: 1, Keep: true}}
		seen, _ := g.Peek(charges)
		d, err := g.Take(charges)
		if err != nil || d.Allowed != seen.Allowed {
			t.Fatalf("key %d: %+v, %v, and before %+v", i, d, err, seen)
		}
		took := int64(0)
		if d.Allowed {
			took = 1
		} else {
			refused++
		}
		if a, b := first.Peek(key, 0).Remaining, small.Peek(key, 0).Remaining; a != 8-took || b != 7-took {
			t.Errorf("key %d: allowed %v, %d and %d remain", i, d.Allowed, a, b)
		}
		for j := range charges {
			if err := charges[j].Cancel(); err != nil {
				t.Error(err)
			}
		}
		if a, b := first.Peek(key, 0).Remaining, small.Peek(key, 0).Remaining; a != 8 || b != 7 {
			t.Errorf("key %d, cancelled: %d and %d remain", i, a, b)
		}
	}
	if refused == 0 || refused == 60 {
		t.Errorf("%d of 60 refused: the room is not what this test is about", refused)
	}
}

// TestGivenUpWaitOfTwoQueues: of two queues, the charge of the one that could go at once was never
// given back, although the wait for the other was given up.
func TestGivenUpWaitOfTwoQueues(t *testing.T) {
	for _, busy := range []int{0, 1} {
		clock := new(weirtest.Clock)
		var queues []*keyed.Limiter[string]
		for i := range 2 {
			k, err := keyed.New[string](weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 8},
				keyed.Options{Name: fmt.Sprint(i), Clock: clock.Now, Timers: clock.AfterFunc})
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			queues = append(queues, k)
		}
		g, err := keyed.NewGroup(queues...)
		if err != nil {
			t.Fatal(err)
		}
		queues[busy].Take("key", 1)
		charges := []keyed.Charge[string]{{Key: "key", Cost: 1, Wait: true}, {Key: "key", Cost: 1, Wait: true}}
		if d, err := g.Take(charges); err != nil || !d.Allowed || charges[busy].Place == nil || charges[1-busy].Place != nil {
			t.Fatalf("%+v, %v, %+v", d, err, charges)
		}
		for i := range charges {
			if err := charges[i].Cancel(); err != nil {
				t.Errorf("%d is busy, cancelling %d: %v", busy, i, err)
			}
		}
		if d := queues[1-busy].Peek("key", 1); !d.Allowed || d.ResetAfter != 0 {
			t.Errorf("%d is busy: the other one stays charged: %+v", busy, d)
		}
		if n := queues[busy].Waiting(); n != 0 {
			t.Errorf("%d wait", n)
		}
	}
}

// TestAKeptQueueIsGivenBackAfterItsTurn: a charge that waited in a queue could not be cancelled
// after its turn. With Keep, or if another charge waits for longer, a Group now makes charges that
// can.
func TestAKeptQueueIsGivenBackAfterItsTurn(t *testing.T) {
	for _, keep := range []bool{true, false} {
		clock := new(weirtest.Clock)
		open := func(name string, per int64) *keyed.Limiter[string] {
			k, err := keyed.New[string](weir.LeakyBucket{Rate: weir.PerSecond(per), Queue: 8},
				keyed.Options{Name: name, Clock: clock.Now, Timers: clock.AfterFunc})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { k.Close() })
			k.Take("key", 1)
			return k
		}
		quick, slow := open("quick", 10), open("slow", 1)
		g, err := keyed.NewGroup(quick, slow)
		if err != nil {
			t.Fatal(err)
		}
		charges := []keyed.Charge[string]{{Key: "key", Cost: 3, Wait: true, Keep: keep}, {Key: "key", Cost: 1, Wait: true, Keep: keep}}
		if d, err := g.Take(charges); err != nil || !d.Allowed || charges[0].Place == nil || charges[1].Place == nil {
			t.Fatalf("%+v, %v, %+v", d, err, charges)
		}
		clock.Set(int64(250 * time.Millisecond)) // the turn of one has come
		for i := range charges {
			if err := charges[i].Cancel(); err != nil {
				t.Errorf("cancelling %d: %v", i, err)
			}
		}
		if d := quick.Peek("key", 1); !d.Allowed || d.ResetAfter != 0 {
			t.Errorf("keep: %v: %+v", keep, d)
		}
		if d := slow.Peek("key", 1); d.ResetAfter != 750*time.Millisecond || slow.Waiting() != 0 {
			t.Errorf("keep: %v: %+v, %d wait", keep, d, slow.Waiting())
		}
	}
}

// TestSettleOfAWaitThatWasNotKept: it returns an error.
func TestSettleOfAWaitThatWasNotKept(t *testing.T) {
	clock := new(weirtest.Clock)
	k, err := keyed.New[string](weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 8}, keyed.Options{Clock: clock.Now, Timers: clock.AfterFunc})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	k.Take("key", 1)
	g, err := keyed.NewGroup(k)
	if err != nil {
		t.Fatal(err)
	}
	charges := []keyed.Charge[string]{{Key: "key", Cost: 1, Wait: true}}
	if d, err := g.Take(charges); err != nil || !d.Allowed || charges[0].Place == nil {
		t.Fatalf("%+v, %v", d, err)
	}
	clock.Set(int64(time.Second))
	if err := charges[0].Settle(0); !errors.Is(err, keyed.ErrNotKept) {
		t.Error(err)
	}
	if err := charges[0].Cancel(); !errors.Is(err, keyed.ErrNotKept) {
		t.Error(err)
	}
}
