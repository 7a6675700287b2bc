package keyed_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

var few = weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 2}

func overrides(t *testing.T, k *keyed.Limiter[string], key string, o keyed.Override) {
	t.Helper()
	if err := k.Override(key, o); err != nil {
		t.Fatal(err)
	}
}

// TestAPlanOfItsOwn: a key with a limit of its own keeps what it used, both when the plan begins
// and when it ends by itself.
func TestAPlanOfItsOwn(t *testing.T) {
	c := new(weirtest.Clock)
	k := table(t, c, "each", few)
	k.Take("vip", 2)
	overrides(t, k, "vip", keyed.Override{Limit: weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 10}, For: time.Minute})
	if d := k.Take("vip", 8); !d.Allowed || d.Remaining != 0 || d.Limit != 10 || d.By != "each" {
		t.Errorf("%+v", d)
	}
	if d := k.Take("other", 3); d.Allowed || d.RetryAfter != weir.Never {
		t.Errorf("another key: %+v", d)
	}
	if n, d := k.TakeAtMost("vip", 5); n != 0 || d.Limit != 10 {
		t.Errorf("%d, %+v", n, d)
	}
	c.Set(int64(time.Minute) - 1)
	if d := k.Peek("vip", 0); d.Limit != 10 {
		t.Errorf("it ended early: %+v", d)
	}
	c.Set(int64(time.Minute))
	if d := k.Take("vip", 1); d.Allowed || d.Limit != 2 || d.RetryAfter != 8*time.Minute {
		t.Errorf("the debt of before: %+v", d)
	}
	if k.Lift("vip") {
		t.Error("it was over")
	}
}

// TestABan: all is refused until the ban's end, which RetryAfter gives, and the used tokens stay as
// they were.
func TestABan(t *testing.T) {
	c := new(weirtest.Clock)
	k := table(t, c, "each", few)
	overrides(t, k, "bad", keyed.Override{Deny: true, For: 90 * time.Second})
	want := weir.Decision{Limit: 2, RetryAfter: 90 * time.Second, ResetAfter: 90 * time.Second, By: "each"}
	if d := k.Take("bad", 1); d != want {
		t.Errorf("%+v", d)
	}
	if d := k.Take("bad", 3); d.RetryAfter != weir.Never {
		t.Errorf("a cost that never fits: %+v", d)
	}
	if d := k.Take("bad", 0); !d.Allowed {
		t.Errorf("a cost of 0 changes nothing: %+v", d)
	}
	var limited *weir.LimitedError
	if err := k.Wait(context.Background(), "bad", 1); !errors.As(err, &limited) || limited.Decision != want {
		t.Error(err)
	}
	if r, ok := k.Reserve("bad", 1, -1); ok || r.Delay() != 90*time.Second {
		t.Errorf("%+v", r.Decision())
	}
	if p, d := k.Join("bad", 1, -1); p != nil || d != want {
		t.Errorf("%+v", d)
	}
	if n, _ := k.TakeAtMost("bad", 1); n != 0 {
		t.Error("taken")
	}
	g := group(t, k)
	if d, _ := g.Take([]keyed.Charge[string]{{Key: "bad", Cost: 1, Wait: true}}); d != want {
		t.Errorf("%+v", d)
	}
	c.Set(int64(90 * time.Second))
	if d := k.Take("bad", 2); !d.Allowed {
		t.Errorf("%+v", d)
	}

	// A ban without an end, of a key that has used all of its tokens.
	overrides(t, k, "bad", keyed.Override{Deny: true})
	if d := k.Take("bad", 1); d.Allowed || d.RetryAfter != weir.Never {
		t.Errorf("%+v", d)
	}
	c.Set(math.MaxInt64 / 2)
	if d := k.Take("bad", 1); d.Allowed || k.Len() != 1 {
		t.Errorf("%d keys, %+v", k.Len(), d)
	}
	if !k.Lift("bad") || k.Lift("bad") || k.Lift("nobody") {
		t.Error("Lift")
	}
	if d := k.Take("bad", 1); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

// TestARetryAfterABanIsAdmitted: also if the limit itself makes the key wait for longer than the
// ban.
func TestARetryAfterABanIsAdmitted(t *testing.T) {
	c := new(weirtest.Clock)
	k := table(t, c, "each", few)
	k.Take("bad", 2)
	overrides(t, k, "bad", keyed.Override{Deny: true, For: time.Second})
	d := k.Take("bad", 2)
	if d.Allowed || d.RetryAfter != 2*time.Minute {
		t.Fatalf("%+v", d)
	}
	c.Set(int64(d.RetryAfter) - 1)
	if d := k.Take("bad", 2); d.Allowed {
		t.Errorf("too early: %+v", d)
	}
	c.Set(int64(d.RetryAfter))
	if d := k.Take("bad", 2); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

// TestAnExemption: everything is allowed and nothing is charged, also by a Settle afterwards.
func TestAnExemption(t *testing.T) {
	c := new(weirtest.Clock)
	k := table(t, c, "each", few)
	overrides(t, k, "us", keyed.Override{Exempt: true})
	for range 10 {
		if d := k.Take("us", 100); !d.Allowed || d.Remaining != 2 {
			t.Fatalf("%+v", d)
		}
	}
	if d := k.Take("us", -1); d.Allowed {
		t.Errorf("%+v", d)
	}
	if err := k.Wait(context.Background(), "us", 100); err != nil {
		t.Error(err)
	}
	r, ok := k.Reserve("us", 100, 0)
	if !ok {
		t.Fatal("refused")
	}
	r.Settle(1000)
	k.Lift("us")
	if d := k.Peek("us", 2); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

// TestOverridesAreNeverEvicted: overrides stay in a full table, also when the limit changes and
// while the table grows.
func TestOverridesAreNeverEvicted(t *testing.T) {
	c := new(weirtest.Clock)
	k, err := keyed.New[int](few, keyed.Options{MaxKeys: 1000, Clock: c.Now, Timers: c.AfterFunc})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for i := range 100 {
		if err := k.Override(i, keyed.Override{Deny: true, For: 100 * time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20_000 {
		c.Set(int64(i) * int64(time.Second))
		k.Take(1000+i, 2)
	}
	if err := k.SetLimit(weir.FixedWindow{Limit: 9, Window: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if d := k.Take(i, 1); d.Allowed || d.Limit != 9 || d.RetryAfter != 100*time.Hour-time.Duration(c.Now()) {
			t.Fatalf("%d: %+v", i, d)
		}
	}
	c.Set(int64(100 * time.Hour))
	for i := range 100 {
		if d := k.Take(i, 9); !d.Allowed {
			t.Fatalf("%d: %+v", i, d)
		}
	}
	full, err := keyed.New[int](few, keyed.Options{MaxKeys: 2, Clock: c.Now, Timers: c.AfterFunc})
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for i, want := range []error{nil, nil, keyed.ErrFull} {
		if err := full.Override(i, keyed.Override{Exempt: true}); !errors.Is(err, want) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestOverridesThatAreWrong(t *testing.T) {
	k, err := keyed.New[any](few, keyed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for _, o := range []keyed.Override{
		{}, {Deny: true, Exempt: true}, {Limit: few, Deny: true}, {Deny: true, For: -1}, {Limit: weir.TokenBucket{}},
	} {
		if err := k.Override("a", o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	for _, key := range []any{math.NaN(), []int{1}} {
		if err := k.Override(key, keyed.Override{Deny: true}); !errors.Is(err, keyed.ErrKey) {
			t.Errorf("%v: %v", key, err)
		}
		if k.Lift(key) || k.Reset(key) {
			t.Errorf("%v is a key", key)
		}
	}
	if k.Len() != 0 {
		t.Errorf("%d keys are kept", k.Len())
	}
}
