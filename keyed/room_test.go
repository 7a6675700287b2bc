package keyed_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

func TestIdleKeysAreEvicted(t *testing.T) {
	k, c := onClock[int](t, tenASecond, keyed.Options{MaxKeys: 100})
	for i := range 100 {
		k.Take(i, int64(1+i%3))
	}
	c.Set(int64(300 * ms)) // every bucket is full again, and idle
	for i := range 100 {
		k.Take(1000+i, 1)
	}
	if s := k.Stats(); s.Keys > 100 || s.EvictedFull != 0 || s.EvictedIdle == 0 {
		t.Errorf("%+v", s)
	}
	c.Set(int64(10 * sec)) // the janitor needs no calls to evict
	if s := k.Stats(); s.Keys != 0 || s.EvictedIdle != 200 {
		t.Errorf("%+v", s)
	}
}

func TestCloseEndsTheJanitor(t *testing.T) {
	k, c := onClock[int](t, tenASecond, keyed.Options{})
	k.Take(1, 1)
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	c.Set(int64(time.Hour))
	if k.Len() != 1 || !k.Allow(2) {
		t.Errorf("%d keys", k.Len())
	}
	if at, ok := c.Next(); ok {
		t.Errorf("a timer is set for %v", time.Duration(at))
	}
}

// TestLimitedKeysStayWhileThereIsRoom: 50 keys in debt stay, while thousands of others come and
// become idle.
func TestLimitedKeysStayWhileThereIsRoom(t *testing.T) {
	k, c := onClock[int](t, weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 2}, keyed.Options{MaxKeys: 1000})
	for i := range 50 {
		k.Take(-i-1, 2)
	}
	for i := range 2000 {
		c.Set(c.Now() + int64(130*ms)) // two minutes until a visitor's bucket is full, so about 920 at a time
		k.Take(i, 2)
		for j := range 50 {
			for k.Allow(-j - 1) {
			}
		}
	}
	if s := k.Stats(); s.EvictedFull != 0 || s.EvictedIdle == 0 || s.Keys > 1000 {
		t.Errorf("%+v", s)
	}
}

func TestBeyondTheCeilingTheLeastRestrictedIsEvicted(t *testing.T) {
	k, _ := onClock[int](t, weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 5}, keyed.Options{MaxKeys: 10})
	for i := range 10 {
		k.Take(i, 2)
	}
	for i := range 9 {
		k.Take(i, 3) // all but key 9 are empty
	}
	if d := k.Take(100, 1); !d.Allowed {
		t.Errorf("a new key: %+v", d)
	}
	if d := k.Peek(9, 1); d.Remaining != 5 {
		t.Errorf("the least restricted was kept: %+v", d)
	}
	k.Take(101, 1) // now key 100 is
	for i := range 9 {
		if k.Allow(i) {
			t.Errorf("key %d was evicted", i)
		}
	}
	if s := k.Stats(); s.EvictedFull != 2 || s.Keys != 10 {
		t.Errorf("%+v", s)
	}
}

func TestBeyondTheCeilingNewKeysAreRefused(t *testing.T) {
	k, c := onClock[int](t, tenASecond, keyed.Options{MaxKeys: 2, Full: keyed.Refuse, Name: "x"})
	k.Take(1, 3)
	k.Take(2, 1)
	want := weir.Decision{Limit: 3, RetryAfter: 100 * ms, By: "x"}
	if d := k.Take(3, 1); d != want {
		t.Errorf("%+v", d)
	}
	if d := k.Peek(3, 1); d != want {
		t.Errorf("%+v", d)
	}
	if err := k.Wait(t.Context(), 3, 1); !errors.Is(err, keyed.ErrFull) || !errors.Is(err, weir.ErrLimited) {
		t.Errorf("%v", err)
	}
	if r, ok := k.Reserve(3, 1, -1); ok || r.Delay() != 100*ms {
		t.Errorf("%v, %v", ok, r.Delay())
	}
	if p, d := k.Join(3, 1, -1); p != nil || d.Allowed {
		t.Errorf("%+v", d)
	}
	c.Set(int64(100 * ms))
	if d := k.Take(3, 1); !d.Allowed {
		t.Errorf("%+v", d)
	}
	if s := k.Stats(); s.Refused == 0 || s.EvictedFull != 0 {
		t.Errorf("%+v", s)
	}
}

func TestBucketsThatDoNotStartFull(t *testing.T) {
	k, c := onClock[int](t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5, Initial: weir.InitialEmpty}, keyed.Options{MaxKeys: 2})
	if k.Allow(1) {
		t.Error("a bucket did not start empty")
	}
	c.Set(int64(60 * sec)) // full, but not idle: it must not be evicted
	k.Take(2, 5)
	if d := k.Take(1, 5); !d.Allowed {
		t.Errorf("%+v", d)
	}
	if s := k.Stats(); s.EvictedIdle != 0 {
		t.Errorf("%+v", s)
	}
}

// TestStoredPermitsAreNotEvicted: a SmoothBursty starts with nothing stored, so a full one is not
// idle.
func TestStoredPermitsAreNotEvicted(t *testing.T) {
	k, c := onClock[int](t, weir.SmoothBursty{Rate: weir.PerSecond(10)}, keyed.Options{MaxKeys: 100})
	k.Allow(1)
	c.Set(int64(100 * sec))
	n := 0
	for k.Allow(1) {
		n++
	}
	if n != 11 { // the permits of a second, and one on credit
		t.Errorf("%d admitted, want 11: %+v", n, k.Stats())
	}
}

// TestRetryAfterOfAFullTable: RetryAfter of a full table follows from the current states of the keys, and
// not from those when they came.
func TestRetryAfterOfAFullTable(t *testing.T) {
	k, c := onClock[int](t, tenASecond, keyed.Options{MaxKeys: 2, Full: keyed.Refuse})
	k.Take(1, 1)
	k.Take(2, 1)
	c.Set(int64(50 * ms))
	k.Take(1, 2)
	r, _ := k.Reserve(2, 1, 0)
	if d := k.Take(3, 1); d.RetryAfter != 150*ms {
		t.Errorf("after more use: %+v", d)
	}
	r.Cancel()
	if d := k.Take(3, 1); d.RetryAfter != 50*ms {
		t.Errorf("after a cancel: %+v", d)
	}
}

// TestACancelledKeyGoesFirst: a key that is idle since a Cancel is evicted before one that is
// limited.
func TestACancelledKeyGoesFirst(t *testing.T) {
	k, _ := onClock[int](t, tenASecond, keyed.Options{MaxKeys: 2})
	r, _ := k.Reserve(1, 3, -1)
	k.Take(2, 1)
	if n := k.Take(3, 3); !n.Allowed { // evicts 2, and learns for how long 1 is limited
		t.Fatalf("%+v", n)
	}
	r.Cancel()
	k.Take(4, 3)
	if d := k.Peek(3, 1); d.Allowed {
		t.Errorf("a limited key was evicted beside a free one: %+v", d)
	}
	if s := k.Stats(); s.EvictedFull != 1 || s.EvictedIdle != 1 {
		t.Errorf("%+v", s)
	}
}

// TestUnchargedCallsTakeNoRoom: with a cost of 0, below 0 or above the capacity, no call makes
// a state or evicts a key.
func TestUnchargedCallsTakeNoRoom(t *testing.T) {
	for _, full := range []keyed.Full{keyed.Evict, keyed.Refuse} {
		k, _ := onClock[int](t, tenASecond, keyed.Options{MaxKeys: 1, Full: full})
		g, err := keyed.NewGroup(k)
		if err != nil {
			t.Fatal(err)
		}
		k.Take(1, 3)
		for _, cost := range []int64{4, -1} {
			if r, ok := k.Reserve(2, cost, -1); ok || r.Delay() != weir.Never {
				t.Errorf("Reserve(%d): %v, %v", cost, ok, r.Delay())
			}
			if p, d := k.Join(2, cost, -1); p != nil || d.Allowed || d.RetryAfter != weir.Never {
				t.Errorf("Join(%d): %+v", cost, d)
			}
			if d := k.Peek(2, cost); d.Allowed || d.RetryAfter != weir.Never {
				t.Errorf("Peek(%d): %+v", cost, d)
			}
			if d, _ := g.Take([]keyed.Charge[int]{{Key: 2, Cost: cost, Wait: true}}); d.Allowed || d.RetryAfter != weir.Never {
				t.Errorf("Group.Take(%d): %+v", cost, d)
			}
		}
		if err := k.Wait(t.Context(), 2, 4); !errors.Is(err, weir.ErrLimited) || errors.Is(err, keyed.ErrFull) {
			t.Errorf("Wait: %v", err)
		}
		r, ok := k.Reserve(2, 0, 0)
		if !ok || r.Delay() != 0 {
			t.Errorf("Reserve(0): %v, %v", ok, r.Delay())
		}
		if s := k.Stats(); s.EvictedFull != 0 || s.Refused != 0 || k.Allow(1) {
			t.Errorf("%+v", s)
		}
		r.Settle(2) // the part above the estimate is charged now, if there is room
		if d := k.Peek(2, 0); full == keyed.Evict && d.Remaining != 1 {
			t.Errorf("%+v", d)
		}
	}
}

// TestNoKeyIsIdleAtTheEndOfTheClock: a key that does not become idle before the end of the clock
// stays.
func TestNoKeyIsIdleAtTheEndOfTheClock(t *testing.T) {
	k, err := keyed.New[string](weir.IntervalBucket{Burst: 1, Refill: 1, Every: 1}, keyed.Options{Clock: func() int64 { return math.MaxInt64 }})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if !k.Allow("a") || !k.Allow("b") || k.Allow("a") {
		t.Error("the key was evicted")
	}
}

// TestRetryAfterOfAFullTableAfterMuchUse: all keys of a full table have been used since they came, so
// all times at which keys were known to become idle are outdated.
func TestRetryAfterOfAFullTableAfterMuchUse(t *testing.T) {
	const keys = 10_000
	c := new(weirtest.Clock)
	k, err := keyed.New[int](weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 9},
		keyed.Options{MaxKeys: keys, Full: keyed.Refuse, Clock: c.Now, Timers: c.AfterFunc})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for _, cost := range []int64{1, 3} {
		for key := range keys {
			k.Take(key, cost)
		}
	}
	k.Take(77, 1)
	k.Peek(78, 1)
	c.Set(int64(500 * time.Millisecond))
	if d := k.Take(-1, 1); d.Allowed || d.RetryAfter != 3500*time.Millisecond {
		t.Errorf("%+v", d)
	}
	c.Set(int64(4*time.Second) - 1)
	if d := k.Take(-1, 1); d.Allowed || d.RetryAfter != 1 {
		t.Errorf("%+v", d)
	}
	c.Set(int64(4 * time.Second))
	if d := k.Take(-1, 1); !d.Allowed {
		t.Errorf("%+v", d)
	}
}
