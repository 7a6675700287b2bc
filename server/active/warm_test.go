package active

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/decisions"
)

// lateStore is a store that is connected when ready is closed.
type lateStore struct {
	ready  chan struct{}
	warmed chan [][]weir.Limit
	down   atomic.Bool
}

func (l *lateStore) Do(context.Context, []weir.Charge, []weir.Decision) error { return l.err() }
func (l *lateStore) Close() error                                             { return nil }

func (l *lateStore) err() error {
	if l.down.Load() {
		return errors.New("down")
	}
	return nil
}

func (l *lateStore) Ready(ctx context.Context) error {
	select {
	case <-l.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *lateStore) Connected() bool {
	select {
	case <-l.ready:
		return true
	default:
		return false
	}
}

func (l *lateStore) Warm(_ context.Context, groups ...[]weir.Limit) error {
	l.warmed <- groups
	return l.err()
}

// TestLateStoresAreWarmed: a store that cannot be reached at first is prepared when it connects, for the
// policy that is active then. One that is down at a reload is prepared for the new policy, too.
func TestLateStoresAreWarmed(t *testing.T) {
	p := func(limit weir.Limit) policy.Policy {
		return policy.Policy{
			Stores: []policy.Store{{Name: "s"}}, Limits: []policy.Limit{{Name: "l", Store: "s", Limit: limit}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"l"}}},
		}
	}
	first, second, third := weir.FixedWindow{Limit: 1, Window: time.Second}, weir.FixedWindow{Limit: 2, Window: time.Second}, weir.SlidingLog{Limit: 3, Window: time.Second}
	late := &lateStore{ready: make(chan struct{}), warmed: make(chan [][]weir.Limit, 10)}
	set := newStores(Options{Log: slog.New(slog.DiscardHandler)}, decisions.New().Called)
	o := &store{def: policy.Store{Name: "s"}, store: late}
	o.life, o.end = context.WithCancel(t.Context())
	var err error
	if o.fail, err = failover.New(late, failover.Options{Nodes: 1, OnFailure: failover.Allow}); err != nil {
		t.Fatal(err)
	}
	defer o.close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	open := map[string]*store{"s": o}
	set.await(ended, []*store{o}) // not connected in time
	set.warm(t.Context(), p(first), open)
	set.warm(t.Context(), p(second), open) // a reload
	expect := func(want weir.Limit) {
		t.Helper()
		select {
		case got := <-late.warmed:
			if len(got) != 1 || len(got[0]) != 1 || !weir.Equal(got[0][0], want) {
				t.Errorf("warmed for %v, want %v", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatal("not warmed")
		}
	}
	close(late.ready)
	expect(second)

	late.down.Store(true)
	charge := []weir.Charge{{Name: "l", Limit: first, Cost: 1}}
	for !isDown(o.fail.Stats()) {
		if err := o.fail.Do(t.Context(), charge, make([]weir.Decision, 1)); err != nil {
			t.Fatal(err)
		}
	}
	set.warm(t.Context(), p(third), open)
	expect(third)
	if len(late.warmed) > 0 {
		t.Error("warmed more often than needed")
	}
}
