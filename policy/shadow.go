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
	s.run(l, func() { l.decide(key, cost) })
}

// run runs a function of a shadow limit that calls its store, in the background.
func (s *shadows) run(l *limit, f func()) {
	select {
	case s.slots <- struct{}{}:
	default:
		l.counts.missed.Add(1)
		return
	}
	go func() {
		defer func() { <-s.slots }()
		f()
	}()
}

// afterwards runs a function that calls a store.
func (s *shadows) afterwards(f func()) {
	select {
	case s.slots <- struct{}{}:
		go func() {
			defer func() { <-s.slots }()
			f()
		}()
	default:
		f()
	}
}

// decide evaluates a shadow limit in its store.
func (l *limit) decide(key string, cost int64) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	batch := []weir.Charge{{Name: l.state, Key: key, Limit: l.Limit.Limit, Plan: l.plan, Cost: cost}}
	// the request would have waited; it does not really wait, so its charge is made ahead of time
	if l.queues() {
		batch[0].Op, batch[0].Within = weir.OpReserve, -1
	}
	out := make([]weir.Decision, 1)
	if err := l.store.Do(ctx, batch, out); err != nil {
		l.counts.failed.Add(1)
		return
	}
	l.counts.add(out[0], batch[0].Delay)
	l.counts.sources[out[0].Source].Add(1)
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
