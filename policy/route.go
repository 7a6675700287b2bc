package policy

import (
	"slices"

	"github.com/weirflow/weir/keyed"
)

// route is a compiled Route.
type route struct {
	pattern pattern
	// limits in memory, then limits in stores in the order of their stages
	live   []*limit
	order  []int                // the positions of the live limits in the order of the policy
	group  *keyed.Group[string] // the limits in memory
	memory int                  // how many limits are in memory
	stages []stage
	shadow []*limit
	places []*limit    // Concurrency limits, with shadows, in the order of the policy
	admits admission   // adaptive limits, which come after all others
	body   *bodyFields // what the limits read of a request's body; nil for nothing

	warns       bool     // some limit has a WarnAt
	asks        []*limit // the limits that need the customer or the plan
	readsClaims bool     // some key has a claim of a token
	plans       bool     // some limit has plans
	passes      bool     // some limit is passed on to another process: see succession

	dry      []*limit             // shadow limits that charge a zone
	dryGroup *keyed.Group[string] // the shadow limits in dry
}

func (e *Engine) compileRoute(r *Route, byName map[string]*limit) (c route, err error) {
	c.pattern, err = parsePattern(r.Match)
	if err != nil {
		return c, err
	}
	c.pattern.addresses, c.pattern.paths, c.pattern.guards = r.Address, e.policy.paths(r), r.guards()
	limits := make([]*limit, len(r.Limits))
	for i, name := range r.Limits {
		limits[i] = byName[name]
	}
	err = e.compileLimits(&c, limits)
	return c, err
}

// compileLimits sorts the limits of a route by how they are evaluated.
func (e *Engine) compileLimits(c *route, limits []*limit) (err error) {
	var written, shared []*limit
	var tables, dryTables []*keyed.Limiter[string]
	for _, l := range limits {
		c.identify(l)
		c.readsBody(l)
		if l.rest != nil {
			c.addRest(l.rest)
		}
		if l.enters() {
			c.places = append(c.places, l)
			continue
		}
		if l.Shadow && l.zone != nil {
			c.dry = append(c.dry, l)
			dryTables = append(dryTables, l.table)
			continue
		}
		if l.Shadow {
			c.shadow = append(c.shadow, l)
			continue
		}
		written = append(written, l)
		if l.store != nil {
			shared = append(shared, l)
			continue
		}
		c.live = append(c.live, l)
		tables = append(tables, l.table)
	}
	e.inOrder(c.places)
	c.memory = len(c.live)
	c.stages = stagesOf(shared)
	for _, s := range c.stages {
		c.live = append(c.live, s.limits...)
	}
	for _, l := range written {
		c.order = append(c.order, slices.Index(c.live, l))
	}
	c.passes = passesOn(c.live[:c.memory])
	if c.group, err = keyed.NewGroup(tables...); err != nil {
		return err
	}
	c.dryGroup, err = keyed.NewGroup(dryTables...)
	return err
}

// readsBody records what a limit reads of a request's body.
func (r *route) readsBody(l *limit) {
	of := r.body
	if of == nil {
		of = new(bodyFields)
	}
	if of.add(l); of.size || len(of.names) > 0 {
		r.body = of
	}
}

// addRest adds the shadow limit for keys outside the roll_out.
func (r *route) addRest(l *limit) {
	if l.enters() {
		r.places = append(r.places, l)
		return
	}
	r.shadow = append(r.shadow, l)
}

// isRest reports whether this is the shadow limit for keys outside the roll_out.
func (l *limit) isRest() bool { return l.share != nil && l.share.rest }
