package weirtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/policy"
)

// patience is how long a store has for what it does in the background, such as giving back a place
// that a caller has left. It is long, so that a busy machine is not taken for a fault.
const patience = time.Minute

// places compares a store that keeps the places of Concurrency limits with a model: per key, the
// sum of the costs that are held.
func (s Subject) places(t TB) {
	t.Helper()
	for i := range 10 {
		random := rand.New(rand.NewPCG(s.Seed, 1<<63|uint64(i)))
		if err := s.walkPlaces(fmt.Sprintf("walk-%d", i), random); err != nil {
			t.Errorf("seed %d: places, walk %d: %v", s.Seed, i, err)
			return
		}
	}
	if err := s.queueForPlaces(); err != nil {
		t.Errorf("a queue for places: %v", err)
	}
}

// placeKey is the model of a key. A store may give back a place in the background, so what it has
// in use is between held and held+leaving.
type placeKey struct{ held, leaving int64 }

// heldCost is a place of the walk.
type heldCost struct {
	of   *placeKey
	cost int64
	done func(weir.Outcome)
}

// walkPlaces makes random calls through two stores that share their places, and then sees that all
// of them come back.
func (s Subject) walkPlaces(name string, random *rand.Rand) error {
	var stores [2]policy.Holder
	for i := range stores {
		var err error
		if stores[i], err = s.Places(); err != nil {
			return err
		}
		defer shut(stores[i])
	}
	// no hold expires within patience, so a place that comes back has been left
	limit := weir.Concurrency{Limit: 1 + random.Int64N(6), MaxHold: time.Hour}
	keys := map[string]*placeKey{"a": {}, "b": {}}
	var all []heldCost
	for step := range 60 {
		switch n := random.IntN(10); {
		case n == 0:
			limit.Limit = 1 + random.Int64N(6)
		case n <= 4 && len(all) > 0:
			i := random.IntN(len(all))
			h := all[i]
			all = append(all[:i], all[i+1:]...)
			for range 1 + random.IntN(2) { // only the first counts
				h.done(weir.Outcome(random.IntN(3)))
			}
			h.of.held -= h.cost
			h.of.leaving += h.cost
		default:
			key := []string{"a", "b"}[random.IntN(2)]
			c := weir.Charge{Name: name, Key: key, Limit: limit, Cost: random.Int64N(limit.Limit+3) - 1}
			done, d, err := stores[random.IntN(2)].Enter(context.Background(), c)
			if err := keys[key].check(c.Cost, limit.Limit, done != nil, d, err); err != nil {
				return fmt.Errorf("step %d: cost %d of %d at key %s: %w", step, c.Cost, limit.Limit, key, err)
			}
			if done != nil {
				all = append(all, heldCost{keys[key], c.Cost, done})
			}
		}
	}
	for _, h := range all {
		h.done(weir.OK)
	}
	for key := range keys {
		c := weir.Charge{Name: name, Key: key, Limit: limit, Cost: limit.Limit}
		if err := enterSoon(stores[0], c); err != nil {
			return fmt.Errorf("after all have left key %s: %w", key, err)
		}
	}
	return nil
}

// check compares what a store decided with the model, and adds the place to the model.
func (k *placeKey) check(cost, limit int64, entered bool, d weir.Decision, err error) error {
	switch {
	case cost < 0:
		if !errors.Is(err, weir.ErrCost) || entered {
			return fmt.Errorf("the error is not weir.ErrCost: %w", err)
		}
		return nil
	case err != nil:
		return err
	case d.Allowed != entered && (cost > 0 || entered):
		return fmt.Errorf("the decision has Allowed %v, and there is a function to leave: %v", d.Allowed, entered)
	case !d.Allowed && d.RetryAfter == 0:
		return errors.New("a refusal says that a retry is admitted at once")
	case !d.Allowed && cost > limit && d.RetryAfter != weir.Never:
		return fmt.Errorf("RetryAfter is %v for a cost above the limit, want Never", d.RetryAfter)
	case d.Limit != limit:
		return fmt.Errorf("the decision's Limit is %d", d.Limit)
	case d.Allowed && cost > 0 && k.held+cost > limit:
		return fmt.Errorf("admitted while %d are held", k.held)
	case !d.Allowed && k.held+k.leaving+cost <= limit:
		return fmt.Errorf("refused while %d are held and %d are being left", k.held, k.leaving)
	case !d.Allowed || cost == 0:
		return nil
	}
	k.held += cost
	inUse := limit - d.Remaining
	if inUse < k.held || inUse > k.held+k.leaving {
		return fmt.Errorf("the decision has Remaining %d while %d are held and %d are being left", d.Remaining, k.held, k.leaving)
	}
	k.leaving = inUse - k.held
	return nil
}

// enterSoon enters as soon as there is a place, and leaves.
func enterSoon(store policy.Holder, c weir.Charge) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		done, d, err := store.Enter(ctx, c)
		switch {
		case err != nil:
			return err
		case d.Allowed:
			done(weir.OK)
			return nil
		}
		if err := pause.For(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("a cost of %d is refused for %v: %+v", c.Cost, patience, d)
		}
	}
}

// waited is how the wait of one caller ended.
type waited struct {
	caller int
	done   func(weir.Outcome)
	err    error
}

// queueForPlaces has five callers wait in a queue of three for one place. Two are refused, one gives
// up, and the other two get the place, one after the other.
func (s Subject) queueForPlaces() error {
	store, err := s.Places()
	if err != nil {
		return err
	}
	defer shut(store)
	c := weir.Charge{Name: "queue", Key: "a", Limit: weir.Concurrency{Limit: 1, Queue: 3, MaxHold: time.Hour}, Cost: 1}
	leave, d, err := store.Enter(context.Background(), c)
	if err != nil || !d.Allowed {
		return errors.Join(fmt.Errorf("an unused limit refuses: %+v", d), err)
	}
	c.Within = -1
	ends := make(chan waited, 5)
	var cancels [5]context.CancelFunc
	for i := range cancels {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		cancels[i] = cancel
		go func() {
			done, _, err := store.Enter(ctx, c)
			ends <- waited{i, done, err}
		}()
	}
	next := func(want string) (waited, error) {
		select {
		case w := <-ends:
			return w, nil
		case <-time.After(patience):
			return waited{}, fmt.Errorf("after %v, no caller %s", patience, want)
		}
	}
	queued := map[int]bool{0: true, 1: true, 2: true, 3: true, 4: true}
	for range 2 {
		w, err := next("is refused by a full queue")
		if err == nil && (w.err != nil || w.done != nil) {
			err = fmt.Errorf("one of two callers too many entered, or failed: %w", w.err)
		}
		if err != nil {
			return err
		}
		delete(queued, w.caller)
	}
	for i := range cancels {
		if queued[i] {
			cancels[i]()
			break
		}
	}
	w, err := next("gives up")
	if err != nil || !errors.Is(w.err, context.Canceled) || w.done != nil {
		return errors.Join(fmt.Errorf("a caller whose context ended does not return its error, but %w", w.err), err)
	}
	for range 2 {
		leave(weir.OK)
		w, err := next("gets the place that was left")
		if err != nil || w.err != nil || w.done == nil {
			return errors.Join(fmt.Errorf("a place was left, and the next caller did not enter: %w", w.err), err)
		}
		leave = w.done
	}
	leave(weir.OK)
	c.Within = 0
	return enterSoon(store, c)
}
