package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/keyed"
)

// zone is a state that several limits share: all limits with the same Zone. They have the same
// algorithm, key and rate. They may differ in burst, queue, delay_after or limit. The zone's table
// has the largest of these. A limit with a smaller value subtracts the difference, so that each
// limit decides about the shared state by its own parameters.
type zone struct {
	name string
	// the first limit of the zone in the policy, for everything that all limits of the zone have in
	// common
	first   Limit
	largest weir.Limit                 // the limit of the table
	table   *keyed.Limiter[string]     // nil for a Concurrency
	places  *keyed.Concurrency[string] // nil for all other algorithms
	largeBy int64                      // the capacity of largest
}

// zoned returns what an algorithm needs to share a state. It returns nil for an algorithm that
// cannot.
func zoned(l weir.Limit) rules.Zoned {
	z, _ := rules.ParamsOf(l).(rules.Zoned)
	return z
}

// tableName returns the name of a zone's table. No limit has such a name, so that a limit and a
// zone can have the same name.
func (z *zone) tableName() string { return "zone/" + z.name }

// compileZones compiles all zones of the policy. A zone of before continues unless its limits' key
// or memory changed.
func (e *Engine) compileZones(before *Engine, changes *[]func() error) error {
	e.zones = map[string]*zone{}
	for _, l := range e.policy.Limits {
		if l.Zone == "" || e.zones[l.Zone] != nil {
			continue
		}
		z := &zone{name: l.Zone, first: l, largest: e.policy.largest(l.Zone)}
		z.largeBy, _ = capacityOf(z.largest)
		if err := e.compileZone(z, before.zone(l.Zone), changes); err != nil {
			return fmt.Errorf("weir: zone %q: %w", l.Zone, err)
		}
		e.zones[l.Zone] = z
	}
	return nil
}

func (e *Engine) compileZone(z, old *zone, changes *[]func() error) (err error) {
	goesOn := old != nil && zoneRestarts(&old.first, &z.first) == ""
	of, entered := concurrencyOf(z.largest)
	named := z.first
	named.Name, named.Limit = z.tableName(), z.largest
	switch {
	case entered && goesOn:
		z.places = old.places
		*changes = append(*changes, func() error { return z.places.SetLimit(of) })
	case entered:
		z.places, err = e.newPlaces(named, of)
	case goesOn:
		z.table = old.table
		*changes = append(*changes, func() error { return z.table.SetLimit(z.largest) })
	default:
		z.table, err = e.newTable(named)
	}
	return err
}

// zone returns the zone with that name, or nil.
func (e *Engine) zone(name string) *zone {
	if e == nil {
		return nil
	}
	return e.zones[name]
}

// largest returns the limit of a zone's table: the one with the largest capacity. The table itself
// delays no request.
func (p *Policy) largest(zone string) (largest weir.Limit) {
	most := int64(-1)
	for i := range p.Limits {
		if l := &p.Limits[i]; l.Zone == zone {
			if size, _ := capacityOf(l.Limit); size > most {
				most, largest = size, l.Limit
			}
		}
	}
	return rules.WithParams(largest, zoned(largest).ZoneState())
}

// join makes a limit use the state of its zone.
func (z *zone) join(c *limit) {
	own, _ := capacityOf(c.Limit.Limit)
	c.zone, c.table, c.places, c.spare, c.wait, c.inZone = z, z.table, z.places, z.largeBy-own, false, zoned(c.Limit.Limit)
}

// zoneRestarts returns why the state of a zone is reset when one limit of it follows another, or ""
// if it is not.
func zoneRestarts(was, is *Limit) string {
	switch {
	case !slices.Equal(was.keyParts(), is.keyParts()):
		return "its key is made of other parts"
	case was.isConcurrency() != is.isConcurrency():
		return "places and charges are not the same"
	case was.MaxKeys != is.MaxKeys || was.WhenFull != is.WhenFull:
		return "its keys are kept in a new table, for another max_keys or when_full"
	}
	return ""
}

// close stops the background work of the zone.
func (z *zone) close() error {
	if z.places != nil {
		return z.places.Close()
	}
	return z.table.Close()
}

// ownNames replaces the names of zones' tables by the limits' names in the decisions of a group.
func ownNames(d *weir.Decision, limits []*limit, charges []keyed.Charge[string]) {
	for i, l := range limits {
		if l.zone == nil {
			continue
		}
		for _, by := range []*string{&charges[i].Decision.By, &d.By} {
			if *by == l.zone.tableName() {
				*by = l.Name
			}
		}
	}
}

// dryRun evaluates the shadow limits of zones, and charges their zones: all zones of the route or
// none, as enforced limits would. It refuses and delays nothing.
func (v *Verdict) dryRun(e *Engine, r *request, route *route) {
	charges := make([]keyed.Charge[string], len(route.dry))
	for i, l := range route.dry {
		var buf [maxKey]byte
		key, cost, q := l.keyAndCost(buf[:0], r)
		if charges[i].Skip = q != charged; q == charged {
			charges[i].Key, charges[i].Cost, charges[i].Spare, charges[i].Keep = string(key), cost, l.spare, v.estimates
		} else if l.countExempt(q); q == missing {
			l.counts.limited.Add(1)
		}
	}
	d, _ := route.dryGroup.Take(charges) // an error can only mean a wrong number of charges
	ownNames(&d, route.dry, charges)
	longest, delay := -1, time.Duration(0)
	for i, l := range route.dry {
		c := &charges[i]
		switch held := l.fixedDelay(c.Decision, c.Cost); {
		case c.Skip:
			continue
		case !d.Allowed && l.Name == d.By:
			l.counts.limited.Add(1)
			observesShadow(l, c.Key, c.Decision, c.Cost, 0)
			v.note(l, c.Decision, c.Cost, 0)
		case d.Allowed:
			observesShadow(l, c.Key, c.Decision, c.Cost, held)
			if l.counts.add(c.Decision, held); held > delay {
				longest, delay = i, held
			}
			if v.estimates {
				settle := func(cost int64) { _ = c.Settle(cost) } // it is kept
				v.noteShadowCharge(e, shadowCharge{l: l, estimate: c.Cost, settle: settle, cancel: func() { settle(0) }}, nil, r)
			}
		}
		r.noteShadow(l, c.Decision)
	}
	if longest >= 0 {
		v.note(route.dry[longest], charges[longest].Decision, charges[longest].Cost, delay)
	}
}

// zones checks the limits that share a state.
func (c *checker) zones() {
	first := map[string]*Limit{}
	for i := range c.Limits {
		l := &c.Limits[i]
		if l.Zone == "" || l.Limit == nil {
			continue
		}
		at := []string{"limits", l.Name, "zone"}
		if !isName(l.Zone) {
			c.wrong(fmt.Sprintf("%q is not a name for a zone", l.Zone), "begin with a small letter or a digit, and go on with those and . _ -", at...)
		}
		c.inZone(l, at)
		if first[l.Zone] == nil {
			first[l.Zone] = l
			continue
		}
		c.sameZone(l, first[l.Zone], at)
	}
}

// inZone checks for settings that a limit of a zone must not have.
func (c *checker) inZone(l *Limit, at []string) {
	z := zoned(l.Limit)
	switch {
	case z == nil:
		var kinds []string
		for _, k := range rules.Kinds() {
			if k.NoZone == "" {
				kinds = append(kinds, k.Name)
			}
		}
		c.wrong(fmt.Sprintf("a %s cannot share its state: %s", weir.Algorithm(l.Limit), rules.KindOf(l.Limit).NoZone),
			"take zone out, or use "+strings.Join(kinds, ", "), at...)
		return
	case l.Store != "":
		c.wrong("a zone is kept in the memory of this process", "take zone or store out", at...)
	case l.RollOut != "":
		c.wrong("a limit with a roll_out has two states of its own", "take zone or roll_out out", at...)
	}
	if _, problem := z.InCommon(); problem != "" {
		c.wrong(problem, "", at...)
	}
}

// sameZone checks what all limits of a zone must have in common with the first.
func (c *checker) sameZone(l, first *Limit, at []string) {
	differs := func(what string) {
		c.wrong(fmt.Sprintf("the limits %q and %q share the zone %q, and have different %s", first.Name, l.Name, l.Zone, what),
			fmt.Sprintf("give both the same %s, or take zone out of one", what), at...)
	}
	if weir.Algorithm(l.Limit) != weir.Algorithm(first.Limit) {
		differs("algorithms")
		return
	}
	if !slices.Equal(l.keyParts(), first.keyParts()) {
		differs("keys")
	}
	if l.MaxKeys != first.MaxKeys || l.WhenFull != first.WhenFull {
		differs("max_keys or when_full")
	}
	if a, b := zoned(l.Limit), zoned(first.Limit); a != nil && b != nil {
		mine, _ := a.InCommon()
		theirs, _ := b.InCommon()
		if mine != theirs {
			differs("rates")
		}
	}
}
