package resp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/policy"
)

// namedMark begins the names of named limits. No limit of a policy begins with it, so that no client
// can replace one of those.
const namedMark = "@"

// Bounds of named limits. Together they take at most maxNamed times namedMemory.
const (
	maxNamed       = 128
	maxNamedOfUser = 32  // of one user, where clients authenticate
	maxNamedName   = 100 // as of the policy's limits
	maxNamedParts  = 8
	namedMemory    = 4 << 20 // bytes of the states of one
	leastNamedKeys = 64      // that must have room there
	namedIdle      = time.Hour
)

// A namedLimit is a limit that clients have created with WEIR.INIT.
type namedLimit struct {
	of     policy.Limit // with the name without its mark
	owner  string       // the user; empty where clients need not authenticate
	window time.Duration
	used   atomic.Int64 // when a client used it last, in Unix nanoseconds
}

// namedLimits are the limits that clients have created. They have an engine of their own, and in a store
// names of their own. All methods are safe for concurrent use.
type namedLimits struct {
	now     func() time.Time
	current atomic.Pointer[namedSet]
	mu      sync.Mutex // held by a change from its first step to its last
	stores  []policy.Store
	store   weir.Store // nil for memory
}

// A namedSet is the limits at a time, by name without the mark, and their engine. It is never changed.
type namedSet struct {
	engine *policy.Engine
	byName map[string]*namedLimit
}

func newNamedLimits() (*namedLimits, error) {
	n := &namedLimits{now: time.Now}
	e, err := policy.New(policy.Policy{}, policy.Options{})
	if err == nil {
		n.current.Store(&namedSet{e, map[string]*namedLimit{}})
	}
	return n, err
}

// use returns a limit that a client uses now; nil if there is none of that name.
func (n *namedLimits) use(name string) (*policy.Engine, *namedLimit) {
	set := n.current.Load()
	l := set.byName[strings.TrimPrefix(name, namedMark)]
	if l != nil {
		l.used.Store(n.now().UnixNano())
	}
	return set.engine, l
}

// follow keeps the limits in the store of another policy, nil for memory. Limits whose store changes
// start unused. If the store cannot keep them, they are gone, as after a restart.
func (n *namedLimits) follow(def []policy.Store, store weir.Store) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stores, n.store = def, store
	err := n.replace(n.current.Load().byName)
	if err != nil {
		err = errors.Join(err, n.replace(nil))
	}
	return err
}

// errOwner means that a limit may be changed only by the user who created it.
var errOwner = errors.New("this limit was created by another user: only that user, or one with +@all, may change it")

// A maker is a client that creates and changes limits.
type maker struct {
	user string // empty where clients need not authenticate
	all  bool   // may change the limits of others
}

// init creates or changes a limit.
func (n *namedLimits) init(l policy.Limit, by maker) (created bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.current.Load().byName
	old := all[l.Name]
	switch {
	case old != nil && len(old.of.Key) != len(l.Key):
		return false, fmt.Errorf("the keys of this limit have %d parts: WEIR.DEL it first", len(old.of.Key))
	case old != nil && weir.Equal(old.of.Limit, l.Limit):
		old.used.Store(n.now().UnixNano())
		return false, nil
	case old != nil && old.owner != by.user && !by.all:
		return false, errOwner
	case old == nil && len(all) >= maxNamed:
		return false, fmt.Errorf("there are %d named limits: WEIR.DEL some, or put them into the policy", maxNamed)
	case old == nil && by.user != "" && ownedBy(all, by.user) >= maxNamedOfUser:
		return false, fmt.Errorf("this user has %d named limits: WEIR.DEL some, or put them into the policy", maxNamedOfUser)
	}
	if l.MaxKeys = keysWithin(l.Limit); l.MaxKeys < leastNamedKeys {
		return false, fmt.Errorf("one key of this limit takes too much memory: give it a smaller limit, or put it into the policy")
	}
	made := &namedLimit{of: l, owner: by.user, window: windowOf(l.Limit)}
	if old != nil {
		made.owner = old.owner
	}
	made.used.Store(n.now().UnixNano())
	next := maps.Clone(all)
	next[l.Name] = made
	return old == nil, n.replace(next)
}

func ownedBy(all map[string]*namedLimit, owner string) (n int) {
	for _, l := range all {
		if l.owner == owner {
			n++
		}
	}
	return n
}

// keysWithin returns how many keys of a limit have room in namedMemory.
func keysWithin(l weir.Limit) int {
	const besides = 320 // bytes of a key besides its state: its slot, and its text if that is kept
	words := int64(0)
	for _, part := range weir.Parts(l) {
		if p := rules.ParamsOf(part); p != nil {
			words += p.MostWords()
		}
	}
	return int(namedMemory / (besides + 8*min(words, namedMemory)))
}

// windowOf returns how long it takes until all of a limit is available again.
func windowOf(l weir.Limit) (most time.Duration) {
	for _, part := range weir.Parts(l) {
		if p := rules.ParamsOf(part); p != nil {
			most = max(most, p.QuotaWindow())
		}
	}
	return most
}

// remove deletes a limit. It reports whether there was one.
func (n *namedLimits) remove(name string) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.current.Load().byName
	if all[name] == nil {
		return false, nil
	}
	next := maps.Clone(all)
	delete(next, name)
	return true, n.replace(next)
}

// expire deletes limits that no client has used for an hour, and for so long that all keys are full
// again: nothing is lost with them.
func (n *namedLimits) expire() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.current.Load().byName
	now := n.now().UnixNano()
	ended := func(_ string, l *namedLimit) bool { return now-l.used.Load() > int64(max(namedIdle, 2*l.window)) }
	next := maps.Clone(all)
	if maps.DeleteFunc(next, ended); len(next) == len(all) {
		return nil
	}
	return n.replace(next)
}

// replace puts other limits in force. The lock is held.
func (n *namedLimits) replace(next map[string]*namedLimit) error {
	p := policy.Policy{Stores: n.stores}
	stores := map[string]weir.Store{}
	for _, name := range slices.Sorted(maps.Keys(next)) {
		l := next[name].of
		for _, def := range n.stores {
			l.Store, stores[def.Name] = def.Name, ownNames{n.store}
		}
		p.Limits = append(p.Limits, l)
	}
	old := n.current.Load()
	engine, err := old.engine.NextWith(p, stores, nil)
	if err != nil {
		return err
	}
	n.current.Store(&namedSet{engine, next})
	if f, ok := n.store.(remover); ok {
		for name, l := range old.byName {
			if next[name] == nil {
				f.Remove(namedMark + l.of.StateName())
			}
		}
	}
	return old.engine.Retire(engine)
}

func (n *namedLimits) close() error { return n.current.Load().engine.Close() }

// A remover is a store with a fallback that keeps records of limits by name.
type remover interface{ Remove(name string) }

// ownNames is a store in which named limits do not meet those of a policy.
type ownNames struct{ weir.Store }

// Do marks the names of the charges.
func (s ownNames) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	marked := slices.Clone(batch)
	for i := range marked {
		marked[i].Name = namedMark + marked[i].Name
	}
	err := s.Store.Do(ctx, marked, out)
	for i := range marked {
		marked[i].Name = batch[i].Name
		batch[i] = marked[i]
	}
	return err
}
