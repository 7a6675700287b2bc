package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/duration"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/keyed"
)

// An Override replaces the limit for one key until it ends: by a ban, a grant, or other parameters.
// If client.ip is a part of the key, it may be a prefix such as 10.0.0.0/8, for all of its
// addresses.
type Override struct {
	Limit string
	Key   []string // the parts, in the order of the limit's key
	// refuse all requests without a charge; false: admit all without a charge
	Ban bool
	// or parameters that differ from the limit's, as in a policy file: {"rate": "100/s"}
	Set map[string]string
	For time.Duration // how long it lasts, from now
}

// MaxOverrides limits the number of overrides at once, over all limits.
const MaxOverrides = 10_000

const (
	maxRanges       = 256                       // per limit; each request compares with all of them
	maxOverrideTime = 10 * 366 * 24 * time.Hour // the longest duration
	maxParts        = 4096                      // bytes of a key
)

// banName follows the limit's name in Decision.By when a ban refused the request. It cannot
// collide, because names of limits have no slash.
const banName = "/ban"

// ErrTooMany is the error when there are already MaxOverrides overrides, or too many prefixes of
// one limit.
var ErrTooMany = fmt.Errorf("weir: there are %d bans and grants already, or %d prefixes of one limit: lift some", MaxOverrides, maxRanges)

// overrides are the overrides of an engine and of its successors (Next).
type overrides struct {
	clock   func() int64
	mu      sync.Mutex
	byLimit map[string]*limitOverrides
	engine  *Engine // the newest engine
}

// limitOverrides are the overrides of one limit. They are read without a lock, and replaced as a
// whole.
type limitOverrides struct {
	all atomic.Pointer[activeOverrides]
}

// activeOverrides is what requests look up. An exact key takes precedence over a prefix, and a
// longer prefix over a shorter one.
type activeOverrides struct {
	exact  map[string]*activeOverride
	ranges []*activeOverride
	clock  func() int64
}

// activeOverride is an override that has not ended.
type activeOverride struct {
	Override
	until  int64
	limit  weir.Limit   // the limit with other parameters; nil for a ban or a grant
	prefix netip.Prefix // for an override of a prefix
	part   int          // the position in the key of the part with the prefix; -1 without a prefix
}

func newOverrides(clock func() int64) *overrides {
	return &overrides{clock: clock, byLimit: map[string]*limitOverrides{}}
}

// of returns the overrides of a limit. It continues those of the old limit if the key is the same.
func (x *overrides) of(old *limit, l Limit) *limitOverrides {
	if old != nil && slices.Equal(old.parts, l.keyParts()) {
		return old.except
	}
	return new(limitOverrides)
}

// moveTo continues with the limits of another engine. It drops overrides whose parameters no longer
// fit, and puts the others into the new tables.
func (x *overrides) moveTo(e *Engine) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.engine = e
	clear(x.byLimit)
	for _, l := range e.limits {
		if l.isRest() {
			continue
		}
		x.byLimit[l.Name] = l.except
		all := l.except.all.Load()
		if all == nil {
			continue
		}
		next := all.clone()
		for key, r := range all.exact {
			if r.Set == nil {
				continue
			}
			again := *r
			if err := again.put(l, key, x.clock()); err != nil {
				delete(next.exact, key)
				continue
			}
			next.exact[key] = &again
		}
		l.except.replace(next)
	}
}

// put sets other parameters for a key in the limit's table.
func (r *activeOverride) put(l *limit, key string, now int64) (err error) {
	if r.limit, err = withParameters(l, r.Set); err != nil || r.until <= now {
		return err
	}
	return l.table.Override(key, keyed.Override{Limit: r.limit, For: time.Duration(r.until - now)})
}

// withParameters returns a limit with some parameters replaced.
func withParameters(l *limit, set map[string]string) (weir.Limit, error) {
	if k := rules.KindOf(l.Limit.Limit); k != nil && k.NoOverride != "" {
		return nil, fmt.Errorf("the parameters of a %s are the same for all keys, because %s: use a ban, or a grant without --set", k.Name, k.NoOverride)
	}
	if l.zone != nil {
		return nil, fmt.Errorf("the limit shares the zone %q, whose other limits would get the parameters too: use a ban, or a grant without --set", l.zone.name)
	}
	if l.table == nil {
		return nil, fmt.Errorf("the limit is in the store %q, where its parameters are the same for all keys: use a ban, or a grant without --set", l.Store)
	}
	fields := map[string]any{}
	for name, value := range set {
		fields[name] = value
	}
	return WithFields(l.Limit.Limit, fields)
}

func (all *activeOverrides) clone() *activeOverrides {
	return &activeOverrides{exact: maps.Clone(all.exact), ranges: slices.Clone(all.ranges), clock: all.clock}
}

// replace replaces the overrides. Without overrides, requests skip the lookup.
func (x *limitOverrides) replace(all *activeOverrides) {
	if len(all.exact) == 0 && len(all.ranges) == 0 {
		all = nil
	}
	x.all.Store(all)
}

// now returns the overrides that apply now, or nil.
func (x *limitOverrides) now() *activeOverrides { return x.all.Load() }

// hasParameters reports whether a key has parameters of its own.
func (x *limitOverrides) hasParameters(key []byte) bool {
	all := x.all.Load()
	if all == nil {
		return false
	}
	r := all.exact[string(key)]
	return r != nil && r.limit != nil && all.clock() < r.until
}

// window returns the window by a key's own parameters. Without them, it returns of.
func (x *limitOverrides) window(key string, of time.Duration) time.Duration {
	if all := x.all.Load(); all != nil {
		if r := all.exact[key]; r != nil && r.limit != nil && all.clock() < r.until {
			return window(r.limit)
		}
	}
	return of
}

// overriddenBy returns how an override changes the decision for a request.
func (l *limit) overriddenBy(all *activeOverrides, key []byte, req *request) applicability {
	now := all.clock()
	r := all.find(l, key, req, now)
	switch {
	case r == nil || r.limit != nil:
		return charged
	case r.Ban:
		req.banned = time.Duration(r.until - now)
		return banned
	}
	if !l.isRest() && !req.unread && (req.named == nil || !req.named.peek) {
		l.counts.granted.Add(1)
	}
	return skipped
}

// find returns the override for a key, or nil if the limit itself applies.
func (all *activeOverrides) find(l *limit, key []byte, req *request, now int64) *activeOverride {
	if r := all.exact[string(key)]; r != nil && now < r.until {
		return r
	}
	if len(all.ranges) == 0 {
		return nil
	}
	addr := req.address()
	for _, r := range all.ranges {
		if now < r.until && r.prefix.Contains(addr) && r.fits(l, req) {
			return r
		}
	}
	return nil
}

// addressOf returns the address of a client as ClientKey writes it. For other texts it returns an
// invalid address.
func addressOf(client string) netip.Addr {
	if addr, err := netip.ParseAddr(client); err == nil {
		return addr
	}
	prefix, _ := netip.ParsePrefix(client)
	return prefix.Addr()
}

// fits reports whether the other parts of the key match an override of a prefix.
func (r *activeOverride) fits(l *limit, req *request) bool {
	for i := range l.parts {
		if i == r.part {
			continue
		}
		if value, _, _ := l.value(i, req); value != r.Key[i] {
			return false
		}
	}
	return true
}

// Override sets an override, and replaces an earlier one for the same key. The error says what is
// wrong with it. Engines that follow this one by Next keep its overrides, as long as the limit's
// name and key stay. Override is safe to call concurrently with Decide and Next.
func (e *Engine) Override(ex Override) error {
	x := e.overrides
	x.mu.Lock()
	defer x.mu.Unlock()
	l := x.engine.limit(ex.Limit)
	if l == nil {
		return fmt.Errorf("weir: there is no limit %q (%s)", ex.Limit, suggest(ex.Limit, names(x.engine.policy.Limits, func(l Limit) string { return l.Name })))
	}
	r, key, err := x.check(l, ex)
	if err != nil {
		return fmt.Errorf("weir: limit %q: %w", ex.Limit, err)
	}
	x.sweep()
	next := &activeOverrides{exact: map[string]*activeOverride{}, clock: x.clock}
	if all := l.except.all.Load(); all != nil {
		next = all.clone()
	}
	was := next.remove(r, key)
	if x.count()-was >= MaxOverrides || r.part >= 0 && len(next.ranges) >= maxRanges {
		return ErrTooMany
	}
	switch {
	case r.part >= 0:
		next.ranges = append(next.ranges, r)
		slices.SortStableFunc(next.ranges, func(a, b *activeOverride) int { return cmp.Compare(b.prefix.Bits(), a.prefix.Bits()) })
	case r.Set != nil:
		if err := r.put(l, key, x.clock()); err != nil {
			return fmt.Errorf("weir: limit %q: %w", ex.Limit, err)
		}
	case l.table != nil && l.zone == nil:
		l.table.Lift(key) // parameters of an earlier override
	}
	if r.part < 0 {
		next.exact[key] = r
	}
	l.except.replace(next)
	return nil
}

// remove removes the override for the same key or prefix, and returns how many there were.
func (all *activeOverrides) remove(r *activeOverride, key string) int {
	before := len(all.exact) + len(all.ranges)
	if r.part < 0 {
		delete(all.exact, key)
	} else {
		all.ranges = slices.DeleteFunc(all.ranges, func(o *activeOverride) bool { return slices.Equal(o.Key, r.Key) })
	}
	return before - len(all.exact) - len(all.ranges)
}

// check checks an override.
func (x *overrides) check(l *limit, ex Override) (*activeOverride, string, error) {
	r := &activeOverride{Override: ex, part: -1, until: x.clock()}
	switch {
	case l.Shadow:
		return nil, "", errors.New("it is a shadow, and enforces nothing: take shadow out of the policy first")
	case ex.For <= 0 || ex.For > maxOverrideTime:
		return nil, "", fmt.Errorf("%v is not how long an override may last: give a time of up to ten years", ex.For)
	case ex.Ban && ex.Set != nil:
		return nil, "", errors.New("a ban has no parameters: choose a ban or a grant")
	case ex.Set != nil && len(ex.Set) == 0:
		return nil, "", errors.New("no parameter is set: name at least one, like rate")
	}
	r.until += int64(ex.For)
	key, err := r.locate(l)
	if err != nil {
		return nil, "", err
	}
	if ex.Set != nil {
		if r.part >= 0 {
			return nil, "", errors.New("parameters can be set for one key, and a prefix stands for many: use a ban, or a grant without --set")
		}
		r.limit, err = withParameters(l, ex.Set)
	}
	return r, key, err
}

// Lift ends the override for a key. It reports whether there was one.
func (e *Engine) Lift(limit string, key []string) (bool, error) {
	x := e.overrides
	x.mu.Lock()
	defer x.mu.Unlock()
	l := x.engine.limit(limit)
	if l == nil {
		return false, fmt.Errorf("weir: there is no limit %q (%s)", limit, suggest(limit, names(x.engine.policy.Limits, func(l Limit) string { return l.Name })))
	}
	r := &activeOverride{Override: Override{Key: key}, part: -1}
	encoded, err := r.locate(l)
	if err != nil {
		return false, fmt.Errorf("weir: limit %q: %w", limit, err)
	}
	x.sweep()
	all := l.except.all.Load()
	if all == nil {
		return false, nil
	}
	next := all.clone()
	if next.remove(r, encoded) == 0 {
		return false, nil
	}
	if l.table != nil && l.zone == nil && r.part < 0 {
		l.table.Lift(encoded)
	}
	l.except.replace(next)
	return true, nil
}

// Overrides returns the active overrides: by limit in the order of the policy, then by when they
// end. For is the time that is left.
func (e *Engine) Overrides() (all []Override) {
	x := e.overrides
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sweep()
	now := x.clock()
	for _, l := range x.engine.limits {
		r := l.except.all.Load()
		if r == nil || l.isRest() {
			continue
		}
		of := append(slices.Collect(maps.Values(r.exact)), r.ranges...)
		slices.SortFunc(of, func(a, b *activeOverride) int {
			return cmp.Or(cmp.Compare(a.until, b.until), slices.Compare(a.Key, b.Key))
		})
		for _, r := range of {
			ex := r.Override
			ex.For = time.Duration(r.until - now)
			all = append(all, ex)
		}
	}
	return all
}

// Sweep removes overrides that have ended, so that requests need not look at them. It only affects
// speed.
func (e *Engine) Sweep() {
	x := e.overrides
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sweep()
}

// sweep removes overrides that have ended. The caller holds the lock.
func (x *overrides) sweep() {
	now := x.clock()
	for _, of := range x.byLimit {
		all := of.all.Load()
		if all == nil || !all.ended(now) {
			continue
		}
		next := all.clone()
		maps.DeleteFunc(next.exact, func(_ string, r *activeOverride) bool { return r.until <= now })
		next.ranges = slices.DeleteFunc(next.ranges, func(r *activeOverride) bool { return r.until <= now })
		of.replace(next)
	}
}

// ended reports whether any override has ended.
func (all *activeOverrides) ended(now int64) bool {
	for _, r := range all.exact {
		if r.until <= now {
			return true
		}
	}
	return slices.ContainsFunc(all.ranges, func(r *activeOverride) bool { return r.until <= now })
}

// count returns how many overrides there are. The caller holds the lock.
func (x *overrides) count() (n int) {
	for _, of := range x.byLimit {
		if all := of.all.Load(); all != nil {
			n += len(all.exact) + len(all.ranges)
		}
	}
	return n
}

// String describes the override without its key, which may identify a client.
func (ex Override) String() string {
	d := duration.Format(ex.For)
	switch {
	case ex.Ban:
		return fmt.Sprintf("a ban at the limit %q for %s", ex.Limit, d)
	case ex.Set == nil:
		return fmt.Sprintf("a grant at the limit %q for %s", ex.Limit, d)
	}
	var set []string
	for _, name := range slices.Sorted(maps.Keys(ex.Set)) {
		set = append(set, name+" "+ex.Set[name])
	}
	return fmt.Sprintf("a grant of %s at the limit %q for %s", strings.Join(set, ", "), ex.Limit, d)
}
