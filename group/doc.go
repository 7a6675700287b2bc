// Package group charges limits of any kind together or not at all: limits of this process, limits
// per key, limits in stores, places of Concurrency, and adaptive limits.
//
//	r, d, err := group.Take(ctx,
//		group.One(service, 1),
//		group.Keyed(perTenant, tenant, 1),
//		group.InFlight(workers, 1),
//		group.Shared(tokens, tenant, 4000))
//	if err != nil || !d.Allowed {
//		return // nothing is charged anywhere
//	}
//	defer r.Done(weir.OK)
//	...
//	err = r.Settle(ctx, 1, 1, 1, used) // the tokens that the work has really taken
//
// If all limits are a weir.Limiter, use a weir.Group, and if all are a keyed.Limiter of one type of
// keys, a keyed.Group: these decide about all limits at one moment. If one cost counts for several
// limits of one key, use weir.All.
//
// # Order
//
// A limit is charged the later, the less exactly it can be given back:
//
//  1. Limits in this process. All of them, and the places of this process, are evaluated before any
//     is charged.
//  2. Places of Concurrency: first those of this process, then those in stores.
//  3. Limits in stores, with one call for each store. The limits of one store are charged together
//     or not at all by the store, in one step where it can.
//  4. Adaptive limits, which measure how long the work takes. Whether they have a place is looked at
//     before any limit is charged; if the last one is taken meanwhile, stores give back.
//
// If a limit refuses, those after it are not called, and those before it get back what they were
// charged. The same happens if a store fails.
//
// # What is given back
//
//   - In this process: exactly. The limit is then as if it had never been charged, but for the cases
//     that weir.Reservation.Cancel names. A caller that comes between the charge and its giving back
//     may be refused because of it. As the limits are evaluated first, this needs another caller
//     that takes what was left in between, or a refusal by a store.
//   - Places: exactly.
//   - In stores: by the stores' rule, which may give back less than was charged, and never too much:
//     see docs/guarantees.md. If all stores admit, or there is one store and it refuses, nothing
//     needs to be given back.
//
// A store behind package failover does not fail: its fallback decides, and the Decision has its
// Source.
package group
