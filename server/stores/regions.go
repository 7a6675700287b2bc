package stores

import (
	"errors"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/regions"
)

// Regions returns the settings of package regions for a store, which has regions.
func Regions(def policy.Store) regions.Options {
	o := regions.Options{Here: def.Regions.Here, Term: def.Regions.Term, Margin: def.Regions.Margin}
	for _, r := range def.Regions.Guaranteed {
		o.Regions = append(o.Regions, regions.Region{Name: r.Name, Guaranteed: r.Percent})
	}
	if o.Term == 0 {
		o.Term = regions.DefaultTerm
	}
	// Leased tokens may be used for a while after they were granted, as part of a call.
	longest := max(regions.DefaultTimeout, def.Deadline)
	if def.Lease.On {
		lifetime := def.Lease.Lifetime
		if lifetime == 0 {
			lifetime = lease.DefaultLifetime
		}
		longest = max(longest, 2*lifetime)
	}
	o.Timeout = min(longest, o.Term/8).Truncate(time.Microsecond)
	return o
}

// inRegion returns the part of a limit that a region always has; the limit itself in a store without regions, or
// with regions that are wrong.
func inRegion(def policy.Store, l weir.Limit) (weir.Limit, error) {
	if def.Regions == nil {
		return l, nil
	}
	part, err := Regions(def).Guaranteed(l)
	if err != nil && !errors.Is(err, regions.ErrLimit) {
		return l, nil
	}
	return part, err
}
