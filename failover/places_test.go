package failover

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// holding is a fake store that also keeps places.
type holding struct {
	*fake
	mu     sync.Mutex
	places *keyed.Concurrency[string]
	left   int
}

func newHolding(t *testing.T, limit int64) *holding {
	places, err := keyed.NewConcurrency[string](weir.Concurrency{Limit: limit, Queue: 10}, keyed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { places.Close() })
	return &holding{fake: newFake(), places: places}
}

func (h *holding) Enter(ctx context.Context, c weir.Charge) (func(weir.Outcome), weir.Decision, error) {
	h.fake.mu.Lock()
	act := h.act
	h.fake.mu.Unlock()
	if act != nil {
		if err := act(ctx); err != nil {
			return nil, weir.Decision{}, err
		}
	}
	var hold keyed.Hold[string]
	var d weir.Decision
	if c.Within == 0 {
		if hold, d = h.places.TryEnterCost(c.Key, c.Cost); !d.Allowed {
			return nil, d, nil
		}
	} else {
		var err error
		if hold, err = h.places.EnterCost(ctx, c.Key, c.Cost); err != nil {
			return nil, d, err
		}
		d.Allowed = true
	}
	d.Source = weir.SourceStore
	return func(o weir.Outcome) {
		h.mu.Lock()
		h.left++
		h.mu.Unlock()
		hold.Done(o)
	}, d, nil
}

func (h *holding) gone() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.left
}

func entering(name string) weir.Charge {
	return weir.Charge{Name: name, Key: "k", Limit: weir.Concurrency{Limit: 8, Queue: 10}, Cost: 1}
}

// TestEnter: the store decides while it is available, and the policy of each limit while it is not.
// Places that the store granted count for the local share.
func TestEnter(t *testing.T) {
	for _, direct := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			f := newHolding(t, 8)
			s := open(t, f, Options{OnFailure: Local, Nodes: 2, Direct: direct, ByName: map[string]OnFailure{"allowed": Allow, "denied": Deny}})
			enter := func(name string) (func(weir.Outcome), weir.Decision) {
				done, d, err := s.Enter(t.Context(), entering(name))
				if err != nil || (done != nil) != d.Allowed {
					t.Fatalf("%s: %+v, %v", name, d, err)
				}
				return done, d
			}
			var granted []func(weir.Outcome)
			for range 6 {
				done, d := enter("local")
				if d.Source != weir.SourceStore {
					t.Fatalf("%+v", d)
				}
				granted = append(granted, done)
			}
			breakIt(t, s, f.fake)
			if _, d := enter("local"); d.Allowed || d.Source != weir.SourceShare || d.RetryAfter <= 0 {
				t.Errorf("6 are in flight, and the share is 4: %+v", d)
			}
			for range 3 {
				granted[0](weir.OK)
				granted[0](weir.OK) // the first wins
				granted = granted[1:]
			}
			alone, d := enter("local")
			if !d.Allowed || d.Source != weir.SourceShare {
				t.Errorf("3 are in flight, and the share is 4: %+v", d)
			}
			if _, d := enter("local"); d.Allowed {
				t.Errorf("4 are in flight, and the share is 4: %+v", d)
			}
			for range 20 {
				if _, d := enter("allowed"); !d.Allowed || d.Source != weir.SourceAllow {
					t.Errorf("%+v", d)
				}
			}
			if _, d := enter("denied"); d.Allowed || d.Source != weir.SourceDeny || d.RetryAfter <= 0 {
				t.Errorf("%+v", d)
			}
			mend(t, s, f.fake)
			alone(weir.OK)
			for _, done := range granted {
				done(weir.OK)
			}
			if f.gone() != 6 || len(s.inside.all) != 1 { // the 20 that Allow admitted have not ended
				t.Errorf("%d have left, %v", f.gone(), s.inside.all)
			}
		})
	}
}

// TestEnterWaits: a caller that waits has no deadline but its own. A place that comes after it has
// left is given back.
func TestEnterWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newHolding(t, 1)
		s := open(t, f, Options{OnFailure: Deny})
		first, _, err := s.Enter(t.Context(), entering("l"))
		if err != nil {
			t.Fatal(err)
		}
		c := entering("l")
		c.Within = -1
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, _, err := s.Enter(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			done, d, err := s.Enter(t.Context(), c)
			if err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
				return
			}
			done(weir.OK)
		})
		wait(time.Minute)
		first(weir.OK)
		wg.Wait()
		if s.State() != Closed || f.places.Holding("k") != 0 {
			t.Errorf("%v, %d are held", s.State(), f.places.Holding("k"))
		}
		f.set(func(context.Context) error { <-time.After(time.Second); return nil }) // it ignores its deadline
		if _, d, err := s.Enter(t.Context(), entering("l")); err != nil || d.Source != weir.SourceDeny {
			t.Errorf("%+v, %v", d, err)
		}
		wait(2 * time.Second)
		if f.places.Holding("k") != 0 {
			t.Error("a place that came too late was not given back")
		}
		f.set(nil)
	})
}

// TestEnterWithoutPlaces: Enter is an error if the store keeps no places.
func TestEnterWithoutPlaces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, newFake(), Options{})
		if _, _, err := s.Enter(t.Context(), entering("l")); !errors.Is(err, weir.ErrCharge) {
			t.Errorf("%v", err)
		}
	})
}
