package memory

import (
	"math"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// versionRest is how long a version of a limit has admitted nothing when a third one may take its
// place.
const versionRest = int64(time.Minute)

// An entry is the states of a key: one, and a second one while callers have two versions of the limit,
// as during a rolling deploy. The caller's own version decides. What it admits is charged to the other
// one too, until that one is full. The shard of the entry is locked.
type entry struct {
	versions []*version // at most two; that of the current call comes first
	third    bool       // the current call has a third version: both others decide
}

// version is a version of a limit with its state.
type version struct {
	prepared weir.Prepared
	lim      *weir.Limiter
	used     int64 // while there is another version: when this one last admitted
	ends     int64 // and when all of that has come back
}

// charge is what a call has charged, in each version.
type charge struct {
	delay time.Duration
	parts [2]weir.Reservation // of the caller's version, and of the other one
	costs [2]int64
	n     int
	other *weir.Limiter // of the other version; nil without one
}

func (s *Store) newEntry(p weir.Prepared, name string) (*entry, error) {
	v, err := s.newVersion(p, nil, name)
	if err != nil {
		return nil, err
	}
	return &entry{versions: []*version{v}}, nil
}

func (s *Store) newVersion(p weir.Prepared, state []int64, name string) (*version, error) {
	lim, err := p.New(state, weir.Named(name), weir.WithClock(s.now), weir.WithWallClock(s.wall))
	if err != nil {
		return nil, err
	}
	return &version{prepared: p, lim: lim}, nil
}

// use puts the version of a call first. A new version begins with what has been used.
func (e *entry) use(s *Store, p weir.Prepared, name string) error {
	e.third = false
	for i, v := range e.versions {
		if v.prepared.Limit() == p.Limit() || weir.Equal(v.prepared.Limit(), p.Limit()) {
			e.first(i)
			return nil
		}
	}
	now := s.now()
	if len(e.versions) == 2 {
		old := e.eldest()
		if e.versions[old].ends > now && now-e.versions[old].used < versionRest {
			e.third = true
			return nil
		}
		e.first(old)
		return e.replace(s, p)
	}
	before := e.versions[0]
	limit, state := before.lim.State()
	if err := e.replace(s, p); err != nil {
		return err
	}
	kept, err := s.prepared.of(limit)
	if err != nil {
		return err
	}
	copied, err := s.newVersion(kept, state, name)
	if err != nil {
		return err
	}
	if copied.touch(now); copied.ends > now {
		e.versions = append(e.versions, copied)
		e.versions[0].touch(now)
	}
	return nil
}

// spent is how much of the limit is used, also beyond its capacity: of the versions that decide, the most.
func (e *entry) spent(s *Store) (most int64) {
	deciding := e.versions[:1]
	if e.third {
		deciding = e.versions
	}
	for _, v := range deciding {
		now := s.now
		if v.prepared.Wall() {
			now = s.wall
		}
		_, state := v.lim.State()
		most = max(most, v.prepared.Rule().Rule.Spent(state, now()))
	}
	return most
}

// carry makes a version the only one: it begins with what the one that admitted last has used.
func (e *entry) carry(s *Store, l weir.Limit) error {
	p, err := s.prepared.of(l)
	if err != nil {
		return err
	}
	if len(e.versions) == 2 {
		e.first(1 - e.eldest())
	}
	e.versions, e.third = e.versions[:1], false
	return e.replace(s, p)
}

// replace makes the first version another one: it begins with what that has used, and its reservations
// can still be given back.
func (e *entry) replace(s *Store, p weir.Prepared) error {
	v := e.versions[0]
	if err := v.lim.SetLimit(p.Limit()); err != nil {
		return err
	}
	v.prepared = p
	v.touch(s.now())
	return nil
}

func (e *entry) first(i int) {
	if i == 1 {
		e.versions[0], e.versions[1] = e.versions[1], e.versions[0]
	}
}

func (e *entry) eldest() int {
	if e.versions[0].used < e.versions[1].used {
		return 0
	}
	return 1
}

// touch notes that a version was used.
func (v *version) touch(now int64) {
	v.used = now
	v.ends = now + min(int64(v.lim.Peek(0).ResetAfter), math.MaxInt64-max(now, 0))
}

// dropEnded drops the other version if all that it admitted has come back.
func (e *entry) dropEnded(now int64) {
	if len(e.versions) == 2 && e.versions[1].ends <= now && !e.third {
		e.versions = e.versions[:1]
	}
}

// peek decides as a take would, and charges nothing.
func (e *entry) peek(cost int64) weir.Decision {
	d := e.versions[0].lim.Peek(cost)
	if e.third {
		if other := e.versions[1].lim.Peek(cost); d.Allowed && !other.Allowed {
			return other
		}
	}
	return d
}

// version returns the version with a limit; the first one for a third.
func (e *entry) version(s *Store, l weir.Limit) *version {
	if p, err := s.prepared.of(l); err == nil {
		for _, v := range e.versions {
			if weir.Equal(v.prepared.Limit(), p.Limit()) {
				return v
			}
		}
	}
	return e.versions[0]
}

// reserve charges a cost, at most within ahead of its time, in each version.
func (e *entry) reserve(s *Store, l weir.Limit, cost int64, within time.Duration) (c charge, d weir.Decision, ok bool) {
	if own := e.version(s, l); len(e.versions) == 2 && own == e.versions[1] {
		e.first(1) // two members of a group with two versions of a limit
	}
	now := s.now()
	e.dropEnded(now)
	r, ok := e.versions[0].lim.Reserve(cost, max(within, -1))
	c.delay, d = r.Delay(), r.Decision()
	if !ok {
		return c, d, false
	}
	c.parts[0], c.costs[0], c.n = r, cost, 1
	if len(e.versions) == 1 {
		return c, d, true
	}
	other := e.versions[1]
	amount := cost
	if !e.third {
		amount = min(cost, other.lim.Peek(1).Remaining)
	}
	filled, ok := other.lim.Reserve(amount, 0)
	switch {
	case ok:
		c.parts[1], c.costs[1], c.n = filled, amount, 2
	case e.third:
		c.settle(0)
		return charge{delay: filled.Delay()}, filled.Decision(), false
	}
	c.other = other.lim
	if e.versions[0].touch(now); e.third {
		other.touch(now)
	}
	return c, d, true
}

// settle replaces what was charged by the actual cost. A version that was charged less gives back less,
// and of what comes on top it is charged what fits.
func (c charge) settle(actual int64) {
	if c.n == 0 {
		return
	}
	c.parts[0].Settle(actual)
	if c.n == 2 {
		c.parts[1].Settle(min(c.costs[1], actual))
	}
	if c.other != nil && actual > c.costs[0] {
		c.other.TakeAtMost(actual - c.costs[0])
	}
}

// keep leaves it charged.
func (c charge) keep() {
	for i := range c.n {
		c.parts[i].Settle(c.costs[i])
	}
}

// resetAfter is how long until the key is idle; the longest for limits that are never idle.
func (e *entry) resetAfter() (reset time.Duration) {
	for _, v := range e.versions {
		for _, part := range weir.Parts(v.prepared.Limit()) {
			if p := rules.ParamsOf(part); p != nil && !p.Resets() {
				return math.MaxInt64
			}
		}
		reset = max(reset, v.lim.Peek(0).ResetAfter)
	}
	return reset
}
