package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// leasable reports whether tokens of a limit can be leased.
func leasable(l weir.Limit) bool {
	k := rules.KindOf(l)
	return k != nil && k.NoLease == ""
}

// leased checks that a limit's tokens can be leased, if its store leases tokens.
func (c *checker) leased(l *Limit) {
	s := c.store(l.Store)
	if s == nil || !s.Lease.On || l.Limit == nil || leasable(l.Limit) {
		return
	}
	if l.isConcurrency() {
		return // a Concurrency has no tokens; its places are kept without leases
	}
	var can []string
	for _, k := range rules.Kinds() {
		if k.NoLease == "" {
			can = append(can, k.Name)
		}
	}
	c.wrong(fmt.Sprintf("the store %q has leases, and tokens of %s cannot be leased: only those of %s and %s",
		l.Store, weir.Algorithm(l.Limit), strings.Join(can[:len(can)-1], ", "), can[len(can)-1]), "name a store without lease: there may be two at the same URL", "limits", l.Name, "store")
}

// unleased warns of limits whose leases are useless on a route. If other limits can refuse the
// request afterwards or in the same step, the limit is charged in the store for each request.
func (c *checker) unleased(r *Route, at string) {
	var live []*Limit
	for _, name := range r.Limits {
		if l := c.limit(name); l != nil && !l.Shadow && l.Limit != nil {
			live = append(live, l)
		}
	}
	for j, name := range r.Limits {
		i := slices.IndexFunc(live, func(l *Limit) bool { return l.Name == name })
		if i < 0 || slices.Contains(r.Limits[:j], name) {
			continue
		}
		l := live[i]
		if s := c.store(l.Store); s == nil || !s.Lease.On || !leasable(l.Limit) {
			continue
		}
		if other, fix := laterLimit(live, l); other != nil {
			c.warn(fmt.Sprintf("the limit %q takes no tokens ahead here, but makes a trip for each request, as it is not to be charged where %q refuses", name, other.Name),
				fix, "routes", at, "limits", strconv.Itoa(j))
		}
	}
}

// laterLimit returns a limit of the route that is evaluated together with l, or after it, and what
// to do about that. It returns nil if there is none. Stores are charged in the order in which a
// route names them, then queues in stores, then Concurrency limits.
func laterLimit(live []*Limit, l *Limit) (*Limit, string) {
	first := func(store string) int {
		return slices.IndexFunc(live, func(o *Limit) bool { return o.Store == store && !o.queues() })
	}
	var later *Limit
	for _, o := range live {
		switch {
		case o == l:
		case o.isConcurrency(), o.Store != "" && o.queues():
			return o, "name a store without lease: there may be two at the same URL"
		case o.Store == l.Store:
			return o, "leave one of them in this store, or name one without lease: there may be two at the same URL"
		case o.Store != "" && first(o.Store) > first(l.Store):
			later = o
		}
	}
	if later == nil {
		return nil, ""
	}
	return later, fmt.Sprintf("name %q after it", l.Name)
}
