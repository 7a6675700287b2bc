package keyed_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

// network returns the group of an address: its /24.
func network(a netip.Addr) netip.Addr {
	p, _ := a.Prefix(24)
	return p.Masked().Addr()
}

// TestBeyondTheCeilingNetworksShare: addresses with a state keep it; addresses that come later
// share one by network.
func TestBeyondTheCeilingNetworksShare(t *testing.T) {
	c := new(weirtest.Clock)
	k, err := keyed.NewSharing(weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 2},
		keyed.Options{MaxKeys: 2, Full: keyed.Share, Name: "each", Clock: c.Now, Timers: c.AfterFunc}, network)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	addr := netip.MustParseAddr
	k.Take(addr("192.0.2.1"), 1)
	k.Take(addr("192.0.2.2"), 1)
	for i, want := range []bool{true, true, false} {
		a := addr("198.51.100.1")
		for range i {
			a = a.Next()
		}
		if d := k.Peek(a, 1); d.Allowed != want {
			t.Errorf("Peek of %v: %+v", a, d)
		}
		if d := k.Take(a, 1); d.Allowed != want || d.By != "each" {
			t.Errorf("Take of %v: %+v", a, d)
		}
	}
	if d := k.Take(addr("192.0.2.1"), 1); !d.Allowed || d.Remaining != 0 {
		t.Errorf("a key with a state of its own: %+v", d)
	}
	if _, ok := k.Reserve(addr("198.51.100.9"), 1, 0); ok {
		t.Error("the shared state is used up, and a reservation was made")
	}
	if r, ok := k.Reserve(addr("198.51.100.9"), 1, time.Minute); !ok || r.Delay() != time.Minute {
		t.Errorf("%v, %v", ok, r.Delay())
	} else {
		r.Cancel()
	}
	if n, d := k.TakeAtMost(addr("203.0.113.1"), 5); n != 2 || !d.Allowed {
		t.Errorf("another network: %d, %+v", n, d)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := k.Wait(ctx, addr("198.51.100.4"), 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if s := k.Stats(); s.Keys != 2 || s.Shared < 6 || s.EvictedFull != 0 || s.Refused != 0 {
		t.Errorf("%+v", s)
	}
	if err := k.SetLimit(weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 3}); err != nil {
		t.Fatal(err)
	}
	if d := k.Take(addr("198.51.100.1"), 1); !d.Allowed {
		t.Errorf("after a raise: %+v", d)
	}
	c.Set(int64(time.Hour))
	if d := k.Take(addr("198.51.100.1"), 1); !d.Allowed || d.Remaining != 2 {
		t.Errorf("there is room again: %+v", d)
	}
}

// TestAGroupShares: the same for several limits that are charged together.
func TestAGroupShares(t *testing.T) {
	c := new(weirtest.Clock)
	each, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 1},
		keyed.Options{MaxKeys: 1, Full: keyed.Share, Name: "each", Clock: c.Now, Timers: c.AfterFunc})
	if err != nil {
		t.Fatal(err)
	}
	defer each.Close()
	g := group(t, each, table(t, c, "all", weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 9}))
	for i, want := range []bool{true, true, false} {
		d, err := g.Take([]keyed.Charge[string]{{Key: string(rune('a' + i)), Cost: 1}, {Key: "", Cost: 1}})
		if err != nil || d.Allowed != want {
			t.Errorf("%d: %+v, %v", i, d, err)
		}
	}
	if s := each.Stats(); s.Keys != 1 || s.Shared != 2 {
		t.Errorf("%+v", s)
	}
}

func TestOptionsOfTheCeiling(t *testing.T) {
	l := weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1}
	for _, o := range []keyed.Options{{MaxKeys: -1}, {MaxBytes: -1}, {MaxBytes: 100}, {Full: 9}} {
		if _, err := keyed.New[string](l, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	for limit, most := range map[weir.Limit]int{
		l: 1 << 16 * 3 / 4 / 31,
		weir.SlidingLog{Limit: 2, Window: time.Hour}: 42,
	} {
		k, err := keyed.New[int](limit, keyed.Options{MaxBytes: 1 << 16, Full: keyed.Refuse})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5000 {
			k.Take(i, 1)
		}
		if s := k.Stats(); s.Keys != most || s.Refused != uint64(5000-most) {
			t.Errorf("%T: %+v, want %d keys", limit, s, most)
		}
		k.Close()
	}
}

// TestLimitersOfKeysAreBoundedInBytes: a client that waits for many keys gets no more memory than
// MaxBytes allows.
func TestLimitersOfKeysAreBoundedInBytes(t *testing.T) {
	k, err := keyed.New[int](weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1}, keyed.Options{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	places := 0
	for i := range 1000 {
		k.Take(i, 1)
		p, d := k.Join(i, 1, -1)
		if p != nil {
			places++
		} else if d.Allowed {
			t.Fatalf("%d: %+v", i, d)
		}
	}
	if want := 1 << 20 * 3 / 16 / (1280 + 768); places != want {
		t.Errorf("%d places, want %d", places, want)
	}
}
