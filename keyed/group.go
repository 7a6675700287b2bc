package keyed

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// A Group is several limiters that are charged together or not at all. It has no state of its own.
// It is safe for concurrent use.
type Group[K comparable] struct {
	limiters []*Limiter[K]
	order    []int // the indexes of limiters, in the order in which they are locked
}

// NewGroup returns a group of limiters. Each needs a different name: locks are taken in the order
// of the names, and not of the arguments, so that groups that share limiters cannot deadlock.
func NewGroup[K comparable](limiters ...*Limiter[K]) (*Group[K], error) {
	g := &Group[K]{limiters: limiters}
	for i := range limiters {
		g.order = append(g.order, i)
	}
	name := func(i int) string { return limiters[g.order[i]].opts.Name }
	slices.SortFunc(g.order, func(a, b int) int { return cmp.Compare(limiters[a].opts.Name, limiters[b].opts.Name) })
	for i := 1; i < len(limiters); i++ {
		if name(i) == name(i-1) {
			return nil, fmt.Errorf("weir: two limiters of a group are named %q: give each a name of its own", name(i))
		}
	}
	return g, nil
}

// A Charge is the charge of one limiter of a group, with its result.
type Charge[K comparable] struct {
	Key  K
	Cost int64
	Skip bool // do not evaluate this limiter
	Wait bool // if the charge cannot go now, queue and set Place
	Keep bool // the charge may be settled or cancelled later

	// Spare leaves capacity unused: the charge is admitted only if Cost and Spare fit together, and
	// only Cost is charged. So limits with the same rate and different bursts can share one
	// limiter, which has the largest burst. Spare is for charges without Wait.
	Spare int64

	// Parameters are those that the key decides by from now on; default: the limiter's. If they differ
	// from those of the key's last charge, what it has used stays used, as with SetLimit. A key with
	// parameters takes about 200 bytes more. All other verbs decide by those of the last charge, until
	// the key is idle.
	Parameters *Parameters

	Decision weir.Decision // of this limiter alone, as if its capacity were smaller by Spare
	Place    *weir.Place   // set if the charge waits

	kept *Reservation[K]
	took bool // charged, and not kept
}

// ErrNotKept is the error of Cancel and Settle for a charge that was made without Keep.
var ErrNotKept = errors.New("weir: the charge was not kept, so nothing of it can be given back: set Keep before Take")

// ErrCharges is the error of Take if the number of charges is not that of the limiters.
var ErrCharges = errors.New("weir: a group takes one charge for each of its limiters, in their order")

// Take makes all charges at one moment, or none: charges[i] is for the i-th limiter. It returns the
// decision of one limiter. If any limiter refuses, that is the one with the longest RetryAfter:
// Never counts as the longest, and the first wins a tie. Otherwise it is the one with the least
// Remaining.
//
// If any charge has to wait for its turn, the others are kept, so that they can be cancelled if the
// wait is given up. What is kept stays outstanding until Settle or Cancel, also if all of its cost
// was used.
func (g *Group[K]) Take(charges []Charge[K]) (weir.Decision, error) {
	if len(charges) != len(g.limiters) {
		return weir.Decision{RetryAfter: weir.Never}, ErrCharges
	}
	for i := range charges {
		charges[i].Place, charges[i].kept, charges[i].took = nil, nil, false
	}
	d := g.take(charges)
	g.note(charges, d.Allowed)
	return d, nil
}

// Peek returns the decision that Take would return, and charges nothing. It queues nobody and
// evicts no key.
func (g *Group[K]) Peek(charges []Charge[K]) (weir.Decision, error) {
	if len(charges) != len(g.limiters) {
		return weir.Decision{RetryAfter: weir.Never}, ErrCharges
	}
	holds := make([]hold[K], len(charges))
	g.grip(charges, holds)
	g.peekAll(charges, holds)
	g.release(holds, false)
	return decider(charges), nil
}

func (g *Group[K]) take(charges []Charge[K]) weir.Decision {
	var few [4]hold[K]
	holds := few[:min(len(charges), len(few))]
	if len(charges) > len(few) {
		holds = make([]hold[K], len(charges))
	}
	for {
		g.grip(charges, holds)
		short := g.peekAll(charges, holds)
		if refused := decider(charges); !refused.Allowed && short < 0 {
			g.begin(charges, holds)
			g.release(holds, false)
			return refused
		}
		if short < 0 {
			break
		}
		now, wall := holds[short].grip.now, holds[short].grip.s.array.version.wall
		g.release(holds, true)
		k := holds[short].k
		wait, ok := k.makeRoom(holds[short].grip.h, now, wall)
		switch h := &holds[short]; {
		case ok:
			h.token = true
		case k.shared != nil:
			h.shared = true
			k.stats.shared.Add(1)
		default:
			k.stats.refused.Add(1)
			charges[short].Decision = k.refused(wait)
			g.release(holds, false)
			return decider(charges)
		}
	}
	g.charge(charges, holds)
	g.release(holds, false)
	return decider(charges)
}

// begin stores the state of a first call that was refused, by a limit that does not start full. Without
// it, each call would find the same empty bucket.
func (g *Group[K]) begin(charges []Charge[K], holds []hold[K]) {
	for i := range holds {
		c, h := &charges[i], &holds[i]
		if c.Skip || !h.held || h.slot >= 0 || c.Decision.Allowed || h.needsNone(c.cost()) || h.peek(c.cost()).Allowed {
			continue
		}
		h.take(c.cost()) // it is refused again
	}
}

// A hold is a group's access to one of its limiters while it decides.
type hold[K comparable] struct {
	grip[K]
	held   bool
	token  bool // room was reserved before
	shared bool // there is no room: a shared state decides
	waits  bool // the charge is to get in line
	keep   bool // the charge is to be kept
}

// grip locks all keys, in the order of the locks.
func (g *Group[K]) grip(charges []Charge[K], holds []hold[K]) {
	for _, i := range g.order {
		c, k := &charges[i], g.limiters[i]
		if c.Skip {
			continue
		}
		h, ok := k.hash(c.Key)
		if !ok {
			c.Decision = k.refused(weir.Never)
			continue
		}
		if holds[i].shared {
			h, _ = k.shared.hash(k.group(c.Key))
			holds[i].grip, holds[i].held = k.shared.grip(k.group(c.Key), h), true
			holds[i].freeze()
			continue
		}
		holds[i].grip, holds[i].held = k.grip(c.Key, h), true
		holds[i].freeze()
		holds[i].adopt(c.Parameters)
		holds[i].grip.token, holds[i].token = holds[i].token, false
	}
}

// release unlocks all keys. It also gives up reserved room, unless keep is set.
func (g *Group[K]) release(holds []hold[K], keep bool) {
	for i := range holds {
		h := &holds[i]
		if h.held {
			if keep {
				h.token, h.grip.token = h.grip.token, false
			}
			h.grip.release()
			h.held = false
		}
		if h.token && !keep {
			h.k.count.Add(-1)
			h.token = false
		}
	}
}

// peekAll sets the decisions without charging. It returns the index of a limiter that has to make
// room first, or one below 0. If only other limiters refuse, no key is evicted to make room.
func (g *Group[K]) peekAll(charges []Charge[K], holds []hold[K]) (short int) {
	short = -1
	refused, waits := false, 0
	for i := range holds {
		c, h := &charges[i], &holds[i]
		h.waits, h.keep = false, false
		if c.Skip || !h.held {
			refused = refused || !c.Skip
			continue
		}
		if h.waits = c.peek(&h.grip); h.waits {
			waits++
		}
		refused = refused || !c.Decision.Allowed
		if h.slot < 0 && !h.needsNone(c.cost()) && !h.room() && (short < 0 || h.k.opts.Full != Evict || !c.Decision.Allowed) {
			short = i
		}
	}
	for i := range holds {
		c, h := &charges[i], &holds[i]
		// a wait for another charge may be given up
		needed := c.Keep || waits > 1 || waits == 1 && !h.waits
		if h.keep = !c.Skip && h.held && needed; h.keep && c.Decision.Allowed && !h.canKeep(c.Cost) {
			c.Decision, refused = h.k.refused(weir.Never), true
		}
	}
	if refused && (short < 0 || holds[short].k.opts.Full == Evict && charges[short].Decision.Allowed) {
		return -1
	}
	return short
}

// cost returns how much has to fit for a charge to be admitted. A cost of 0 always fits.
func (c *Charge[K]) cost() int64 {
	if c.Cost <= 0 || c.Spare <= 0 {
		return c.Cost
	}
	if c.Cost > math.MaxInt64-c.Spare {
		return math.MaxInt64
	}
	return c.Cost + c.Spare
}

// withName converts a decision of the limiter to one for the capacity without Spare.
func (c *Charge[K]) withName(d weir.Decision) weir.Decision {
	if c.Spare > 0 {
		d.Limit, d.Remaining = max(d.Limit-c.Spare, 0), max(d.Remaining-c.Spare, 0)
	}
	return d
}

// canKeep reports whether a charge can be kept, and sets aside the room for that.
func (g *grip[K]) canKeep(cost int64) bool {
	return g.needsNone(cost) || g.fixed() || g.limiterRoom()
}

// peek sets a charge's decision without charging. It reports whether the charge has to get in line.
func (c *Charge[K]) peek(g *grip[K]) (waits bool) {
	c.Decision = c.withName(g.peek(c.cost()))
	if c.Spare > 0 && c.Cost > 0 && c.Decision.Allowed && c.Decision.Level > 0 {
		c.Decision.Level -= c.Spare * 1000 // Spare is not part of the bucket's level
	}
	if !c.Wait || c.Decision.Allowed || g.needsNone(c.Cost) {
		return false
	}
	x, ok := g.promote()
	if !ok || x.fixed() {
		return false
	}
	c.Decision = x.lim.PeekJoin(c.Cost, -1)
	return c.Decision.Allowed
}

// charge makes all charges; all limiters admit them.
func (g *Group[K]) charge(charges []Charge[K], holds []hold[K]) {
	for i := range holds {
		switch c, h := &charges[i], &holds[i]; {
		case c.Skip:
		case h.keep && c.Wait:
			c.join(h)
		case h.keep && c.reserve(h):
		case c.Wait:
			c.Place, c.Decision = h.join(c.Cost, -1)
			c.took = c.Place == nil
		default:
			d, _ := h.take(c.Cost)
			c.Decision, c.took = c.withName(d), true
		}
	}
}

// join makes a charge that can be given back, also after it has waited for its turn.
func (c *Charge[K]) join(h *hold[K]) {
	r, _ := h.joinKept(c.Cost)
	if c.Decision = r.decision; !r.decision.Allowed {
		return
	}
	c.kept = &r
	if r.place != nil && r.place.Delay() > 0 {
		c.Place = r.place
	}
}

// reserve makes a charge that can be given back. It reports false and does nothing if the charge
// may not go now.
func (c *Charge[K]) reserve(h *hold[K]) bool {
	r, ok := h.reserve(c.Cost, 0)
	if ok {
		c.kept = &r
	}
	c.Decision = c.withName(r.Decision())
	return ok
}

// decider picks the group's decision.
func decider[K comparable](charges []Charge[K]) (d weir.Decision) {
	d.Allowed = true
	first := true
	for i := range charges {
		c := charges[i].Decision
		switch {
		case charges[i].Skip:
			continue
		case first:
			d = c
		case d.Allowed && (!c.Allowed || c.Remaining < d.Remaining):
			d = c
		case !d.Allowed && !c.Allowed && longer(c.RetryAfter, d.RetryAfter):
			d = c
		}
		first = false
	}
	return d
}

// longer compares two waits; Never is the longest.
func longer(a, b time.Duration) bool {
	return b != weir.Never && (a == weir.Never || a > b)
}

// Cancel gives back what the charge took. If it still waits, it leaves the queue. The limiter is
// then as if the charge had never been made, as with weir.Reservation.Cancel. For a charge without
// Keep that does not wait, it returns ErrNotKept and does nothing. A charge that was skipped or
// refused took nothing.
func (c *Charge[K]) Cancel() error {
	if c.kept == nil && c.Place != nil && (c.Place.Leave() || c.Place.Err() != nil) {
		return nil
	}
	return c.Settle(0)
}

// Settle replaces the cost of a kept charge by the actual cost, as weir.Reservation.Settle does,
// and as weir.Place.Settle does if it waits or has waited. For a charge without Keep, it returns
// ErrNotKept and does nothing.
func (c *Charge[K]) Settle(actual int64) error {
	switch {
	case c.kept != nil:
		c.kept.Settle(actual)
	case (c.took || c.Place != nil) && c.Cost > 0:
		return ErrNotKept
	}
	return nil
}
