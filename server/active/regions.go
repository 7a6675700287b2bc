package active

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/regions"
	"github.com/weirflow/weir/server/stores"
)

// A decider is how engines decide about the limits of a store: through failover, and where the store has regions,
// by this region's part of each limit.
type decider interface {
	weir.Store
	weir.Keeper
	policy.Holder
	Nodes() int
	Remove(name string)
}

// regional decides by this region's part of each limit.
type regional struct {
	*failover.Store
	divided *regions.Store
}

// Do implements weir.Store.
func (r regional) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	return r.divided.Do(ctx, batch, out)
}

// Keeps implements weir.Keeper.
func (r regional) Keeps(l weir.Limit) error { return r.divided.Keeps(l) }

// homeOf returns the store by which the regions of another one divide their limits; the zero Store for none.
func homeOf(p policy.Policy, def policy.Store) (home policy.Store) {
	for _, s := range p.Stores {
		if def.Regions != nil && s.Name == def.Regions.Home {
			return s
		}
	}
	return home
}

// same reports whether an open store is as a policy has it.
func (o *store) same(def, home policy.Store) bool {
	return reflect.DeepEqual(o.def, def) && reflect.DeepEqual(o.homeDef, home)
}

// divide opens the home of a store that has regions, by a connection of its own, and divides the store's limits.
func (s *storeSet) divide(o *store, fresh []*store) (err error) {
	if o.def.Regions == nil {
		return nil
	}
	options := stores.Regions(o.def)
	var home weir.Store
	if o.homeDef.URL != "" && !o.def.Regions.Fixed() {
		// All counts of a limit are in one slot, as a claim is one step.
		if o.home, err = s.openProduct(o.homeDef, func(string, string) string { return "regions" }, append(fresh, o)); err != nil {
			return fmt.Errorf("its regions' home, stores.%s: %w", o.homeDef.Name, err)
		}
		home = o.home
	}
	log := s.log.With("store", o.def.Name, "home", o.homeDef.Name)
	options.OnHome = func(cause error) {
		if cause != nil {
			log.Warn("the regions' home cannot be reached: this region keeps its share until its term ends, and then has its guaranteed part", "error", cause)
			return
		}
		log.Info("the regions' home is back")
	}
	o.divided, err = regions.New(o.fail, home, options)
	return err
}

// closeRegions ends the calls of the home.
func (o *store) closeRegions() error {
	var errs []error
	if o.divided != nil {
		errs = append(errs, o.divided.Close())
	}
	if o.home != nil {
		errs = append(errs, o.home.Close())
	}
	return errors.Join(errs...)
}

// decider returns how engines use a store.
func (o *store) decider() decider {
	if o.divided != nil {
		return regional{o.fail, o.divided}
	}
	return o.fail
}

// Regions is what is known about a store that has regions.
type Regions struct {
	HomeError error          // of the latest call of the home; nil if it was answered
	Shares    map[string]int // what this region has of each limit that was charged, in thousandths
}

// regionStats returns what is known about a store's regions; nil for one without.
func (o *store) regionStats(limits []policy.Limit) *Regions {
	if o.divided == nil {
		return nil
	}
	all := &Regions{HomeError: o.divided.Stats().Err, Shares: map[string]int{}}
	for i := range limits {
		l := &limits[i]
		if l.Store != o.def.Name {
			continue
		}
		if now, _ := o.divided.Share(l.StateName()); now > 0 {
			all.Shares[l.Name] = now
		}
	}
	return all
}
