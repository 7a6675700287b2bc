package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/duration"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/regions"
)

// regions reads between which regions a store's limits are divided.
func (d *decoder) regions(s *policy.Store, n *node) {
	if n == nil || n.shape != mapping {
		return
	}
	at := func(field string) []string { return []string{"stores", s.Name, "regions", field} }
	s.Regions = &policy.Regions{
		Here:   text(n.get("here")),
		Home:   text(n.get("home")),
		Term:   d.duration(n.get("term"), "1m", at("term")...),
		Margin: d.duration(n.get("margin"), "100ms", at("margin")...),
	}
	for _, f := range fields(n.get("guaranteed")) {
		percent := min(max(number(f.value), 0), 101)
		s.Regions.Guaranteed = append(s.Regions.Guaranteed, policy.Region{Name: f.name, Percent: int(percent)})
	}
	slices.SortFunc(s.Regions.Guaranteed, func(a, b policy.Region) int { return cmp.Compare(a.Name, b.Name) })
}

// notDivided says why a limit cannot be divided between the regions of its store, and what to do.
func notDivided(s *policy.Store, l weir.Limit, refused error) (why, fix string) {
	k := rules.KindOf(l)
	home := "name a store without regions"
	if s.Regions.Home != "" && s.Regions.Home != s.Name {
		home = fmt.Sprintf("write store: %s, which all regions share", s.Regions.Home)
	}
	if k != nil && k.NoLease == "" {
		home += ", and lease: true in that store"
	}
	var long *regions.TooLongError
	switch {
	case errors.As(refused, &long) && long.Needs != 0:
		return fmt.Sprintf("the store %q has regions with a term of %s, in which parts of this limit cannot follow demand: what was used counts for too long", s.Name, duration.Format(long.Term)),
			fmt.Sprintf("write term: %s in that store; or %s", duration.Format(long.Needs), home)
	case errors.As(refused, &long):
		return fmt.Sprintf("the store %q has regions, and parts of this limit cannot follow demand: what was used counts for too long", s.Name),
			home + "; or guarantee 100 percent together, for parts that do not move"
	}
	if k != nil && k.NoRegions != "" {
		return fmt.Sprintf("the store %q has regions, and %s cannot be divided between regions: %s", s.Name, k.Name, k.NoRegions), home
	}
	return fmt.Sprintf("the limit is too small for the %d regions of the store %q: nothing would be left for one of them", len(s.Regions.Guaranteed), s.Name),
		"raise the limit or what is guaranteed, or " + home
}
