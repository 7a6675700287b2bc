package keyed_test

import (
	"errors"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

func onClock[K comparable](t testing.TB, l weir.Limit, o keyed.Options) (*keyed.Limiter[K], *weirtest.Clock) {
	t.Helper()
	c := new(weirtest.Clock)
	o.Clock, o.Timers = c.Now, c.AfterFunc
	k, err := keyed.New[K](l, o)
	if err != nil {
		t.Fatal(err)
	}
	return k, c
}

var tenASecond = weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 3}

func TestKeysHaveTheirOwnStates(t *testing.T) {
	k, c := onClock[string](t, tenASecond, keyed.Options{Name: "per-user"})
	for range 3 {
		if !k.Allow("a") {
			t.Fatal("refused within the burst")
		}
	}
	if d := k.Take("a", 1); d.Allowed || d.RetryAfter != 100*ms || d.By != "per-user" {
		t.Errorf("%+v", d)
	}
	if d := k.Take("b", 3); !d.Allowed || d.By != "per-user" {
		t.Errorf("%+v", d)
	}
	if d := k.Peek("c", 1); !d.Allowed || d.Remaining != 3 {
		t.Errorf("%+v", d)
	}
	if k.Len() != 2 {
		t.Errorf("%d keys are kept, want 2: looking keeps nothing", k.Len())
	}
	c.Set(int64(100 * ms))
	if !k.Allow("a") {
		t.Error("refused when the token was there")
	}
}

type tenant struct {
	id   int
	addr netip.Addr
}

func TestAnyComparableKey(t *testing.T) {
	k, _ := onClock[tenant](t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, keyed.Options{})
	a := tenant{1, netip.MustParseAddr("::1")}
	if !k.Allow(a) || k.Allow(a) || !k.Allow(tenant{2, a.addr}) {
		t.Error("different struct keys share a state")
	}
}

func TestInvalidKeys(t *testing.T) {
	f, _ := onClock[float64](t, tenASecond, keyed.Options{})
	a, _ := onClock[any](t, tenASecond, keyed.Options{})
	type holder struct{ v [2]any }
	h, _ := onClock[holder](t, tenASecond, keyed.Options{})
	slice := any([]int{1})
	for name, check := range map[string]func() (weir.Decision, error, bool){
		"NaN": func() (weir.Decision, error, bool) {
			_, ok := f.Reserve(math.NaN(), 1, -1)
			return f.Take(math.NaN(), 1), f.Wait(t.Context(), math.NaN(), 1), ok
		},
		"a slice": func() (weir.Decision, error, bool) {
			_, ok := a.Reserve(slice, 1, -1)
			return a.Take(slice, 1), a.Wait(t.Context(), slice, 1), ok
		},
		"a slice inside": func() (weir.Decision, error, bool) {
			key := holder{[2]any{1, slice}}
			_, ok := h.Reserve(key, 1, -1)
			return h.Take(key, 1), h.Wait(t.Context(), key, 1), ok
		},
	} {
		d, err, ok := check()
		if d.Allowed || d.RetryAfter != weir.Never || !errors.Is(err, keyed.ErrKey) || ok {
			t.Errorf("%s: %+v, %v, %v", name, d, err, ok)
		}
	}
	if p, d := a.Join(slice, 1, -1); p != nil || d.Allowed {
		t.Errorf("joined: %+v", d)
	}
	if a.Len()+f.Len()+h.Len() != 0 {
		t.Error("something is kept")
	}
	if !a.Allow(1) || !a.Allow("1") {
		t.Error("good keys are refused")
	}
}

func TestReservationOutlivesItsKey(t *testing.T) {
	k, c := onClock[string](t, tenASecond, keyed.Options{MaxKeys: 1})
	r, ok := k.Reserve("a", 2, 0)
	if !ok || r.Delay() != 0 || r.Decision().Remaining != 1 {
		t.Fatalf("%+v", r.Decision())
	}
	early, _ := k.Reserve("a", 1, 0)
	c.Set(int64(10 * sec))
	k.Take("b", 1) // evicts a
	c.Set(int64(20 * sec))
	r.Settle(4) // the actual cost was two more, known much later
	if d := k.Peek("a", 1); d.Remaining != 1 {
		t.Errorf("%+v", d)
	}
	r.Settle(5)
	r.Cancel()
	early.Cancel()
	if d := k.Peek("a", 1); d.Remaining != 1 {
		t.Errorf("after settling again: %+v", d)
	}
	if _, ok := k.Reserve("a", 2, 0); ok {
		t.Error("reserved beyond the limit")
	}
	again, _ := k.Reserve("a", 1, 0)
	again.Cancel()
	if d := k.Peek("a", 1); d.Remaining != 1 {
		t.Errorf("after a cancel: %+v", d)
	}
}

func TestSetLimitForAllKeys(t *testing.T) {
	k, c := onClock[string](t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10}, keyed.Options{})
	k.Take("words", 6)
	k.Reserve("limiter", 6, 0)
	if err := k.SetLimit(weir.TokenBucket{}); err == nil {
		t.Error("a wrong limit was accepted")
	}
	if err := k.SetLimit(weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 8}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"words", "limiter"} {
		if d := k.Peek(key, 3); d.Remaining != 2 || d.RetryAfter != time.Minute || d.Limit != 8 {
			t.Errorf("%s: %+v", key, d)
		}
	}
	if d := k.Peek("new", 8); !d.Allowed {
		t.Errorf("%+v", d)
	}
	c.Set(int64(6*time.Minute) - 1)
	if k.Len() != 2 {
		t.Errorf("%d keys, want 2", k.Len())
	}
	c.Set(int64(7 * time.Minute))
	if k.Len() != 0 {
		t.Errorf("%d keys, want 0: they are full again", k.Len())
	}
	if !weir.Equal(k.Limit(), weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 8}) {
		t.Errorf("%+v", k.Limit())
	}
}

func TestNewChecksItsOptions(t *testing.T) {
	for _, o := range []keyed.Options{{MaxKeys: -1}, {Full: 7}} {
		if _, err := keyed.New[int](tenASecond, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if _, err := keyed.New[int](weir.TokenBucket{}, keyed.Options{}); err == nil {
		t.Error("a wrong limit was accepted")
	}
	if _, err := keyed.New[int](nil, keyed.Options{}); err == nil {
		t.Error("no limit was accepted")
	}
}

// TestWallWindowsReadWallTime: every way to a key with an epoch window uses wall time, and not the
// clock that starts with the process.
func TestWallWindowsReadWallTime(t *testing.T) {
	const wall = int64(1_700_000_000_000_000_000)
	k, err := keyed.New[string](weir.FixedWindow{Limit: 2, Window: 20 * time.Second}, keyed.Options{
		Clock: func() int64 { return 0 }, WallClock: func() int64 { return wall },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	k.Take("a", 2)
	want := k.Take("a", 1)
	if got := keyed.TakeText(k, []byte("a"), 1); got != want || got.RetryAfter > 20*time.Second {
		t.Errorf("TakeText: %+v, want %+v", got, want)
	}
	if r, ok := k.Reserve("b", 2, -1); !ok {
		t.Error("not reserved")
	} else if r.Cancel(); k.Take("b", 3).Allowed || !k.Take("b", 2).Allowed {
		t.Error("after a cancel the window is not as before")
	}
}
