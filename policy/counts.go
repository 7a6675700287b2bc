package policy

import (
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/tally"
	"github.com/weirflow/weir/keyed"
)

// counts are the counters of a limit.
type counts struct {
	allowed, limited, delayed tally.Counter
	sources                   [sources]atomic.Uint64 // decisions by source, for a limit in a store
	failed, missed, lost      atomic.Uint64
	undecidable               atomic.Uint64
	banned, granted, exempt   atomic.Uint64
	warned                    atomic.Uint64
	// for costs that are known only afterwards: sums of both, and how many requests' were not
	estimated, actual, unknown atomic.Uint64
	inside                     atomic.Int64 // places in a store that this process holds
	// holds of places in a store that have ended, by outcome
	ended [outcomes]atomic.Uint64
}

// outcomes is the number of weir.Outcomes.
const outcomes = int(weir.Dropped) + 1

// sources is the number of weir.Sources.
const sources = int(weir.SourceDeny) + 1

// Count is what a limit has counted since the first engine that had a limit of its name.
type Count struct {
	Limit                     string
	Shadow                    bool
	Rest                      bool // the shadow limit for keys outside the roll_out
	Allowed, Limited, Delayed uint64
	Banned, Granted           uint64 // refused by a ban; passed by a grant
	Warned                    uint64 // Warnings
	Exempt                    uint64 // passed because the limit does not apply to them
	// for limits whose costs are known only afterwards: the sums of what was charged before and after,
	// and how many requests' costs were not known even then
	Estimated, Actual, Unknown uint64
	Settles                    bool // the limit is one of those
	Waiting                    int  // requests in its queues now, for queues in memory
	// for a Concurrency: places that are taken now; in a store, those of this process
	Held     int64
	Outcomes weir.Outcomes // for a Concurrency: requests that held places and have ended
	Keys     keyed.Stats

	// For a limit in a store. Sources counts where its decisions were made. The other counters
	// count how often the store did not respond, so that on_failure decided; how often a shadow
	// limit was skipped, because too many calls were in flight; and how often a charge was not
	// given back, because the store did not respond. Undecidable counts requests refused because the
	// store could not decide about their key alone (see weir.ErrCharge): what is stored under it is
	// damaged, or not the store's own.
	Stored               bool
	Sources              [sources]uint64 // by weir.Source
	Failed, Missed, Lost uint64
	Undecidable          uint64
}

// Counts returns what each limit has counted, in the order of the policy.
func (e *Engine) Counts() []Count {
	all := make([]Count, 0, len(e.limits))
	for _, l := range e.limits {
		c := Count{
			Limit:   l.Name,
			Shadow:  l.Shadow,
			Rest:    l.isRest(),
			Allowed: l.counts.allowed.Load(),
			Limited: l.counts.limited.Load(),
			Delayed: l.counts.delayed.Load(),
			Banned:  l.counts.banned.Load(),
			Granted: l.counts.granted.Load(),
			Exempt:  l.counts.exempt.Load(),
			Warned:  l.counts.warned.Load(),

			Estimated: l.counts.estimated.Load(),
			Actual:    l.counts.actual.Load(),
			Unknown:   l.counts.unknown.Load(),
			Settles:   l.settles(),
			Stored:    l.store != nil || l.holder != nil,
			Held:      l.counts.inside.Load(),
			Outcomes: weir.Outcomes{
				OK:      l.counts.ended[weir.OK].Load(),
				Ignored: l.counts.ended[weir.Ignore].Load(),
				Dropped: l.counts.ended[weir.Dropped].Load(),
			},
			Failed: l.counts.failed.Load(),
			Missed: l.counts.missed.Load(),
			Lost:   l.counts.lost.Load(),

			Undecidable: l.counts.undecidable.Load(),
		}
		if l.table != nil {
			c.Waiting, c.Keys = l.table.Waiting(), l.table.Stats()
		}
		if l.places != nil {
			s := l.places.Stats()
			c.Waiting, c.Held, c.Outcomes, c.Keys = s.Waiting, s.Holding, s.Outcomes, keyed.Stats{Keys: s.Keys, Refused: s.Refused}
		}
		for i := range c.Sources {
			c.Sources[i] = l.counts.sources[i].Load()
		}
		all = append(all, c)
	}
	return all
}

// NoRoute returns how many requests matched no route.
func (e *Engine) NoRoute() uint64 { return e.noRoute.Load() }

// add counts a decision.
func (c *counts) add(d weir.Decision, delay time.Duration) {
	switch {
	case !d.Allowed:
		c.limited.Add(1)
	case delay > 0:
		c.delayed.Add(1)
	default:
		c.allowed.Add(1)
	}
}
