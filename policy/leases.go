package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// leasable says whether tokens of a limit can be taken ahead.
func leasable(l weir.Limit) bool {
	k := rules.KindOf(l)
	return k != nil && k.NoLease == ""
}

// leased checks that tokens of a limit can be taken ahead, where its store is to do that.
func (c *checker) leased(l *Limit) {
	s := c.store(l.Store)
	if s == nil || !s.Lease.On || l.Limit == nil || leasable(l.Limit) {
		return
	}
	if _, ok := l.Limit.(weir.Concurrency); ok {
		return // it has no tokens: its places are the store's, beside the leases
	}
	var can []string
	for _, k := range rules.Kinds() {
		if k.NoLease == "" {
			can = append(can, k.Name)
		}
	}
	c.wrong(fmt.Sprintf("the store %q has leases, and tokens of %s cannot be leased: only those of %s and %s",
		l.Store, weir.Kind(l.Limit), strings.Join(can[:len(can)-1], ", "), can[len(can)-1]), "name a store without lease: there may be two at the same URL", "limits", l.Name, "store")
}

// unleased warns of limits whose store takes tokens ahead, and which have no use for that on a route: what others may refuse afterwards, or
// refuse at the same time, is charged for each request by itself.
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
		if other, fix := binds(live, l); other != nil {
			c.warn(fmt.Sprintf("the limit %q takes no tokens ahead here, but makes a trip for each request, as it is not to be charged where %q refuses", name, other.Name),
				fix, "routes", at, "limits", strconv.Itoa(j))
		}
	}
}

// binds returns a limit of a route that is asked together with a limit in a store, or after it, and what to do about that; nil where there is
// none. Stores are asked in the order in which a route names them, queues in stores after that, and then concurrency.
func binds(live []*Limit, l *Limit) (*Limit, string) {
	first := func(store string) int {
		return slices.IndexFunc(live, func(o *Limit) bool { return o.Store == store && !o.queues() })
	}
	var later *Limit
	for _, o := range live {
		_, place := o.Limit.(weir.Concurrency)
		switch {
		case o == l:
		case place, o.Store != "" && o.queues():
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
