package group

import (
	"context"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/keyed"
)

// A Charge is a limit, the key to charge, and the cost. A cost of 0 is allowed and changes nothing;
// one below 0 is an error. If a limit is charged twice for one key, the costs are added.
type Charge struct {
	limit    limit
	cost     int64
	estimate bool
}

// Estimated says that the cost is an estimate, which Reservation.Settle will replace. A store then
// remembers the charge until Settle or Cancel, so that what was estimated too high comes back in full:
// see weir.Charge. Limits in process always do.
func (c Charge) Estimated() Charge {
	c.estimate = true
	return c
}

// One charges a limit without keys.
func One(l *weir.Limiter, cost int64) Charge {
	if l == nil {
		panic("group: One of a limiter that is nil")
	}
	return Charge{limit: one{l}, cost: cost}
}

// Keyed charges a key of a limit per key.
func Keyed[K comparable](l *keyed.Limiter[K], key K, cost int64) Charge {
	if l == nil {
		panic("group: Keyed of a limiter that is nil")
	}
	return Charge{limit: perKey[K]{l, key}, cost: cost}
}

// Shared charges a key of a limit in a store.
func Shared(s *weir.Shared, key string, cost int64) Charge {
	if s == nil {
		panic("group: Shared of a limit that is nil")
	}
	return Charge{limit: shared{s, key}, cost: cost}
}

// InFlight takes a place, until Reservation.Done.
func InFlight(c *weir.ConcurrencyLimiter, cost int64) Charge {
	if c == nil {
		panic("group: InFlight of a limiter that is nil")
	}
	return Charge{limit: places{c}, cost: cost}
}

// KeyedInFlight takes a place of a key, until Reservation.Done.
func KeyedInFlight[K comparable](c *keyed.Concurrency[K], key K, cost int64) Charge {
	if c == nil {
		panic("group: KeyedInFlight of a limiter that is nil")
	}
	return Charge{limit: keyedPlaces[K]{c, key}, cost: cost}
}

// Adaptive takes a place at a limit that finds itself, until Reservation.Done, whose outcome it learns from. It
// comes last, so that the latency has no wait for other limits in it.
func Adaptive(l *adaptive.Limiter, as adaptive.Request) Charge {
	if l == nil {
		panic("group: Adaptive of a limiter that is nil")
	}
	return Charge{limit: adaptivePlace{l, as}, cost: 1}
}

// A Holder is a store that keeps places of Concurrency, as *weirredis.Store and *failover.Store do.
// The Within of the charge is 0 for a caller that does not wait. done is called once.
type Holder interface {
	Enter(ctx context.Context, c weir.Charge) (done func(weir.Outcome), d weir.Decision, err error)
}

// SharedInFlight takes a place of a key in a store, until Reservation.Done. All processes that use
// the name share the places. The store extends the place for as long as this process runs;
// Concurrency.MaxHold, which is required, is how long after a crash it becomes free.
func SharedInFlight(h Holder, name string, l weir.Concurrency, key string, cost int64) Charge {
	if h == nil {
		panic("group: SharedInFlight of a store that is nil")
	}
	return Charge{limit: sharedPlaces{h, name, key, l}, cost: cost}
}
