package policy

import (
	"context"
	"sync"

	"github.com/weirflow/weir"
)

// shadows are store calls for shadow limits, which no request waits for. Their number is bounded; beyond it, a shadow limit is skipped.
type shadows struct {
	slots chan struct{}
	end   sync.Once
}

// maxShadows is how many calls may be under way. A store carries out together what comes at the same time.
const maxShadows = 1024

func newShadows() *shadows { return &shadows{slots: make(chan struct{}, maxShadows)} }

// ask has a shadow limit decide, and counts what it said.
func (s *shadows) ask(l *limit, key string, cost int64) { s.run(l, func() { l.decide(key, cost) }) }

// run calls a function of a shadow limit that asks its store, in the background.
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

// decide asks the store about a shadow limit.
func (l *limit) decide(key string, cost int64) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	batch := []weir.Charge{{Name: l.state, Key: key, Limit: l.Limit.Limit, Cost: cost}}
	if l.queues() { // it would have waited: as nobody really waits, its charge is made ahead
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

// close waits for what is under way, and lets nothing begin any more.
func (s *shadows) close() {
	s.end.Do(func() {
		for range cap(s.slots) {
			s.slots <- struct{}{}
		}
	})
}
