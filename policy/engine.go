package policy

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive/signals"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/internal/usage"
	"github.com/weirflow/weir/keyed"
)

// Options configure an Engine.
type Options struct {
	// Clock and Timers replace the limits' clock, for virtual time. See weir.WithClock and
	// weir.WithTimers.
	Clock  func() int64
	Timers func(time.Duration, func()) weir.Timer

	// Stores holds the stores that the policy names. A limit whose store is not in it is kept in
	// the memory of this process. The engine closes no store. To use a store that may be slow or
	// unavailable, wrap it with package failover.
	Stores map[string]weir.Store

	// Customers looks up API keys and tokens, for Policy.Plans; default: none is valid.
	Customers Customers

	// Values says that requests come with Values, so that keys and costs may have value.NAME.
	Values bool

	// Warn is called for each Warning, in the goroutine of the request: it must not block. default: no
	// function
	Warn func(Warning)

	// Undecidable is called when a store cannot decide about one key of a limit, which is refused (see
	// weir.ErrCharge), in the goroutine of the request: it must not block. default: no function
	Undecidable func(limit string, err error)

	// Observer is called for decisions as they are made; default: none.
	Observer Observer

	// Signals say whether the machine bears its load, for adaptive limits with BBR, which need it: a Monitor of
	// package adaptive/signals. The engine does not close it. With a Clock: default: no signals
	Signals signals.Source

	// MaxKeys is how many keys a limit keeps if its own MaxKeys is not set; default:
	// keyed.DefaultMaxKeys.
	MaxKeys int

	// Top is how many counters each limit has for its heaviest keys, and how many for its most refused
	// ones, for Engine.Top; default: none.
	Top int

	// Keys makes each Verdict carry the key of the request. This costs an allocation for each
	// refused request.
	Keys bool

	// Parts makes the engine record which parts of keys requests have, for Missing.
	Parts bool

	moved bool // the quotas in memory are in the succession
}

// An Engine decides about requests. It is safe for concurrent use.
type Engine struct {
	policy    Policy
	opts      Options
	limits    []*limit
	routes    []route
	uneven    bool // some routes protect more than others
	noRoute   *atomic.Uint64
	specs     map[string]*usage.Spec // what is read from responses, by its text
	shadows   *shadows
	overrides *overrides
	zones     map[string]*zone
	alone     map[string]*route // by limit, as if a route had that limit alone
	adaptives []*adaptiveLimit  // of routes
	ranks     ranks
	plans     []string  // that the policy names, sorted
	singles   sync.Pool // of *single
	start     time.Time
	sources   []planSource
	keyHeader string // in canonical form; empty for the default

	succession *succession
	handsOver  bool // some limit is charged in a table that is passed on
}

// limit is a compiled limit with its states.
type limit struct {
	Limit
	parts   []part
	cost    cost
	late    *lateCost              // for costs that are known only afterwards; nil for others
	table   *keyed.Limiter[string] // nil for a limit in a store and for a Concurrency
	places  *keyed.Concurrency[string]
	holder  Holder // the store of a Concurrency; nil for one in memory
	shadows *shadows
	// the zone that table or places belongs to; nil for a limit with a state of its own
	zone      *zone
	inZone    rules.Zoned   // how it uses the zone's state
	delayed   rules.Delayed // nil for an algorithm that fixes no delays
	enterWait bool          // requests may wait for a place
	spare     int64         // how much less it admits than the zone's table does
	store     weir.Store    // nil for a limit in memory
	tops      *storedTops   // nil for a limit in memory, and without Options.Top
	passes    bool          // another process can go on with it: see succession
	onFailure string        // the fallback without the store: allow or deny
	counts    *counts
	wait      bool      // the limit is a queue: requests wait while it is busy
	keepsKey  bool      // verdicts carry the key
	observer  Observer  // nil for none
	presence  *presence // which parts of the key requests had; nil unless Options.Parts is set
	window    time.Duration
	state     string          // StateName
	tag       int             // the position of the tag in the key, or noPart
	share     *share          // the keys that the limit is enforced for; nil for all
	rest      *limit          // the shadow limit for all other keys; nil for none
	except    *limitOverrides // bans and grants
	exempt    *exemption
	banBy     string // the Decision.By of a banned request

	warnAt     int64       // in percent; 0 for never
	warnedOf   *warnedKeys // nil if warnAt is 0
	plans      planned     // the limit as it is for single plans; nil for none
	plan       string      // of a limit in plans
	unlimited  bool        // the limit does not apply to the plan
	uncharged  *limit      // counts what customers of an unlimited plan use; nil for none
	onlyCounts bool        // the limit is an uncharged one
	// Options.Undecidable; nil for none
	undecidable func(limit string, err error)
	parameters  *keyed.Parameters // of a limit in plans and in memory
}

// Error is the error for a policy with problems.
type Error struct{ Problems []Problem }

// Error returns the first few problems.
func (e *Error) Error() string {
	text := "weir: the policy is not valid"
	for i, p := range e.Problems {
		if i == 3 {
			return text + fmt.Sprintf("; and %d more", len(e.Problems)-3)
		}
		text += "; " + p.String()
	}
	return text
}

// New compiles a policy. Warnings of Check are no errors here; everything else that Check reports
// makes New return an *Error.
func New(p Policy, o Options) (*Engine, error) {
	return build(p, o, nil)
}

// Next compiles a changed policy into an engine that continues this one.
//
// A limit with the same name, key and store keeps what was used. If its parameters changed, the
// rule of weir.Limiter.SetLimit applies. All other limits start unused. On an error, this engine
// stays as it was. On success, both engines count in the same limits, so that requests in flight
// can end with this one.
func (e *Engine) Next(p Policy) (*Engine, error) {
	return e.NextWith(p, e.opts.Stores, e.opts.Customers)
}

// NextWith is like Next, with other stores and customers. A limit in a store keeps what was used if the store and
// its StateName stay the same.
func (e *Engine) NextWith(p Policy, stores map[string]weir.Store, customers Customers) (*Engine, error) {
	o := e.opts
	o.Stores, o.Customers = stores, customers
	o.moved = e.succession.gate.closed.Load()
	return build(p, o, e)
}

func build(p Policy, o Options, before *Engine) (*Engine, error) {
	problems := slices.DeleteFunc(p.CheckFor(o), func(p Problem) bool { return p.Warning })
	if len(problems) > 0 {
		return nil, &Error{problems}
	}
	e := &Engine{policy: p, opts: o, uneven: p.isUneven(), noRoute: new(atomic.Uint64), specs: map[string]*usage.Spec{}, shadows: newShadows(), start: time.Now()}
	byName := map[string]*limit{}
	var changes []func() error
	if before != nil {
		e.noRoute, e.shadows, e.overrides, e.succession = before.noRoute, before.shadows, before.overrides, before.succession
	} else {
		e.succession = newSuccession()
		e.overrides = newOverrides(e.now)
	}
	e.compileSources()
	if err := e.compileZones(before, &changes); err != nil {
		return nil, err
	}
	for _, l := range p.Limits {
		c, err := e.compileBoth(l, before, &changes)
		if err != nil {
			return nil, fmt.Errorf("weir: limit %q: %w", l.Name, err)
		}
		byName[l.Name] = c
	}
	e.plans, e.handsOver = p.namedPlans(), passesOn(e.limits)
	if err := e.compileAlone(byName); err != nil {
		return nil, err
	}
	for i := range p.Routes {
		r, err := e.compileRoute(&p.Routes[i], byName)
		if err != nil {
			return nil, err
		}
		e.routes = append(e.routes, r)
	}
	if err := e.compileAdaptive(before); err != nil {
		return nil, err
	}
	for _, change := range changes {
		if err := change(); err != nil {
			return nil, err // cannot fail: the limits were checked above
		}
	}
	e.overrides.moveTo(e)
	e.succession.latest.Store(e)
	return e, nil
}

// compileBoth compiles a limit. With a roll_out, it also compiles the shadow limit for the other
// keys, which has states of its own.
func (e *Engine) compileBoth(l Limit, before *Engine, changes *[]func() error) (*limit, error) {
	old := before.limit(l.Name)
	c, err := e.compile(l, old, changes)
	if err != nil {
		return nil, err
	}
	e.limits = append(e.limits, c)
	c.except = e.overrides.of(old, l)
	if l.RollOut == "" {
		return c, c.byPlan()
	}
	c.share, _ = parseRollOut(l.RollOut) // already checked
	var oldRest *limit
	if old != nil {
		oldRest = old.rest
	}
	l.Shadow = true
	if c.rest, err = e.compile(l, oldRest, changes); err != nil {
		return nil, err
	}
	c.rest.share = &share{bound: c.share.bound, whole: c.share.whole, rest: true}
	c.rest.except = c.except
	e.limits = append(e.limits, c.rest)
	return c, errors.Join(c.byPlan(), c.rest.byPlan())
}

// compile compiles a limit. It adds to changes what must change in limits that continue, to be done
// when nothing can fail any more.
func (e *Engine) compile(l Limit, old *limit, changes *[]func() error) (*limit, error) {
	c := &limit{Limit: l, counts: new(counts), shadows: e.shadows, window: window(l.Limit), keepsKey: e.opts.Keys, observer: e.opts.Observer, undecidable: e.opts.Undecidable, state: l.StateName(), banBy: l.Name + banName}
	c.tag, _, _ = l.taggedBy()
	c.cost, _ = parseCost(l.Cost) // already checked
	if l.Costs.IsSet() {
		c.late = e.compileCosts(&l, old)
	}
	c.exempt = newExemption(&l)
	if c.warnAt, _ = parseWarnAt(l.WarnAt); c.warnAt > 0 {
		c.warnedOf = new(warnedKeys)
		if old != nil && old.warnedOf != nil {
			c.warnedOf = old.warnedOf
		}
	}
	for _, text := range l.Key {
		p, _ := parsePart(text)
		c.parts = append(c.parts, p)
	}
	c.wait = l.queues() && !l.Shadow
	c.passes = l.isPassedOn()
	if e.opts.Parts {
		c.presence = &presence{there: make([]atomic.Bool, len(c.parts))}
	}
	if old != nil {
		c.counts = old.counts
	}
	c.delayed = delayedOf(l.Limit)
	of, entered := concurrencyOf(l.Limit)
	c.enterWait = of.Queue > 0
	if z := e.zone(l.Zone); z != nil {
		z.join(c)
		return c, nil
	}
	if old != nil && old.zone != nil {
		old = nil
	}
	if entered {
		of.Limit = l.largestPlaces()
		return c, e.compilePlaces(c, of, old, changes)
	}
	if c.store = e.opts.Stores[l.Store]; c.store != nil && l.Store != "" {
		c.onFailure = l.failure(e.policy.store(l.Store))
		if e.opts.Top > 0 {
			c.tops = newStoredTops(e.opts.Top)
			if old != nil && old.tops != nil && old.keeps(l) {
				c.tops = old.tops
			}
		}
		// check it as the store will count it
		_, err := weir.NewShared(l.Limit, c.store, weir.Named(c.state))
		return c, err
	}
	c.store = nil
	if old != nil && old.table != nil && old.keeps(l) {
		if c.table = old.table; e.opts.moved && c.passes {
			c.store, c.onFailure = e.succession, "deny"
		}
		*changes = append(*changes, func() error { return c.table.SetLimit(l.Limit) })
		return c, nil
	}
	var err error
	c.table, err = e.newTable(l)
	return c, err
}

// keeps reports whether a changed limit keeps what was used.
func (l *limit) keeps(next Limit) bool {
	return slices.Equal(l.parts, next.keyParts()) && l.Store == next.Store && l.Shadow == next.Shadow && l.MaxKeys == next.MaxKeys && l.WhenFull == next.WhenFull
}

// newTable returns the states of a limit in memory.
func (e *Engine) newTable(l Limit) (*keyed.Limiter[string], error) {
	maxKeys := l.MaxKeys
	if maxKeys == 0 {
		maxKeys = e.opts.MaxKeys
	}
	o := keyed.Options{
		MaxKeys: maxKeys,
		Full:    keyed.Full(max(0, slices.Index(whenFull, l.WhenFull))),
		Name:    l.Name,
		Clock:   e.opts.Clock,
		Timers:  e.opts.Timers,
		Top:     e.opts.Top,
	}
	if o.Top > 0 {
		o.TopOneIn = topOneIn
	}
	if l.isQuota() {
		if o.Keys = true; o.Clock == nil {
			o.Clock = e.unixClock()
		}
	}
	return keyed.New[string](l.Limit, o)
}

// limit returns the limit with that name, or nil.
func (e *Engine) limit(name string) *limit {
	if e == nil {
		return nil
	}
	for _, l := range e.limits {
		if l.Name == name && !l.isRest() {
			return l
		}
	}
	return nil
}

// Close stops the janitors of the limits, and waits for calls to stores for shadow limits.
// Decisions go on, except those of shadow limits in stores. Close closes no store.
func (e *Engine) Close() error {
	e.shadows.close()
	var errs []error
	for _, z := range e.zones {
		errs = append(errs, z.close())
	}
	for _, l := range e.limits {
		if l.zone != nil {
			continue
		}
		if l.table != nil {
			errs = append(errs, l.table.Close())
		}
		if l.places != nil {
			errs = append(errs, l.places.Close())
		}
	}
	return errors.Join(errs...)
}

// Retire stops the janitors of the limits that a later engine did not take over.
func (e *Engine) Retire(next *Engine) error {
	var errs []error
	for name, z := range e.zones {
		if n := next.zone(name); n == nil || n.table != z.table || n.places != z.places {
			errs = append(errs, z.close())
		}
	}
	for _, l := range e.limits {
		if l.zone != nil {
			continue
		}
		n := next.limit(l.Name)
		if n != nil && l.isRest() {
			n = n.rest
		}
		if l.table != nil && (n == nil || n.table != l.table) {
			errs = append(errs, l.table.Close())
		}
		if l.places != nil && (n == nil || n.places != l.places) {
			errs = append(errs, l.places.Close())
		}
	}
	return errors.Join(errs...)
}

// Policy returns the policy that was compiled.
func (e *Engine) Policy() Policy { return e.policy }
