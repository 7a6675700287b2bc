package weirtest

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// Versions is the model of a key in a store whose callers do not all have the same version of its
// limit, as during a rolling deploy. The key has a state for
// each of the last two versions. Like a Model it is exact, slow, and shares no code with the
// stores.
//
// The rules:
//
//   - The caller's own version decides. What it admits is charged to the other version too, which
//     is filled by it up to one capacity beyond full.
//   - A version begins with what the version before it has used.
//   - A version is dropped when it has admitted nothing for so long that what it admitted has come
//     back.
//   - A third version replaces the one that has admitted nothing for longest, and takes over what
//     that one has used. While both were used within VersionRest, it replaces neither: what its
//     callers want is admitted if both versions admit it.
//   - Two versions share one state where a change from one to the other creates and loses nothing.
//
// The store's clock may step back: see keyClock.
//
// Times are in clock units of length tick. It has no queues, and is not safe for concurrent use.
type Versions struct {
	tick  time.Duration
	kept  []version // at most two, the one that admitted last first
	clock keyClock

	charges map[int]sharedCharge // reservations that are not settled yet
	ids     int
	opened  int // how many calls there were: marks of a state that begins in one are unlike those of others
}

// VersionRest is how long a version of a limit has admitted nothing when a third one may take its
// place. So versions cannot take turns in replacing each other, which would forget what was used.
const VersionRest = time.Minute

// mostInStore is the largest count of a store.
const mostInStore = 1<<53 - 1

// A version is a limit with its state.
type version struct {
	algorithm algorithm
	// While there is another version: when this one last admitted, or began; and from when on it
	// may be dropped.
	used, ends int64
}

// sharedCharge is a reservation, as each version that was charged for it knows it.
type sharedCharge struct {
	cost  int64
	parts []chargedVersion
}

// chargedVersion is what one version was charged. The parts of an All that did not decide are
// charged on their own: each may have had less room.
type chargedVersion struct {
	of      algorithm // a version that is the same algorithm
	amounts []int64
	marks   []mark
	whole   bool // one mark is for all parts of of
}

// NewVersions returns the model of an unused key.
func NewVersions(tick time.Duration) *Versions {
	return &Versions{tick: tick, charges: map[int]sharedCharge{}}
}

// Clone returns an independent copy.
func (v *Versions) Clone() *Versions {
	c := *v
	c.kept, c.charges, c.clock.behind = v.copies(), maps.Clone(v.charges), slices.Clone(v.clock.behind)
	return &c
}

func (v *Versions) copies() []version {
	kept := slices.Clone(v.kept)
	for i := range kept {
		kept[i].algorithm = kept[i].algorithm.clone()
	}
	return kept
}

// String returns the states.
func (v *Versions) String() string {
	text := ""
	for _, k := range v.kept {
		text += fmt.Sprintf("%T %v used %d ends %d; ", k.algorithm, k.algorithm, k.used, k.ends)
	}
	return text + fmt.Sprintf("%+v", v.clock)
}

// Len returns how many versions have a state: at most two.
func (v *Versions) Len() int { return len(v.kept) }

// Idle reports whether the key is unused, or the state of a version equals an unused one. A store may
// drop such a state, or a part of it, and then does not have it where its clock steps back.
func (v *Versions) Idle(now int64) bool {
	if v.Clone().time(now) != now {
		return false // the key is kept, to know how far its clock is behind
	}
	for _, k := range v.kept {
		if _, reset := k.algorithm.peek(now, new(big.Int)); reset.Sign() <= 0 {
			return true
		}
	}
	return len(v.kept) == 0
}

// unused reports whether the key may be dropped: every state equals an unused one, and the key's clock
// is the store's.
func (v *Versions) unused(now int64) bool {
	if v.Clone().time(now) != now {
		return false
	}
	for _, k := range v.kept {
		if endOf(k.algorithm, now) > now {
			return false
		}
	}
	return true
}

// A view is what a call sees: copies, which are kept if something is charged.
type view struct {
	limit   weir.Limit
	model   *Model // decides
	kept    []version
	third   bool // the call's version has no state: both others decide
	changed bool // the state has begun, or was converted
	stored  bool // the state is to be kept, even if the call is refused
}

// open finds or makes the state of a version.
func (v *Versions) open(l weir.Limit, now int64) *view {
	next := listing(algorithmOf(l, v.tick, true))
	v.opened++
	numberFrom(next, v.opened<<32)
	w := &view{limit: l, kept: dropEnded(v.copies(), next, now)}
	w.own(next, now, int64(VersionRest/v.tick))
	decides := w.kept[0].algorithm
	if w.third {
		decides = &allOf{parts: []algorithm{w.kept[0].algorithm, w.kept[1].algorithm}, names: []string{"0", "1"}}
	}
	w.model = &Model{tick: v.tick, algorithm: decides, charges: map[int]*charge{}, blind: true}
	return w
}

// dropEnded drops versions that have ended, except the caller's own. One is always left.
func dropEnded(kept []version, own algorithm, now int64) []version {
	if len(kept) < 2 {
		return kept
	}
	left := slices.DeleteFunc(slices.Clone(kept), func(k version) bool { return k.ends <= now && !k.algorithm.same(own) })
	if len(left) == 0 {
		left = []version{kept[1-eldest(kept)]}
	}
	return left
}

// eldest is the version that has admitted nothing for longest.
func eldest(kept []version) int {
	if kept[0].used < kept[1].used {
		return 0
	}
	return 1
}

// own puts the caller's version first.
func (w *view) own(next algorithm, now, rest int64) {
	first := func(i int) {
		if i == 1 {
			w.kept[0], w.kept[1] = w.kept[1], w.kept[0]
		}
	}
	for i, k := range w.kept {
		if k.algorithm.same(next) {
			first(i)
			return
		}
	}
	for i, k := range w.kept {
		if sharesState(k.algorithm, next) {
			first(i)
			w.changed, w.stored = true, comesBackSooner(k.algorithm, next)
			w.kept[0].algorithm = change(now, k.algorithm, next)
			return
		}
	}
	switch len(w.kept) {
	case 0:
		w.kept = []version{{algorithm: next}}
	case 1:
		before := w.kept[0]
		if before.used, before.ends = now, endOf(before.algorithm, now); before.ends > now {
			w.kept = []version{takeOver(before.algorithm.clone(), next, now), before}
		} else {
			w.kept = []version{takeOver(before.algorithm, next, now)}
		}
		w.changed, w.stored = true, true
	case 2:
		old := eldest(w.kept)
		if w.third = w.kept[old].used > now-rest; w.third {
			return
		}
		w.kept = []version{takeOver(w.kept[old].algorithm, next, now), w.kept[1-old]}
		w.changed, w.stored = true, true
	}
}

// Take decides and charges, for a caller that has this version of the limit.
func (v *Versions) Take(l weir.Limit, now, cost int64) weir.Decision {
	now = v.time(now)
	w := v.open(l, now)
	d := w.model.Take(now, cost)
	if d.Allowed && cost > 0 {
		w.charged(now, cost, false)
	}
	v.keep(w, now, cost, d)
	return w.decision(d, now, cost)
}

// Peek decides as Take would, and charges nothing.
func (v *Versions) Peek(l weir.Limit, now, cost int64) weir.Decision {
	now = v.time(now)
	w := v.open(l, now)
	return w.decision(w.model.Peek(now, cost), now, cost)
}

// Used is how much of a limit is used, also beyond its capacity.
func (v *Versions) Used(l weir.Limit, now int64) int64 {
	now = v.time(now)
	parts, _ := all(v.open(l, now).model.algorithm)
	most := new(big.Int)
	for _, p := range parts {
		most = latest(most, heldBy(p, now))
	}
	return clamp(most)
}

// Carry keeps the state that a version begins with.
func (v *Versions) Carry(l weir.Limit, now int64) {
	now = v.time(now)
	if w := v.open(l, now); w.changed && w.kept[0].algorithm.touched() {
		v.store(w.kept, now)
	}
}

// Reserve charges ahead of time. The id is for Settle.
func (v *Versions) Reserve(l weir.Limit, now, cost, within int64) (id int, delay time.Duration, d weir.Decision) {
	c, delay, d := v.reserve(l, now, cost, within, true)
	if d.Allowed {
		v.ids++
		id = v.ids
		v.charges[id] = c
	}
	return id, delay, d
}

// TakeKept is Take for a charge that can be settled. estimate is whether the states remember it until
// then.
func (v *Versions) TakeKept(l weir.Limit, now, cost int64, estimate bool) (id int, d weir.Decision) {
	c, _, d := v.reserve(l, now, cost, 0, estimate)
	if d.Allowed && cost > 0 {
		v.ids++
		id = v.ids
		v.charges[id] = c
	}
	return id, d
}

// reserve is Reserve for a caller that keeps the charge. outstanding is whether the states remember it:
// they do not for takes that are mostly never given back.
func (v *Versions) reserve(l weir.Limit, now, cost, within int64, outstanding bool) (c sharedCharge, delay time.Duration, d weir.Decision) {
	now = v.time(now)
	w := v.open(l, now)
	w.forgetful(!outstanding)
	made, delay, d := w.model.Reserve(now, cost, within)
	w.forgetful(false)
	c.cost = cost
	if d.Allowed && cost > 0 {
		c.parts = w.charged(now, cost, outstanding)
		own := w.model.charges[made].mark
		if !w.third {
			c.parts = append(c.parts, chargedVersion{unusedAll(w.kept[0].algorithm), []int64{cost}, []mark{own}, true})
		} else {
			for i, m := range own.(allMark) {
				c.parts = append(c.parts, chargedVersion{unusedAll(w.kept[i].algorithm), []int64{cost}, []mark{m}, true})
			}
		}
	}
	v.keep(w, now, cost, d)
	if !d.Allowed {
		delay = w.decision(d, now, cost).RetryAfter
	}
	return c, delay, w.decision(d, now, cost)
}

// forgetful says that the states are not to remember the charge that follows.
func (w *view) forgetful(v bool) {
	for _, k := range w.kept {
		parts, _ := all(k.algorithm)
		for _, p := range parts {
			switch p := p.(type) {
			case *bucket:
				p.forgetful = v
			case *smoothBursty:
				p.forgetful = v
			case *intervalBucket:
				p.forgetful = v
			case *warmUp:
				p.forgetful = v
			}
		}
	}
}

// keep keeps what a call leaves behind: all if it charged; a state that has begun, even if it was
// refused; else nothing.
func (v *Versions) keep(w *view, now, cost int64, d weir.Decision) {
	switch {
	case cost <= 0 || cost > w.model.algorithm.largest():
	case d.Allowed:
		v.store(w.kept, now)
	case w.third:
	case (w.stored || len(v.kept) == 0) && w.kept[0].algorithm.touched():
		v.store(w.kept, now)
	}
}

// charged charges the version that did not decide, and notes that the other one was used.
func (w *view) charged(now, cost int64, keeps bool) (filled []chargedVersion) {
	if w.third || len(w.kept) < 2 {
		return nil
	}
	w.kept[0].used, w.kept[0].ends = now, endOf(w.kept[0].algorithm, now)
	return []chargedVersion{fill(w.kept[1].algorithm, now, cost, keeps)}
}

// decision completes a decision that both versions made: for a caller of a third one.
func (w *view) decision(d weir.Decision, now, cost int64) weir.Decision {
	if !w.third {
		return d
	}
	own := algorithmOf(w.limit, w.model.tick, true)
	d.Limit, d.By = own.size(), ""
	if j, ok := own.(*allOf); ok {
		d.By = j.names[0]
	}
	if cost > 0 && cost <= own.largest() && !d.Allowed && d.RetryAfter == weir.Never {
		rest := int64(VersionRest / w.model.tick)
		d.RetryAfter = w.model.duration(max(w.kept[eldest(w.kept)].used+rest-now, 1))
	}
	return d
}

// Settle replaces a reserved cost by the actual one: each version gets back what it was charged too
// much, or is charged the difference. It reports whether the reservation has expired, so that it stays
// charged.
func (v *Versions) Settle(l weir.Limit, now int64, id int, actual int64) (expired bool) {
	c, ok := v.charges[id]
	if !ok || actual < 0 {
		return false
	}
	delete(v.charges, id)
	if actual == c.cost && !anyPart(l, listedInStores) {
		return false // nobody calls the store for that
	}
	return v.settle(l, now, c, actual)
}

// listedInStores reports whether a store's state lists the outstanding reservations of a limit that is no
// All.
func listedInStores(l weir.Limit) bool {
	switch l.(type) {
	case weir.TokenBucket, weir.LeakyBucket, weir.SmoothBursty, weir.IntervalBucket, weir.WarmUp:
		return true
	}
	return false
}

// settle is Settle for a caller that has kept the charge.
func (v *Versions) settle(l weir.Limit, now int64, c sharedCharge, actual int64) (expired bool) {
	if actual < 0 {
		return false
	}
	now = v.time(now)
	w, given := v.open(l, now), false
	if own := w.kept[0].algorithm; actual >= c.cost && !w.third && !w.changed {
		for _, p := range c.parts {
			if before := own.String(); p.whole && p.of.same(own) && p.marks[0] != nil && own.touched() {
				if own.drop(p.marks[0]); own.String() != before {
					v.store(w.kept, now)
				}
			}
		}
	}
	switch {
	case actual == c.cost:
	case actual > c.cost && w.third: // the caller's version has no state: its work counts for those that have one
		for _, k := range w.kept {
			fill(k.algorithm, now, actual-c.cost, false)
		}
		v.store(w.kept, now)
	case actual > c.cost:
		w.kept[0].algorithm.contact(now)
		w.kept[0].algorithm.charge(whole(now), actual-c.cost)
		w.charged(now, actual-c.cost, false)
		v.store(w.kept, now)
	case actual < c.cost:
		for _, k := range w.kept {
			for _, p := range c.parts {
				if before := k.algorithm.String(); p.of.same(k.algorithm) && k.algorithm.touched() {
					expired = expired || p.expired(k.algorithm, now, actual)
					p.giveBack(k.algorithm, now, actual)
					given = given || k.algorithm.String() != before
				}
			}
		}
		if given {
			v.store(slices.DeleteFunc(w.kept, func(k version) bool { return !k.algorithm.touched() }), now)
		}
	}
	return expired
}

// expired reports whether a version would give something back if the reservation had not expired.
func (c chargedVersion) expired(l algorithm, now, actual int64) bool {
	if c.whole {
		return markExpired(l, now, c.marks[0])
	}
	parts, _ := all(l)
	for i, p := range parts {
		if c.amounts[i] > actual && markExpired(p, now, c.marks[i]) {
			return true
		}
	}
	return false
}

// GiveBack lowers the count of each version, at most to nothing. Only a FixedWindow has one.
func (v *Versions) GiveBack(l weir.Limit, now, amount int64) error {
	now = v.time(now)
	w := v.open(l, now)
	if _, ok := algorithmOf(l, v.tick, true).(*fixedWindow); !ok {
		return errors.New("weirtest: only the count of a FixedWindow can be given back without a receipt")
	}
	if amount <= 0 {
		return nil
	}
	for _, k := range w.kept {
		if f, ok := k.algorithm.(*fixedWindow); ok {
			f.lower(now, amount)
		}
	}
	v.store(slices.DeleteFunc(w.kept, func(k version) bool { return !k.algorithm.touched() }), now)
	return nil
}

// giveBack gives back what a version was charged beyond the actual cost.
func (c chargedVersion) giveBack(l algorithm, now, actual int64) {
	if c.whole {
		if c.marks[0] != nil {
			l.giveBack(now, c.marks[0], c.amounts[0]-actual)
		}
		return
	}
	parts, _ := all(l)
	for i, p := range parts {
		if back := c.amounts[i] - actual; back > 0 && c.marks[i] != nil && p.touched() {
			p.giveBack(now, c.marks[i], back)
		}
	}
}
