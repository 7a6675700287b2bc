package failover

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// A Holder is a store that keeps the places of concurrency: a Store is one if the store that it
// wraps is.
type Holder interface {
	// Enter takes a place of c.Limit, a weir.Concurrency, for c.Key at a cost of c.Cost. With a
	// Within other than 0 it waits in the limit's queue until there is a place or the context ends;
	// otherwise it asks once. A refusal is a decision; done is nil then. An admitted caller calls
	// done once the work has ended; later calls of done do nothing. Until then the store keeps the
	// place, for as long as this process lives.
	Enter(ctx context.Context, c weir.Charge) (done func(weir.Outcome), d weir.Decision, err error)
}

// inside is the cost that this node has in flight, by key, without keys that have none.
type inside struct {
	mu  sync.Mutex
	all map[place]int64
}

type place struct{ name, key string }

// add adds a cost, unless there would be more than most then.
func (in *inside) add(p place, cost, most int64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if cost > most || in.all[p] > most-cost {
		return false
	}
	if in.all == nil {
		in.all = map[place]int64{}
	}
	in.all[p] += cost
	return true
}

func (in *inside) remove(p place, cost int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.all[p] -= cost; in.all[p] <= 0 {
		delete(in.all, p)
	}
}

// until returns a done that takes a cost back, and calls another one if there is one.
func (in *inside) until(p place, cost int64, leave func(weir.Outcome)) func(weir.Outcome) {
	var once sync.Once
	return func(o weir.Outcome) {
		once.Do(func() {
			in.remove(p, cost)
			if leave != nil {
				leave(o)
			}
		})
	}
}

// Enter makes a Store a Holder. While the store, or the shard of the key, is down, Allow admits every
// caller, Deny refuses, and Local admits as long as this node has no more in flight than its share
// of the limit, including what the store admitted; no caller waits. A caller that waits in the
// store's queue has no deadline but its own. The error is a weir.ErrCharge for a store that keeps no
// places.
func (s *Store) Enter(ctx context.Context, c weir.Charge) (done func(weir.Outcome), d weir.Decision, err error) {
	limit, ok := rules.PlacesOf(c.Limit)
	switch {
	case s.closed.Load():
		return nil, d, ErrClosed
	case !ok || s.holder == nil:
		return nil, d, fmt.Errorf("%w: limit %q: the store keeps no places of it", weir.ErrCharge, c.Name)
	case ctx.Err() != nil:
		return nil, d, ctx.Err()
	}
	if d := s.shards.of(&c); d != nil && d.State() != Closed {
		s.counters.skipped.Add(1)
		return s.enterAlone(c, limit)
	}
	limited, slots := ctx, s.waits
	if c.Within == 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, s.opts.Deadline)
		defer cancel()
		slots = s.slots
	}
	batch := [1]weir.Charge{c}
	done, d, err = s.enter(limited, slots, c)
	switch {
	case err == nil || !ofStore(err):
		s.answered(batch[:])
	case ctx.Err() != nil:
		s.counters.left.Add(1)
		s.unanswered(batch[:], err, true, true)
	default:
		if limited.Err() != nil {
			s.counters.late.Add(1)
		} else {
			s.counters.failed.Add(1)
		}
		s.unanswered(batch[:], err, true, false)
		return s.enterAlone(c, limit)
	}
	if done == nil {
		return nil, d, err
	}
	p := place{c.Name, c.Key}
	s.inside.add(p, c.Cost, math.MaxInt64)
	return s.inside.until(p, c.Cost, done), d, nil
}

// An entry is the store's answer to Enter.
type entry struct {
	done func(weir.Outcome)
	d    weir.Decision
	err  error
}

// enter calls the store, in a goroutine that the caller can leave unless the options say that the
// store returns. A place that comes for a caller that has left is given back.
func (s *Store) enter(ctx context.Context, slots chan struct{}, c weir.Charge) (func(weir.Outcome), weir.Decision, error) {
	call := func() (e entry) {
		if s.opts.OnCall != nil && c.Within == 0 { // otherwise it waits for a place
			defer s.measured(time.Now())
		}
		defer recovered(&e.err)
		e.done, e.d, e.err = s.holder.Enter(ctx, c)
		return e
	}
	if s.opts.Direct {
		e := call()
		return e.done, e.d, e.err
	}
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return nil, weir.Decision{}, ctx.Err()
	}
	answers := make(chan entry) // a caller that has left does not receive
	go func() {
		e := entry{err: errGone}
		defer func() {
			<-slots
			select {
			case answers <- e:
			case <-ctx.Done():
				if e.done != nil {
					e.done(weir.Ignore)
				}
			}
		}()
		e = call()
	}()
	select {
	case e := <-answers:
		return e.done, e.d, e.err
	case <-ctx.Done():
		return nil, weir.Decision{}, ctx.Err()
	}
}

// enterAlone decides without the store.
func (s *Store) enterAlone(c weir.Charge, limit rules.Concurrency) (done func(weir.Outcome), d weir.Decision, err error) {
	if c.Cost < 0 {
		return nil, d, weir.ErrCost
	}
	policy := s.policy(c.Name)
	s.count(policy)
	d = weir.Decision{Limit: limit.Limit, By: c.Name, Source: policy.source()}
	p := place{c.Name, c.Key}
	switch {
	case c.Cost > limit.Limit:
		d.RetryAfter = weir.Never
		return nil, d, nil
	case policy == Allow:
		d.Allowed, d.Remaining = true, limit.Limit
		s.inside.add(p, c.Cost, math.MaxInt64)
	case policy == Local && s.inside.add(p, c.Cost, max(limit.Limit/int64(s.Nodes()), 1)):
		d.Allowed = true
	default:
		d.RetryAfter = s.untilAsked(s.failing(&c))
		return nil, d, nil
	}
	return s.inside.until(p, c.Cost, nil), d, nil
}
