package outstanding_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/outstanding"
	"github.com/weirflow/weir/weirtest"
)

func engine(t *testing.T) *policy.Engine {
	t.Helper()
	e, err := policy.New(policy.Policy{Limits: []policy.Limit{{Name: "l", Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 10}}}}, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// TestTable: a reservation is ended once, by its caller, before it expires; bounds hold in total and by
// caller, and what has no room is given back.
func TestTable(t *testing.T) {
	ctx := context.Background()
	e := engine(t)
	reserve := func() *policy.Answer {
		a, err := e.Reserve(ctx, []policy.Ask{{Limit: "l", Cost: 1}}, 0)
		if err != nil || !a.Allowed {
			t.Fatalf("%+v, %v", a, err)
		}
		return a
	}
	left := func() int64 {
		a, err := e.Peek(ctx, []policy.Ask{{Limit: "l"}})
		if err != nil {
			t.Fatal(err)
		}
		return a.Each[0].Decision.Remaining
	}
	now := time.UnixMilli(1e12)
	table := outstanding.New(outstanding.Options{Max: 3, PerCaller: 2, Now: func() time.Time { return now }})
	id, err := table.Add(ctx, outstanding.Caller{Name: "a"}, reserve(), time.Second)
	if err != nil || left() != 9 {
		t.Fatal(err, left())
	}
	for _, wrong := range []string{"", id[1:], id + "A", strings.Repeat("-", len(id)), "_____" + id[5:]} {
		if err := table.Settle(ctx, "a", wrong, nil); !errors.Is(err, outstanding.ErrUnknown) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if err := table.Settle(ctx, "b", id, nil); !errors.Is(err, outstanding.ErrUnknown) {
		t.Errorf("another caller: %v", err)
	}
	var costs *outstanding.CostsError
	if err := table.Settle(ctx, "a", id, []int64{1, 2}); !errors.As(err, &costs) || *costs != (outstanding.CostsError{Costs: 2, Limits: 1}) || left() != 9 {
		t.Errorf("two costs of one limit: %v, %d left", err, left())
	}
	if err := table.Settle(ctx, "a", id, nil); err != nil || left() != 10 {
		t.Error(err, left())
	}
	if err := table.Settle(ctx, "a", id, nil); !errors.Is(err, outstanding.ErrUnknown) {
		t.Errorf("twice: %v", err)
	}
	var ids []string
	for range 2 {
		id, err := table.Add(ctx, outstanding.Caller{Name: "a"}, reserve(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if _, err := table.Add(ctx, outstanding.Caller{Name: "a"}, reserve(), time.Second); !errors.Is(err, outstanding.ErrFull) || left() != 8 {
		t.Errorf("more than one caller may have: %v, %d left", err, left())
	}
	if _, err := table.Add(ctx, outstanding.Caller{Name: "b"}, reserve(), time.Minute); err != nil {
		t.Error(err)
	}
	if _, err := table.Add(ctx, outstanding.Caller{Name: "c"}, reserve(), time.Second); !errors.Is(err, outstanding.ErrFull) || left() != 7 {
		t.Errorf("more than the table has: %v, %d left", err, left())
	}
	now = now.Add(time.Second)
	if err := table.Settle(ctx, "a", ids[0], []int64{0}); !errors.Is(err, outstanding.ErrExpired) {
		t.Error(err)
	}
	if table.Len() != 1 || table.Expired() != 2 || left() != 7 {
		t.Errorf("%d are open, %d expired, %d left", table.Len(), table.Expired(), left())
	}
	now = now.Add(time.Hour)
	if table.Sweep(); table.Len() != 0 || left() != 7 {
		t.Errorf("%d are open, %d left", table.Len(), left())
	}
}

// TestOneCostForAllLimits: one cost is that of each limit; as many as limits are in their order.
func TestOneCostForAllLimits(t *testing.T) {
	ctx := context.Background()
	for _, w := range []struct {
		costs      []int64
		left, twin int64
	}{{[]int64{3}, 7, 17}, {[]int64{3, 5}, 7, 15}, {nil, 10, 20}} {
		e, err := policy.New(policy.Policy{Limits: []policy.Limit{
			{Name: "l", Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 10}}, {Name: "m", Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 20}},
		}}, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		asks := []policy.Ask{{Limit: "l", Cost: 1}, {Limit: "m", Cost: 1}}
		a, err := e.Reserve(ctx, asks, 0)
		if err != nil {
			t.Fatal(err)
		}
		table := outstanding.New(outstanding.Options{})
		id, err := table.Add(ctx, outstanding.Caller{Name: "a"}, a, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := table.Settle(ctx, "a", id, []int64{1, 2, 3}); err == nil {
			t.Error("three costs of two limits")
		}
		if err := table.Settle(ctx, "a", id, w.costs); err != nil {
			t.Error(err)
		}
		now, err := e.Peek(ctx, asks)
		if err != nil || now.Each[0].Decision.Remaining != w.left || now.Each[1].Decision.Remaining != w.twin {
			t.Errorf("%v: %+v, %v", w.costs, now, err)
		}
	}
}

// faulty is a store that is down for settlements, or takes its time for them.
type faulty struct {
	weir.Store
	down  atomic.Bool
	asked chan struct{} // not nil: a settlement says that it has begun, and waits
	goOn  chan struct{}
}

func (f *faulty) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if batch[0].Op != weir.OpSettle {
		return f.Store.Do(ctx, batch, out)
	}
	if f.asked != nil {
		f.asked <- struct{}{}
		<-f.goOn
	}
	if f.down.Load() {
		return errors.New("down")
	}
	return f.Store.Do(ctx, batch, out)
}

// TestUnavailableStore: a reservation stays open while its store is down, for at most 10 minutes, and counts
// as open meanwhile. A call that comes while another one settles it waits for that one's outcome.
func TestUnavailableStore(t *testing.T) {
	ctx := t.Context()
	store := &faulty{Store: weirtest.NewStore(nil)}
	e, err := policy.New(policy.Policy{
		Stores: []policy.Store{{Name: "s"}},
		Limits: []policy.Limit{{Name: "l", Store: "s", Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 10}}},
	}, policy.Options{Stores: map[string]weir.Store{"s": store}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	now := time.UnixMilli(1e12)
	table := outstanding.New(outstanding.Options{PerCaller: 1, Now: func() time.Time { return now }})
	add := func(keep time.Duration) (id string, err error) {
		a, err := e.Reserve(ctx, []policy.Ask{{Limit: "l", Cost: 3}}, 0)
		if err != nil || !a.Allowed {
			t.Fatalf("%+v, %v", a, err)
		}
		return table.Add(ctx, outstanding.Caller{Name: "a"}, a, keep)
	}
	left := func() int64 {
		a, err := e.Peek(ctx, []policy.Ask{{Limit: "l"}})
		if err != nil {
			t.Fatal(err)
		}
		return a.Each[0].Decision.Remaining
	}
	id, err := add(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	store.down.Store(true)
	for range 2 {
		if err := table.Settle(ctx, "a", id, []int64{1}); !errors.Is(err, outstanding.ErrUnsettled) || left() != 7 || table.Len() != 1 {
			t.Errorf("%v, %d left, %d open", err, left(), table.Len())
		}
	}
	store.down.Store(false)
	if _, err := add(time.Hour); !errors.Is(err, outstanding.ErrFull) || left() != 7 {
		t.Errorf("a second reservation: %v, %d left", err, left())
	}
	now = now.Add(10*time.Minute - time.Millisecond)
	store.asked, store.goOn = make(chan struct{}), make(chan struct{})
	errs := make(chan error, 2)
	go func() { errs <- table.Settle(ctx, "a", id, []int64{1}) }()
	<-store.asked
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := table.Settle(ended, "a", id, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that does not wait: %v", err)
	}
	go func() { errs <- table.Settle(ctx, "a", id, nil) }()
	if table.Sweep(); table.Len() != 1 {
		t.Error("it has expired while it was settled")
	}
	close(store.goOn)
	if first, second := <-errs, <-errs; (first == nil) == (second == nil) || !errors.Is(errors.Join(first, second), outstanding.ErrUnknown) || left() != 9 {
		t.Errorf("%v and %v, %d left", first, second, left())
	}
	store.asked = nil
	if id, err = add(time.Hour); err != nil {
		t.Fatal(err)
	}
	store.down.Store(true)
	if err := table.Settle(ctx, "a", id, nil); !errors.Is(err, outstanding.ErrUnsettled) {
		t.Error(err)
	}
	store.down.Store(false)
	now = now.Add(10 * time.Minute)
	if err := table.Settle(ctx, "a", id, nil); err == nil || left() != 6 || table.Expired() != 1 {
		t.Errorf("after 10 minutes: %v, %d left, %d expired", err, left(), table.Expired())
	}
}

// TestBoundByAddress: where clients need not authenticate, those of one address share a bound, and leave room
// for others. An IPv6 client has the addresses of a /64. Each may still end what another one has made: only
// the id is secret.
func TestBoundByAddress(t *testing.T) {
	ctx, e := t.Context(), engine(t)
	table := outstanding.New(outstanding.Options{Max: 6, PerCaller: 2})
	id := ""
	for i, w := range []struct {
		address string
		full    bool
	}{
		{"192.0.2.1:1000", false}, {"192.0.2.1:1001", false}, {"192.0.2.1:1000", true}, {"192.0.2.2:1000", false},
		{"[2001:db8::1]:1000", false}, {"[2001:db8::2]:1000", false}, {"[2001:db8::3]:1000", true}, {"[2001:db8:0:1::3]:1000", false},
		{"192.0.2.3:1000", true}, // more than the table has
	} {
		a, err := e.Reserve(ctx, []policy.Ask{{Limit: "l", Cost: 1}}, 0)
		if err != nil || !a.Allowed {
			t.Fatalf("%+v, %v", a, err)
		}
		made, err := table.Add(ctx, outstanding.Caller{Address: w.address}, a, time.Minute)
		if w.full != errors.Is(err, outstanding.ErrFull) || !w.full && err != nil {
			t.Errorf("%d, %s: %v", i, w.address, err)
		}
		if id == "" {
			id = made
		}
	}
	if err := table.Settle(ctx, "", id, nil); err != nil {
		t.Error(err)
	}
}

// TestBoundByBytes: a reservation of many limits and long keys takes the room of many, of its caller and of
// the table, and leaves it when it ends. What has no room is given back.
func TestBoundByBytes(t *testing.T) {
	ctx := t.Context()
	e, err := policy.New(policy.Policy{Limits: []policy.Limit{
		{Name: "l", Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 10}, Key: []string{"header.k"}},
	}}, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	table := outstanding.New(outstanding.Options{MaxBytes: 100_000, PerCallerBytes: 50_000})
	add := func(name string, limits, keyBytes int, full bool) (id string) {
		t.Helper()
		asks := make([]policy.Ask, limits)
		for i := range asks {
			asks[i] = policy.Ask{Limit: "l", Key: []string{strings.Repeat(string(rune('a'+i)), keyBytes)}}
		}
		a, err := e.Reserve(ctx, asks, 0)
		if err != nil || !a.Allowed {
			t.Fatalf("%+v, %v", a, err)
		}
		id, err = table.Add(ctx, outstanding.Caller{Name: name}, a, time.Minute)
		if full != errors.Is(err, outstanding.ErrFull) || !full && err != nil {
			t.Errorf("%s, %d limits with keys of %d bytes: %v", name, limits, keyBytes, err)
		}
		return id
	}
	id := add("a", 20, 10, false)
	add("a", 20, 10, true)
	add("a", 1, 4096, true)
	add("b", 4, 4096, false)
	add("b", 4, 4096, true)
	add("c", 20, 10, true) // more than the table has
	if err := table.Settle(ctx, "a", id, nil); err != nil {
		t.Error(err)
	}
	add("a", 20, 10, false)
}
