package keyed_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

// Each test here is named after a defect of another rate limiter. The root's peers_test.go has
// more.

// oxy: a key expires a fixed time after its creation, and is full again each time: 217 admitted of
// 1 per 900 ms with a burst of 50, in 4 s. go-zero, Spring Cloud Gateway: with a small burst the
// time to live is 0, and nothing is limited.
func TestPeerKeysExpireBeforeTheyAreIdle(t *testing.T) {
	for _, l := range []weir.Limit{
		weir.TokenBucket{Rate: weir.Rate{N: 1, Per: 900 * ms}, Burst: 50},
		weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 1},
		weir.IntervalBucket{Burst: 50, Refill: 50, Every: 10 * time.Minute},
		weir.FixedWindow{Limit: 50, Window: time.Hour},
		weir.SlidingWindow{Limit: 50, Window: time.Hour, Slots: 60},
		weir.SlidingCounter{Limit: 50, Window: time.Hour},
		weir.SlidingLog{Limit: 50, Window: time.Hour},
		weir.SmoothBursty{Rate: weir.PerMinute(1)},
		weir.WarmUp{Rate: weir.PerMinute(1), Period: time.Hour},
	} {
		k, c := onClock[int](t, l, keyed.Options{})
		alone, d := newAlone(t, l)
		k.Allow(1)
		alone.Allow()
		for at := time.Duration(0); at < 5*time.Minute; at += 97 * ms {
			c.Set(int64(at))
			d.Set(int64(at))
			if got, want := k.Take(1, 1), alone.Take(1); got != want {
				t.Fatalf("%T at %v: %+v, and without a key %+v", l, at, got, want)
			}
			if at == 2*time.Minute {
				at += time.Minute // long enough for the janitor
			}
		}
	}
}

// newAlone returns the same limit without keys, on a clock of its own.
func newAlone(t *testing.T, l weir.Limit) (*weir.Limiter, *weirtest.Clock) {
	t.Helper()
	c := new(weirtest.Clock)
	alone, err := weir.New(l, weir.WithClock(c.Now))
	if err != nil {
		t.Fatal(err)
	}
	return alone, c
}

// throttled's memory store, Sentinel's hot parameters, tailscale's limiter: the least recently used
// keys are evicted, so a limited client is admitted again after a churn of other keys.
func TestPeerChurnEvictsTheLimited(t *testing.T) {
	k, c := onClock[int](t, weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 5}, keyed.Options{MaxKeys: 100})
	k.Take(-1, 5)
	for i := range 10_000 {
		c.Set(int64(i) * int64(ms))
		k.Take(i, 1)
	}
	if d := k.Take(-1, 1); d.Allowed {
		t.Errorf("%+v, %+v", d, k.Stats())
	}
}

// didip/tollbooth, mholt/caddy-ratelimit, aegis: the number of keys has no bound.
func TestPeerKeysWithoutBound(t *testing.T) {
	k, _ := onClock[int](t, weir.FixedWindow{Limit: 1, Window: 24 * time.Hour}, keyed.Options{MaxKeys: 1000})
	for i := range 20_000 {
		k.Allow(i)
	}
	if n := k.Len(); n > 1000 {
		t.Errorf("%d keys", n)
	}
}

// mholt/caddy-ratelimit: limits are charged one after the other, and the first stays charged if a
// later one refuses.
func TestPeerRefusedByOneChargedByAnother(t *testing.T) {
	c, w := onClock[int](t, weir.FixedWindow{Limit: 10, Window: time.Hour}, keyed.Options{Name: "wide"})
	narrow, err := keyed.New[int](weir.SlidingLog{Limit: 1, Window: time.Hour}, keyed.Options{Name: "narrow", Clock: w.Now, Timers: w.AfterFunc})
	if err != nil {
		t.Fatal(err)
	}
	group, err := keyed.NewGroup(c, narrow)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := group.Take([]keyed.Charge[int]{{Key: 1, Cost: 1}, {Key: 1, Cost: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if d := c.Peek(1, 1); d.Remaining != 9 {
		t.Errorf("%+v", d)
	}
}
