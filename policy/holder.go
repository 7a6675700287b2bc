package policy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirflow/weir"
)

// A Holder is a store that also keeps the places of Concurrency limits. Every store in
// Options.Stores that a Concurrency names must be a Holder.
type Holder interface {
	// Enter takes a place of c.Limit, a weir.Concurrency, for c.Key at cost c.Cost. If c.Within is
	// not 0, Enter waits in the limit's queue until there is a place or the context ends. Otherwise
	// it tries once. If the limit refuses, d says so, done is nil and err is nil. If the limit
	// admits, the caller calls done when the work has ended; only the first call of done counts.
	// Until then the store keeps the place, for as long as this process lives.
	Enter(ctx context.Context, c weir.Charge) (done func(weir.Outcome), d weir.Decision, err error)
}

// DefaultMaxHold is the default MaxHold of a Concurrency in a store: how long after the crash of a
// gateway its places become free. Gateways that run extend their places, however long a request
// takes.
const DefaultMaxHold = 10 * time.Second

// compileHolder compiles a Concurrency whose places are in a store.
func (e *Engine) compileHolder(c *limit, of weir.Concurrency, store weir.Store) error {
	holder, ok := store.(Holder)
	if !ok {
		return fmt.Errorf("the store %q keeps no places of concurrency: take store out, or name another one", c.Limit.Store)
	}
	if of.MaxHold == 0 {
		of.MaxHold = DefaultMaxHold
	}
	c.holder, c.places, c.Limit.Limit = holder, nil, of
	c.onFailure = c.Limit.failure(e.policy.store(c.Limit.Store))
	return nil
}

// enters reports whether the limit is a Concurrency.
func (l *limit) enters() bool { return l.places != nil || l.holder != nil }

// enterStore takes a place in a store. If the limit has a queue, it waits there.
func (d *concurrencyPlace) enterStore(ctx context.Context, queued func() (context.Context, error)) (err error) {
	l := d.l
	c := weir.Charge{Name: l.state, Key: d.key, Limit: l.Limit.Limit, Plan: l.plan, Cost: d.cost}
	if l.Shadow {
		d.shade = l.enterShadow(c)
		return nil
	}
	queue := l.enterWait
	var made weir.Decision
	if !queue || queued != nil {
		made, err = d.enterByStore(ctx, c)
	}
	if queue && err == nil && !made.Allowed {
		if queued != nil {
			ctx, err = queued()
		}
		if c.Within = -1; err == nil {
			defer l.observesWait()()
			made, err = d.enterByStore(ctx, c)
			err = waited(ctx, l.Name, err)
		}
	}
	if err == nil && !made.Allowed {
		err = &weir.LimitedError{Decision: made}
	}
	switch {
	case err == nil:
		l.counts.allowed.Add(1)
	case errors.Is(err, weir.ErrLimited):
		l.counts.limited.Add(1)
	default:
		return err
	}
	l.counts.sources[made.Source].Add(1)
	return err
}

// enterByStore asks the store for a place. If the store fails, on_failure decides. A store behind
// package failover does not fail.
func (d *concurrencyPlace) enterByStore(ctx context.Context, c weir.Charge) (made weir.Decision, err error) {
	l := d.l
	var leave func(weir.Outcome)
	leave, made, err = l.holder.Enter(ctx, c)
	switch {
	case err == nil:
		if leave != nil {
			l.counts.inside.Add(d.cost)
			d.leave = l.leaveOnce(leave, d.cost)
		}
		return made, nil
	case ctx.Err() != nil:
		return made, err
	}
	l.countError(err)
	return l.withoutStore(err), nil
}

// leaveOnce returns a function that leaves a place at its first call.
func (l *limit) leaveOnce(leave func(weir.Outcome), cost int64) func(weir.Outcome) {
	var first sync.Once
	return func(o weir.Outcome) {
		first.Do(func() {
			l.counts.inside.Add(-cost)
			if o > weir.Dropped {
				o = weir.Ignore
			}
			l.counts.ended[o].Add(1)
			leave(o)
		})
	}
}

// A shadowPlace is a place in a store that a shadow limit takes in the background, so that no
// request waits for it.
type shadowPlace struct {
	mu    sync.Mutex
	leave func(weir.Outcome)
	over  bool // the request has ended
}

// enterShadow asks a store for a place in the background, and counts the decision.
func (l *limit) enterShadow(c weir.Charge) *shadowPlace {
	p := &shadowPlace{}
	l.shadows.run(l, func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		leave, d, err := l.holder.Enter(ctx, c)
		if err != nil {
			l.countError(err)
			return
		}
		l.counts.add(d, 0)
		l.counts.sources[d.Source].Add(1)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.leave = leave; p.over && leave != nil {
			leave(weir.Ignore)
		}
	})
	return p
}

// done leaves the place. If the store has not responded yet, the place is left as soon as it is
// taken.
func (p *shadowPlace) done(o weir.Outcome) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over && p.leave != nil {
		p.leave(o)
	}
	p.over = true
}
