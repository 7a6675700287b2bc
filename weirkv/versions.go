package weirkv

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirflow/weir/internal/packed"
	"github.com/weirflow/weir/internal/rules"
)

// versionRest is how long a version of a limit has admitted nothing when a third one may take its place.
const versionRest = int64(time.Minute / unit)

// newVersion returns an unused state. began is shorter than 64 bits, as it is in each receipt.
func newVersion(c *compiled, remember int) *version {
	return &version{limit: c, began: rand.Uint64N(1 << 42), budget: newBudget(remember)}
}

// use puts the version of a call first. A new version begins with what has been used. It reports whether
// the states have changed, which has to be written, even if the call is refused: the wait that a refused
// caller is told is that of the new version.
func (e *entry) use(c *compiled, now int64, remember int) (changed bool) {
	e.third = false
	if i := e.find(c); i >= 0 {
		e.first(i)
		return false
	}
	switch len(e.versions) {
	case 0:
		e.versions = []*version{newVersion(c, remember)}
		return false
	case 1:
		before := e.versions[0]
		e.versions = []*version{before.converted(c, now)}
		if before.ends = before.endOf(now); before.ends > now {
			before.used = now
			e.versions = append(e.versions, before)
		}
	default:
		old := e.eldest()
		if v := e.versions[old]; v.ends > now && now-v.used < versionRest {
			e.third = true
			return false
		}
		e.first(old)
		e.versions[0] = e.versions[0].converted(c, now)
	}
	return true
}

// carry makes a version the only one. It begins with what the one that admitted last has used.
func (e *entry) carry(c *compiled, now int64) (changed bool) {
	if e.third = false; len(e.versions) == 0 {
		return false
	}
	if len(e.versions) == mostVersions {
		e.first(1 - e.eldest())
	}
	if e.versions[0].limit.is(c) && len(e.versions) == 1 {
		return false
	}
	if e.versions = e.versions[:1]; !e.versions[0].limit.is(c) {
		e.versions[0] = e.versions[0].converted(c, now)
	}
	return true
}

// converted is a version that begins with what another one has used. Reservations of that one give
// nothing back to it.
func (v *version) converted(c *compiled, now int64) *version {
	next := newVersion(c, v.budget.all)
	next.state = rules.ChangeRule(v.limit.part, slices.Clone(v.state), now, c.part, now)
	next.used, next.ends = now, next.endOf(now)
	return next
}

func (e *entry) find(c *compiled) int {
	return slices.IndexFunc(e.versions, func(v *version) bool { return v.limit.is(c) })
}

func (e *entry) first(i int) {
	if i == 1 {
		e.versions[0], e.versions[1] = e.versions[1], e.versions[0]
	}
}

// eldest is the version that has admitted nothing for longest.
func (e *entry) eldest() int {
	if e.versions[0].used < e.versions[1].used {
		return 0
	}
	return 1
}

// deciding returns the versions that decide about the current call.
func (e *entry) deciding() []*version {
	if e.third {
		return e.versions
	}
	return e.versions[:1]
}

// room is how much a version that did not decide can be charged for what another one admitted: it is
// filled up to one capacity beyond full, so that its callers do not wait for hours for what a looser
// version admits.
func (v *version) room(now int64) int64 {
	capacity := max(v.limit.rule.Capacity(), 1)
	most := capacity
	if most <= math.MaxInt64/2 {
		most *= 2
	}
	return max(most-min(v.limit.rule.Spent(v.state, now), most), 0)
}

// copied returns a copy with the same state and memory.
func (v *version) copied() *version {
	c := *v
	c.state, c.budget = slices.Clone(v.state), newBudget(v.budget.all)
	if v.memory != nil {
		c.budget.open = true
		c.memory = rules.ReadMemory(packed.NewReader(v.memory.Append(nil)), v.limit.rule, math.MaxUint64, c.budget)
		c.budget.open = false
	}
	return &c
}
