package active

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/regions"
	"github.com/weirflow/weir/server/stores"
	"github.com/weirflow/weir/server/stores/product"
)

// storeSet is the open stores: those of the policy in force, and those of earlier policies that
// requests in flight may still use.
type storeSet struct {
	log   *slog.Logger
	grace time.Duration // how long a store stays open after the last policy with it was replaced
	id    string        // of this node, whatever becomes of its stores
	node  string        // which node of a store's URL this process is; "" if that was not said

	later    bool          // next does not wait for stores that are new
	settling time.Duration // how long next or settle wait for them

	called func(store string, took time.Duration)

	mu      sync.Mutex
	open    map[string]*store
	leaving map[*store]*time.Timer
}

// store is an open store, as its policy has it.
type store struct {
	def     policy.Store
	tags    map[string]string             // by the names of limits
	byName  map[string]failover.OnFailure // of the limits that decide otherwise
	store   product.Store
	lease   *lease.Store // nil without leases
	fail    *failover.Store
	homeDef policy.Store                   // where regions divide its limits; zero without regions
	home    product.Store                  // open; nil without
	divided *regions.Store                 // around fail; nil without regions
	settled atomic.Bool                    // settle has waited for it
	calls   atomic.Pointer[[][]weir.Limit] // of the latest policy: what the store is prepared for

	life  context.Context // until close
	end   context.CancelFunc
	tasks sync.WaitGroup
}

// roomStore is a store as engines and waiting rooms use it: limits are decided through failover,
// and the queues of waiting rooms, which have a fallback of their own, are asked directly.
type roomStore struct {
	decider
	product.RoomKeeper
}

// listedStore and listedRoomStore also list the keys of limits.
type (
	listedStore struct {
		decider
		policy.StateLister
	}
	listedRoomStore struct {
		roomStore
		policy.StateLister
	}
)

// The rules of listen.rls divide by the nodes of the stores that they are given, by this method.
var _ interface{ Nodes() int } = roomStore{}

func newStores(o Options, called func(store string, took time.Duration)) *storeSet {
	return &storeSet{called: called, log: o.Log, grace: o.Grace, later: o.ConnectLater, settling: cmp.Or(o.settling, settling), id: rand.Text(), node: o.Node, open: map[string]*store{}, leaving: map[*store]*time.Timer{}}
}

// settling is how long the start, or a reload, waits for a store that is new to be connected, so
// that no request has to do without it.
const settling = time.Second

// next opens the stores of a policy: those that have not changed are taken over. It changes
// nothing: use does. A store that cannot be reached is no error, and is logged; one that cannot even be
// tried is.
func (s *storeSet) next(ctx context.Context, p policy.Policy) (map[string]*store, error) {
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	next := map[string]*store{}
	var fresh []*store
	for _, def := range p.Stores {
		byName, tags := failures(p, def.Name), tagsOf(p, def.Name)
		if old := open[def.Name]; old != nil && old.same(def, homeOf(p, def)) && maps.Equal(old.byName, byName) && maps.Equal(old.tags, tags) {
			next[def.Name] = old
			continue
		}
		opened, err := s.start(def, homeOf(p, def), byName, p.Tags(def.Name), fresh)
		if err != nil {
			for _, f := range fresh {
				err = errors.Join(err, f.close())
			}
			return nil, fmt.Errorf("stores.%s: %w", def.Name, err)
		}
		opened.tags = tags
		next[def.Name] = opened
		fresh = append(fresh, opened)
	}
	if s.later {
		s.connectLater(fresh, p)
		return next, nil
	}
	s.await(ctx, fresh)
	s.warm(ctx, p, next)
	return next, nil
}

// connectLater connects stores that are new, and prepares them, while nobody waits for it.
func (s *storeSet) connectLater(fresh []*store, p policy.Policy) {
	for _, o := range fresh {
		calls := p.Calls(o.def.Name)
		o.calls.Store(&calls)
		since := time.Now()
		o.tasks.Go(func() { s.awaitLate(o, since) })
	}
}

// settle waits a little until stores are connected that were to connect later, tells which are not, and
// prepares those that are.
func (s *storeSet) settle(ctx context.Context, p policy.Policy) {
	s.mu.Lock()
	open := maps.Clone(s.open)
	s.mu.Unlock()
	awaited, cancel := context.WithTimeout(ctx, s.settling)
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(open)) {
		if o := open[name]; !o.settled.Swap(true) {
			if err := o.store.Ready(awaited); err != nil {
				s.tellUnreached(o, err)
			}
		}
	}
	p.Stores = slices.DeleteFunc(slices.Clone(p.Stores), func(def policy.Store) bool { return open[def.Name] == nil }) // another policy may be active by now
	s.warm(ctx, p, open)
}

// failures are the limits of a store that name an on_failure of their own, by the names of their
// states.
func failures(p policy.Policy, name string) map[string]failover.OnFailure {
	all := map[string]failover.OnFailure{}
	for _, l := range p.Limits {
		if l.Store == name && l.OnFailure != "" {
			all[l.StateName()] = onFailure(l.OnFailure)
			if l.RollOut != "" { // for the others it is a shadow, which is asked as it is
				l.Shadow = true
				all[l.StateName()] = onFailure(l.OnFailure)
			}
		}
	}
	return all
}

func onFailure(text string) failover.OnFailure {
	switch text {
	case "allow":
		return failover.Allow
	case "deny":
		return failover.Deny
	}
	return failover.Local
}

// openProduct opens the product's store, by what an open one runs if it can use that: stores of the policy in force, of
// those before it, and those that were opened for the next one.
func (s *storeSet) openProduct(def policy.Store, tag func(name, key string) string, fresh []*store) (product.Store, error) {
	def, err := stores.At(def, s.node)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	candidates := slices.AppendSeq(slices.Collect(maps.Values(s.open)), maps.Keys(s.leaving))
	s.mu.Unlock()
	for _, o := range append(candidates, fresh...) {
		for _, open := range []product.Store{o.store, o.home} {
			if a, ok := open.(product.Adopter); ok {
				if adopted, err := a.Adopt(def); adopted != nil || err != nil {
					return adopted, err
				}
			}
		}
	}
	return stores.Open(def, tag)
}

// leaseOptions are those of a store's leases. A request waits as long for tokens as for the store.
func leaseOptions(def policy.Store) lease.Options {
	lifetime := cmp.Or(def.Lease.Lifetime, lease.DefaultLifetime)
	return lease.Options{Lifetime: lifetime, MaxOutstanding: def.Lease.Max, Timeout: max(lifetime, def.Deadline)}
}

// start opens a store: the product's, with leases around it where the policy has them, and failover
// around that. Where the policy has regions, they are around all of it.
func (s *storeSet) start(def, home policy.Store, byName map[string]failover.OnFailure, tag func(name, key string) string, fresh []*store) (*store, error) {
	o := &store{def: def, homeDef: home, byName: byName}
	var err error
	if o.store, err = s.openProduct(def, tag, fresh); err != nil {
		return nil, err
	}
	o.life, o.end = context.WithCancel(context.Background())
	if c, ok := o.store.(product.Clocked); ok {
		c.OnClockStep(s.tellStep(def))
	}
	if w, ok := o.store.(product.Warner); ok {
		w.OnWarning(func(text string) { s.log.Warn("store: "+text, "store", def.Name) })
	}
	inner := weir.Store(o.store)
	if def.Lease.On {
		if o.lease, err = lease.New(o.store, leaseOptions(def)); err != nil {
			return nil, errors.Join(err, o.close())
		}
		inner = o.lease
	}
	outages := &outageLog{
		log: s.log, store: def.Name, fallback: onFailure(def.OnFailure).String(), shards: map[string]*shardLog{},
		stats: func() failover.Stats { return o.fail.Stats() },
	}
	o.fail, err = failover.New(inner, failover.Options{
		OnFailure:    onFailure(def.OnFailure),
		ByName:       byName,
		Nodes:        stores.Nodes(def),
		Deadline:     def.Deadline,
		Direct:       stores.IsPrompt(def),
		ID:           s.id,
		OnTransition: outages.tell,
		OnCall:       func(took time.Duration) { s.called(def.Name, took) },
	})
	if err == nil {
		err = s.divide(o, fresh)
	}
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	return o, nil
}

// tellStep writes into the log that the clock of a store has stepped back.
func (s *storeSet) tellStep(def policy.Store) func(behind time.Duration) {
	return func(behind time.Duration) {
		s.log.Warn("the store's clock stepped back: keys in use go on from the time that they had reached", "store", def.Name, "at_least", behind.String())
	}
}

// await waits a little for stores to be connected, and tells which are not.
func (s *storeSet) await(ctx context.Context, fresh []*store) {
	ctx, cancel := context.WithTimeout(ctx, s.settling)
	defer cancel()
	for _, o := range fresh {
		if err := o.store.Ready(ctx); err != nil {
			s.tellUnreached(o, err)
			since := time.Now()
			o.tasks.Go(func() { s.awaitLate(o, since) })
			continue
		}
		s.log.Info("store connected", "store", o.def.Name)
	}
}

func (s *storeSet) tellUnreached(o *store, err error) {
	s.log.Warn("store cannot be reached: its limits use their fallback until it is connected", "store", o.def.Name,
		"on_failure", onFailure(o.def.OnFailure).String(), "error", err)
}

// awaitLate waits, until the store is closed, for one that could not be reached when it was opened, and
// then prepares it. If a policy becomes active meanwhile, its calls are either here already, or warm finds
// the store connected.
func (s *storeSet) awaitLate(o *store, since time.Time) {
	if o.store.Ready(o.life) == nil {
		s.warmOne(o.life, o)
		s.log.Info("store connected", "store", o.def.Name, "after", time.Since(since).Round(time.Millisecond).String())
	}
}

// use puts opened stores in force. Those that were and are not any more are closed when requests
// in flight have had their time.
func (s *storeSet) use(next map[string]*store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, old := range s.open {
		if next[name] != old {
			s.leaving[old] = time.AfterFunc(s.grace, func() { s.leave(old) })
		}
	}
	s.open = next
}

// discard closes what next has opened and nobody will use.
func (s *storeSet) discard(next map[string]*store) {
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	for name, o := range next {
		if open[name] != o {
			s.closed(o)
		}
	}
}

// leave closes a store whose time has come, unless the end came first.
func (s *storeSet) leave(o *store) {
	s.mu.Lock()
	_, ok := s.leaving[o]
	delete(s.leaving, o)
	s.mu.Unlock()
	if ok {
		s.closed(o)
	}
}

// close closes all.
func (s *storeSet) close() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.open))
	for o, timer := range s.leaving {
		timer.Stop()
		all = append(all, o)
	}
	s.open, s.leaving = map[string]*store{}, map[*store]*time.Timer{}
	s.mu.Unlock()
	for _, o := range all {
		s.closed(o)
	}
}

func (s *storeSet) closed(o *store) {
	if err := o.close(); err != nil {
		s.log.Warn("closing the store failed", "store", o.def.Name, "error", err)
	}
}

// close ends a store from the outside to the inside: what was leased is given back.
func (o *store) close() error {
	o.end()
	o.tasks.Wait()
	errs := []error{o.closeRegions()}
	if o.fail != nil {
		errs = append(errs, o.fail.Close())
	}
	if o.lease != nil {
		errs = append(errs, o.lease.Close())
	}
	return errors.Join(append(errs, o.store.Close())...)
}

// given are stores as an engine takes them.
func given(open map[string]*store) map[string]weir.Store {
	all := map[string]weir.Store{}
	for name, o := range open {
		rooms, keepsRooms := o.store.(product.RoomKeeper)
		lister, lists := o.store.(policy.StateLister)
		switch {
		case o.divided != nil:
			all[name] = o.decider() // states are under parts of their limits, and rooms are not divided
		case keepsRooms && lists:
			all[name] = listedRoomStore{roomStore{o.fail, rooms}, lister}
		case keepsRooms:
			all[name] = roomStore{o.fail, rooms}
		case lists:
			all[name] = listedStore{o.fail, lister}
		default:
			all[name] = o.fail
		}
	}
	return all
}

// direct are the same stores without failover: for callers that have a fallback of their own.
func direct(open map[string]*store) map[string]weir.Store {
	all := map[string]weir.Store{}
	for name, o := range open {
		if all[name] = o.store; o.lease != nil {
			all[name] = o.lease
		}
	}
	return all
}

// A Store is what is known about a store of the active policy.
type Store struct {
	Name           string
	Connected      bool         // it has been connected since it was opened
	failover.Stats              // whose Cause is also set while Connected is false
	Lease          *lease.Stats // nil for a store without leases
	Regions        *Regions     // nil for a store without regions

	// how many keys have found that the store's clock had stepped back, and when the latest one did;
	// zero for never
	ClockSteps uint64
	SteppedAt  time.Time

	Inexact uint64 // reservations that were too many to be given back exactly
}

// Unavailable returns how many of the store's shards are not used.
func (s Store) Unavailable() int {
	if !s.Connected {
		return s.Shards
	}
	return len(s.Down)
}

// unreached returns why a store is not connected; nil if it is.
func (o *store) unreached() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // Ready says what it knows, and does not wait
	return o.store.Ready(ctx)
}

// StoreStats returns what is known about the stores of the active policy, in the order of their
// names.
func (p *Policy) StoreStats() (all []Store) {
	p.stores.mu.Lock()
	open := p.stores.open
	p.stores.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(open)) {
		o := open[name]
		one := Store{Name: name, Connected: o.store.Connected(), Stats: o.fail.Stats()}
		if !one.Connected {
			one.Cause = o.unreached()
		}
		one.Regions = o.regionStats(p.Now().File.Policy.Limits)
		if o.lease != nil {
			stats := o.lease.Stats()
			one.Lease = &stats
		}
		if c, ok := o.store.(product.Clocked); ok {
			one.ClockSteps, one.SteppedAt = c.ClockSteps()
		}
		if r, ok := o.store.(product.Remembering); ok {
			one.Inexact = r.Inexact()
		}
		all = append(all, one)
	}
	return all
}
