package outstanding_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/outstanding"
	"github.com/weirflow/weir/weirtest"
)

// slowSettling is a store that settles nothing until it may.
type slowSettling struct {
	weir.Store
	may     chan struct{}
	settles chan []weir.Charge // the calls that settle
}

func (s *slowSettling) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if batch[0].Op == weir.OpSettle {
		s.settles <- append([]weir.Charge(nil), batch...)
		select {
		case <-s.may:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Store.Do(ctx, batch, out)
}

// TestExpiredInStores: no call waits until expired reservations are settled in a store. They are settled in the
// background, many with one call, and only those of algorithms that keep a list of reservations.
func TestExpiredInStores(t *testing.T) {
	const reservations = 120 // of each limit
	clock := new(weirtest.Clock)
	in := &slowSettling{weirtest.NewStore(clock.Now), make(chan struct{}), make(chan []weir.Charge, 3*reservations)}
	key := []string{"header.k"}
	e, err := policy.New(policy.Policy{Stores: []policy.Store{{Name: "s", URL: "redis://127.0.0.1"}}, Limits: []policy.Limit{
		{Name: "listed", Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 10}, Key: key, Store: "s"},
		{Name: "counted", Limit: weir.FixedWindow{Limit: 10, Window: time.Hour}, Key: key, Store: "s"},
		{Name: "memory", Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 10}, Key: key},
	}}, policy.Options{Clock: clock.Now, Timers: clock.AfterFunc, Stores: map[string]weir.Store{"s": in}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	now := time.Unix(1e9, 0)
	table := outstanding.New(outstanding.Options{Now: func() time.Time { return now }})
	add := func(within time.Duration, limits ...string) {
		t.Helper()
		for i := range reservations {
			var asks []policy.Ask
			for _, limit := range limits {
				asks = append(asks, policy.Ask{Limit: limit, Key: []string{strconv.Itoa(i)}, Cost: 2})
			}
			a, err := e.Reserve(t.Context(), asks, within)
			if err != nil || !a.Allowed {
				t.Fatalf("%+v, %v", a, err)
			}
			if _, err := table.Add(t.Context(), outstanding.Caller{}, a, time.Second); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(0, "memory", "listed", "counted")
	add(time.Minute, "listed")
	add(time.Minute, "counted")
	now = now.Add(time.Hour)
	add(0, "memory") // while the store settles nothing
	table.Sweep()
	if table.Len() != reservations || table.Expired() != 3*reservations {
		t.Errorf("%d are open, %d expired", table.Len(), table.Expired())
	}
	close(in.may)
	for settled := 0; settled < 2*reservations; {
		batch := <-in.settles
		if settled += len(batch); len(batch) == 1 {
			t.Error("a call for one reservation")
		}
		for _, c := range batch {
			if c.Cost != 2 || weir.Algorithm(c.Limit) != "token_bucket" {
				t.Errorf("settled: %+v", c)
			}
		}
	}
	a, err := e.Peek(t.Context(), []policy.Ask{{Limit: "memory", Key: []string{"7"}}, {Limit: "listed", Key: []string{"7"}}, {Limit: "counted", Key: []string{"7"}}})
	if err != nil || a.Each[0].Decision.Remaining != 6 || a.Each[1].Decision.Remaining != 6 || a.Each[2].Decision.Remaining != 6 {
		t.Errorf("expired reservations stay charged: %+v, %v", a, err)
	}
}

// TestCloseAwaitsSettling: what settles expired reservations in stores has ended when Close returns: once they are
// settled, or when the time for that is over. It used to go on while the stores were closed.
func TestCloseAwaitsSettling(t *testing.T) {
	for _, responds := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			clock := new(weirtest.Clock)
			in := &slowSettling{weirtest.NewStore(clock.Now), make(chan struct{}), make(chan []weir.Charge, 10)}
			e, err := policy.New(policy.Policy{Stores: []policy.Store{{Name: "s", URL: "redis://127.0.0.1"}}, Limits: []policy.Limit{
				{Name: "listed", Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 10}, Store: "s"},
			}}, policy.Options{Clock: clock.Now, Timers: clock.AfterFunc, Stores: map[string]weir.Store{"s": in}})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			now := time.Now()
			table := outstanding.New(outstanding.Options{Now: func() time.Time { return now }})
			a, err := e.Reserve(t.Context(), []policy.Ask{{Limit: "listed", Cost: 2}}, 0)
			if err != nil || !a.Allowed {
				t.Fatalf("%+v, %v", a, err)
			}
			if _, err := table.Add(t.Context(), outstanding.Caller{}, a, time.Second); err != nil {
				t.Fatal(err)
			}
			now = now.Add(2 * time.Second)
			table.Sweep()
			<-in.settles
			if responds {
				time.AfterFunc(100*time.Millisecond, func() { close(in.may) })
			}
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			table.Close(ctx) // the bubble ends only when no goroutine is left
			want := map[bool]time.Duration{true: 100 * time.Millisecond, false: time.Second}[responds]
			if took := time.Since(began); took != want {
				t.Errorf("closed within %v, want %v", took, want)
			}
			table.Sweep()
			table.Close(ctx)
		})
	}
}
