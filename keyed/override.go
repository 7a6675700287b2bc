package keyed

import (
	"fmt"
	"math"
	"time"

	"github.com/weirflow/weir"
)

// An Override replaces the limit for one key: a plan, a privilege or a ban. Exactly one of Limit,
// Deny and Exempt must be set.
type Override struct {
	Limit weir.Limit // the key's own limit
	// a ban: every call is refused until it ends; callers that already wait stay in the queue
	Deny   bool
	Exempt bool // every call is allowed, and nothing is charged

	For time.Duration // how long the override lasts; default: until Lift
}

// An override is an Override in force.
type override struct {
	Override
	until int64 // by the limiter's clock; its end for an override without end
	clock func() int64
}

// rest returns how much longer the override lasts.
func (o *override) rest() time.Duration { return until(o.clock(), o.until) }

// Override replaces the limit for a key from now on, and any earlier override of it. The key keeps
// what it has used, by the rules of weir.Limiter.SetLimit, now and when the override ends. A key
// with an override takes room like any other, and as much memory as one with a reservation. It is
// never evicted.
//
// The error is ErrKey, or ErrFull if there is no room for the key, or says what is wrong with the
// override.
func (k *Limiter[K]) Override(key K, o Override) error {
	if err := o.validate(); err != nil {
		return err
	}
	h, ok := k.hash(key)
	if !ok {
		return ErrKey
	}
	g := k.grip(key, h)
	defer g.release()
	x, ok := g.promoted()
	if !ok {
		return ErrFull
	}
	limit := o.Limit
	if limit == nil {
		limit = g.prepared().Limit()
	}
	if err := x.lim.SetLimit(limit); err != nil {
		return err
	}
	x.over = &override{Override: o, until: math.MaxInt64, clock: k.clock}
	if o.For > 0 {
		x.over.until = later(k.clock(), o.For)
	}
	g.extendBound()
	return nil
}

func (o Override) validate() error {
	n := 0
	for _, set := range []bool{o.Limit != nil, o.Deny, o.Exempt} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		return fmt.Errorf("weir: keyed.Override: %d of Limit, Deny and Exempt are set: set one of them", n)
	case o.For < 0:
		return fmt.Errorf("weir: keyed.Override.For: %v is over already: give a time, or 0 for until it is lifted", o.For)
	case o.Limit != nil:
		return o.Limit.Validate()
	}
	return nil
}

// Lift ends a key's override. It reports whether there was one.
func (k *Limiter[K]) Lift(key K) bool {
	h, ok := k.hash(key)
	if !ok {
		return false
	}
	g := k.grip(key, h)
	defer g.release()
	if x := g.entry(); x == nil || x.over == nil {
		return false
	}
	g.lift()
	return true
}

// lift ends the override of the key's entry.
func (g *grip[K]) lift() {
	x := g.entry()
	x.over = nil
	if err := x.lim.SetLimit(g.prepared().Limit()); err != nil {
		panic(err) // cannot fail: the limit is in force
	}
	g.extendBound()
}

// expire ends an override that has expired.
func (g *grip[K]) expire() {
	if x := g.entry(); x != nil && x.over != nil && x.over.rest() == 0 {
		g.lift()
	}
}

// fixed reports whether the key's decisions come from a ban or an exemption, and not from a limit.
func (x *entry[K]) fixed() bool { return x.over != nil && x.over.Limit == nil }

func (g *grip[K]) fixed() bool {
	x := g.entry()
	return x != nil && x.fixed()
}

// overridden is the decision about a key that is banned or exempt.
func (x *entry[K]) overridden(cost int64) weir.Decision {
	d := x.lim.Peek(cost)
	switch {
	case cost < 0:
	case x.over.Exempt:
		d.Allowed, d.RetryAfter, d.Remaining = true, 0, d.Limit
	case cost > 0:
		rest := x.over.rest()
		if d.ResetAfter = max(rest, d.ResetAfter); d.RetryAfter != weir.Never {
			d.RetryAfter = max(rest, d.RetryAfter)
		}
		if d.Allowed, d.Remaining = false, 0; x.over.until == math.MaxInt64 {
			d.RetryAfter = weir.Never
		}
	}
	return d
}
