package policy_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// lossy is a store that is down for settlements, or whose replies to them are lost.
type lossy struct {
	weir.Store
	down, lost bool
	names      []string // of the settlements
}

var errConnection = errors.New("the connection was reset")

func (s *lossy) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if batch[0].Op != weir.OpSettle {
		return s.Store.Do(ctx, batch, out)
	}
	for _, c := range batch {
		s.names = append(s.names, c.Once)
	}
	if s.down {
		return errConnection
	}
	err := s.Store.Do(ctx, batch, out)
	if s.lost {
		clear(out)
		return errConnection
	}
	return err
}

// TestReservationsStayOpen: while a store is unavailable, a reservation is not settled, neither in that store
// nor in memory. The call can be repeated, and counts once, also where only the reply was lost.
func TestReservationsStayOpen(t *testing.T) {
	for _, limits := range [][]string{{"stored"}, {"bucket", "stored"}, {"stored", "stored-too"}, {"stored", "stored"}} {
		for _, within := range []time.Duration{0, -1} {
			for _, cost := range []int64{0, 1, 4} {
				for _, faults := range []string{"down", "lost", "down, down, lost", "lost, down, lost"} {
					clock := new(weirtest.Clock)
					store := &lossy{Store: weirtest.NewStore(clock.Now)}
					e := sharing(t, named(), clock, map[string]weir.Store{"shared": store})
					var asks []policy.Ask
					for _, name := range limits {
						asks = append(asks, policy.Ask{Limit: name, Key: keyOf(named(), name, "10.0.0.1", "a"), Cost: 1})
					}
					used := func() (all []int64) {
						a, err := e.Peek(t.Context(), asks)
						if err != nil {
							t.Fatal(err)
						}
						for _, x := range a.Each {
							all = append(all, x.Decision.Limit-x.Decision.Remaining)
						}
						return all
					}
					a, err := e.Reserve(t.Context(), asks, within)
					if err != nil || !a.Allowed {
						t.Fatalf("%v: %+v, %v", limits, a, err)
					}
					reserved, costs := used(), slices.Repeat([]int64{cost}, len(asks))
					all := strings.Split(faults, ", ")
					for _, fault := range all {
						store.down, store.lost = fault == "down", fault == "lost"
						if err := a.Settle(t.Context(), costs, time.Minute); !errors.Is(err, policy.ErrUnsettled) {
							t.Fatalf("%v: %v", limits, err)
						}
						if now := used(); faults == "down" && !slices.Equal(now, reserved) {
							t.Errorf("%v: %v used of what was not settled, and %v before", limits, now, reserved)
						}
					}
					store.down, store.lost = false, false
					if err := a.Settle(t.Context(), costs, time.Minute); err != nil {
						t.Fatalf("%v: %v", limits, err)
					}
					want := make([]int64, len(asks))
					for i := range asks {
						for j := range asks {
							if limits[i] == limits[j] {
								want[i] = min(want[i]+cost, a.Each[i].Decision.Limit)
							}
						}
					}
					if now := used(); !slices.Equal(now, want) {
						t.Errorf("%v within %v, settled by %d after %s: %v used, not %v", limits, within, cost, faults, now, want)
					}
					if err := a.Settle(t.Context(), costs, time.Minute); !errors.Is(err, policy.ErrEnded) {
						t.Errorf("settled twice: %v", err)
					}
					slices.Sort(store.names)
					for i, n := range store.names {
						if attempts := len(all) + 1; n == "" || n != store.names[i/attempts*attempts] {
							t.Errorf("the attempts of a settlement have different names: %q", store.names)
							break
						}
					}
				}
			}
		}
	}
}

// TestReservationsEndWithoutARepeat: without a repeat, the first attempt is the last one.
func TestReservationsEndWithoutARepeat(t *testing.T) {
	clock := new(weirtest.Clock)
	e := sharing(t, named(), clock, map[string]weir.Store{"shared": &lossy{Store: weirtest.NewStore(clock.Now), down: true}})
	a, err := e.Reserve(t.Context(), []policy.Ask{{Limit: "stored", Key: []string{"a"}, Cost: 1}}, 0)
	if err != nil || !a.Allowed {
		t.Fatalf("%+v, %v", a, err)
	}
	if err := a.Cancel(t.Context()); !errors.Is(err, policy.ErrUnsettled) {
		t.Error(err)
	}
	if err := a.Cancel(t.Context()); !errors.Is(err, policy.ErrEnded) {
		t.Error(err)
	}
}
