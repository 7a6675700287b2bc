package policy

import (
	"context"
	"sync"
	"time"

	"github.com/weirflow/weir"
)

// shadows runs calls to stores that no request waits for in the background: for shadow limits, and
// to settle costs that are known only afterwards. Beyond maxShadows calls in flight, a shadow limit
// is skipped, and costs are settled before the response ends.
type shadows struct {
	slots chan struct{}
	end   sync.Once
}

// maxShadows limits the calls in flight. A store batches calls that come at the same time.
const maxShadows = 1024

func newShadows() *shadows { return &shadows{slots: make(chan struct{}, maxShadows)} }

// evaluate lets a shadow limit decide, and counts the decision.
func (s *shadows) evaluate(l *limit, key string, cost int64) {
	s.run(l, func() {
		c := l.shadowCharge(key, cost)
		l.decide(&c)
	})
}

// reserve is evaluate for a cost that is settled later, by the function that it returns.
func (s *shadows) reserve(l *limit, key string, cost int64) (settle func(actual int64)) {
	charged := make(chan weir.Charge, 1)
	runs := s.run(l, func() {
		c := l.shadowCharge(key, cost)
		c.Keep, c.Estimate = true, true
		l.decide(&c)
		charged <- c
	})
	if !runs {
		return func(int64) {}
	}
	return func(actual int64) { s.afterwards(func() { l.settleShadow(<-charged, actual) }) }
}

// run runs a function of a shadow limit that calls its store, in the background. It reports false for one
// that is skipped.
func (s *shadows) run(l *limit, f func()) bool {
	runs := s.try(f)
	if !runs {
		l.counts.missed.Add(1)
	}
	return runs
}

// try runs a function in the background. It reports false if too many run.
func (s *shadows) try(f func()) bool {
	select {
	case s.slots <- struct{}{}:
	default:
		return false
	}
	go func() {
		defer func() { <-s.slots }()
		f()
	}()
	return true
}

// afterwards runs a function that calls a store.
func (s *shadows) afterwards(f func()) {
	if !s.try(f) {
		f()
	}
}

// shadowCharge returns the charge of a shadow limit in a store.
func (l *limit) shadowCharge(key string, cost int64) weir.Charge {
	c := weir.Charge{Name: l.state, Key: key, Limit: l.Limit.Limit, Plan: l.plan, Cost: cost}
	// the request would have waited; it does not really wait, so its charge is made ahead of time
	if l.queues() {
		c.Op, c.Within = weir.OpReserve, -1
	}
	return c
}

// decide evaluates a shadow limit in its store, and counts the decision. That is zero if the store has made
// none. The charge gets the store's receipt.
func (l *limit) decide(c *weir.Charge) (d weir.Decision) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	batch, out := []weir.Charge{*c}, make([]weir.Decision, 1)
	err := l.store.Do(ctx, batch, out)
	*c = batch[0] // after an error, too: it may have been carried out
	if err != nil {
		l.countError(err)
		return d
	}
	l.counts.add(out[0], c.Delay)
	observesShadow(l, c.Key, out[0], c.Cost, c.Delay)
	l.counts.sources[out[0].Source].Add(1)
	return out[0]
}

// settleShadow replaces the cost of a shadow limit's charge in its store.
func (l *limit) settleShadow(c weir.Charge, actual int64) {
	if nothingToSettle(&c, actual) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	batch := []weir.Charge{settlementOf(&c, actual)}
	if err := l.store.Do(ctx, batch, make([]weir.Decision, 1)); err != nil {
		l.counts.lost.Add(1)
	}
}

// close waits for calls in flight, and prevents new ones.
func (s *shadows) close() {
	s.end.Do(func() {
		for range cap(s.slots) {
			s.slots <- struct{}{}
		}
	})
}

// fixedDelay returns how long a request is delayed by an algorithm that fixes the delay when the
// request arrives.
func (l *limit) fixedDelay(d weir.Decision, cost int64) time.Duration {
	switch {
	case !d.Allowed:
	case l.delayed != nil:
		return l.delayed.Delay(d.Level, cost)
	case l.zone != nil:
		return l.inZone.ZoneDelay(d.ResetAfter, cost)
	}
	return 0
}
