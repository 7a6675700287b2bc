package keyed_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

func TestFullKeysAreReleased(t *testing.T) {
	k, c := onClock[int](t, tenASecond, keyed.Options{MaxKeys: 100})
	for i := range 100 {
		k.Take(i, int64(1+i%3))
	}
	c.Set(int64(300 * ms)) // every bucket is full again: all equal untouched ones
	for i := range 100 {
		k.Take(1000+i, 1)
	}
	if s := k.Stats(); s.Keys > 100 || s.Forgotten != 0 || s.Released == 0 {
		t.Errorf("%+v", s)
	}
	c.Set(int64(10 * sec)) // the janitor needs no calls
	if s := k.Stats(); s.Keys != 0 || s.Released != 200 {
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

// TestALimitedKeyIsNotForgottenWhileThereIsRoom: 50 keys in debt, while thousands of others come and go.
func TestALimitedKeyIsNotForgottenWhileThereIsRoom(t *testing.T) {
	k, c := onClock[int](t, weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 2}, keyed.Options{MaxKeys: 1000})
	for i := range 50 {
		k.Take(-i-1, 2)
	}
	for i := range 2000 {
		c.Set(c.Now() + int64(130*ms)) // two minutes until a visitor's bucket is full: about 920 at a time
		k.Take(i, 2)
		for j := range 50 {
			for k.Allow(-j - 1) {
			}
		}
	}
	if s := k.Stats(); s.Forgotten != 0 || s.Released == 0 || s.Keys > 1000 {
		t.Errorf("%+v", s)
	}
}

func TestBeyondTheCeilingTheLeastRestrictedGoes(t *testing.T) {
	k, _ := onClock[int](t, weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 5}, keyed.Options{MaxKeys: 10})
	for i := range 10 {
		k.Take(i, 2)
	}
	for i := range 9 {
		k.Take(i, 3) // all but 9 are empty
	}
	if d := k.Take(100, 1); !d.Allowed {
		t.Errorf("a new key: %+v", d)
	}
	if d := k.Peek(9, 1); d.Remaining != 5 {
		t.Errorf("the least restricted was kept: %+v", d)
	}
	k.Take(101, 1) // now 100 is
	for i := range 9 {
		if k.Allow(i) {
			t.Errorf("key %d was forgotten", i)
		}
	}
	if s := k.Stats(); s.Forgotten != 2 || s.Keys != 10 {
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
	if s := k.Stats(); s.Refused == 0 || s.Forgotten != 0 {
		t.Errorf("%+v", s)
	}
}

func TestBucketsThatDoNotStartFull(t *testing.T) {
	k, c := onClock[int](t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5, Initial: weir.InitialEmpty}, keyed.Options{MaxKeys: 2})
	if k.Allow(1) {
		t.Error("a bucket did not start empty")
	}
	c.Set(int64(60 * sec)) // full, but not as good as new: it must not be released
	k.Take(2, 5)
	if d := k.Take(1, 5); !d.Allowed {
		t.Errorf("%+v", d)
	}
	if s := k.Stats(); s.Released != 0 {
		t.Errorf("%+v", s)
	}
}
