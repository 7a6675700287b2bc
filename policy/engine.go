package policy

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/internal/tally"
	"github.com/weirflow/weir/keyed"
)

// Options are what an Engine is given.
type Options struct {
	// Clock and Timers replace the clock of the limits, for virtual time, as weir.WithClock and weir.WithTimers do.
	Clock  func() int64
	Timers func(time.Duration, func()) weir.Timer

	// Stores are those that the policy names. A limit whose store is not here is kept in the memory of this process, as if it named none. The
	// engine closes none of them. See failover for what makes one of a store that may be slow or gone.
	Stores map[string]weir.Store

	// MaxKeys is how many keys a limit keeps that does not say so itself; 0 means keyed.DefaultMaxKeys.
	MaxKeys int

	// Keys has each Verdict carry the key of the request, which costs an allocation where it was refused.
	Keys bool

	// Parts has the engine note which parts of keys requests have, for Missing.
	Parts bool
}

// An Engine decides about requests. It is safe for concurrent use.
type Engine struct {
	policy    Policy
	opts      Options
	limits    []*limit
	routes    []route
	noRoute   *atomic.Uint64
	shadows   *shadows
	overrides *overrides
	zones     map[string]*zone
	singles   sync.Pool // of *single
	start     time.Time
}

// limit is a named limit with its states.
type limit struct {
	Limit
	parts     []part
	cost      cost
	table     *keyed.Limiter[string] // nil for one in a store, and for concurrency
	places    *keyed.Concurrency[string]
	holder    Holder // the store of a limit of concurrency; nil for one in memory
	shadows   *shadows
	zone      *zone       // whose state table or places is; nil for a limit with a state of its own
	inZone    rules.Zoned // how it uses the zone\'s state
	spare     int64       // how much less it admits than the zone's table does
	store     weir.Store  // nil for one in memory
	onFailure string      // what decides where the store does not: allow or deny
	counts    *counts
	wait      bool      // it is a queue: requests that find it busy wait
	keepsKey  bool      // verdicts carry the key
	presence  *presence // which parts of the key requests had; nil where nobody asks
	window    time.Duration
	state     string          // StateName
	tag       int             // the place of its tag in the key, or noPart
	share     *share          // the keys it is enforced for; nil for all
	rest      *limit          // the shadow that it is for all others; nil for none
	except    *limitOverrides // bans and grants
	exempt    *exemption
	banBy     string // the Decision.By of a banned request
}

// counts are the counters of a limit.
type counts struct {
	allowed, limited, delayed tally.Counter
	sources                   [sources]atomic.Uint64 // of the decisions of one in a store
	failed, missed, lost      atomic.Uint64
	banned, granted, exempt   atomic.Uint64
	inside                    atomic.Int64            // places in a store that this process has taken
	ended                     [outcomes]atomic.Uint64 // holds of such places, by how the work ended
}

// outcomes is how many weir.Outcomes there are.
const outcomes = int(weir.Dropped) + 1

// sources is how many weir.Sources there are.
const sources = int(weir.SourceDeny) + 1

// route is a compiled Route.
type route struct {
	pattern pattern
	live    []*limit             // those in memory, and then those in stores as the stages have them
	order   []int                // the places of the live ones in the order of the policy
	group   *keyed.Group[string] // of those in memory
	memory  int                  // how many those are
	stages  []stage
	shadow  []*limit
	places  []*limit // those of concurrency, shadows too, in the order of the policy

	dry      []*limit             // shadows that charge a zone
	dryGroup *keyed.Group[string] // of these
}

// Error is the error for a policy that does not check.
type Error struct{ Problems []Problem }

// Error says what is wrong, the first few.
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

// New compiles a policy. What is only a warning in Check is no error here; all else is an *Error.
func New(p Policy, o Options) (*Engine, error) {
	return build(p, o, nil)
}

// Next compiles a changed policy into an engine that continues this one. A limit with the same name, key and store keeps what was used, by the
// rule of weir.Limiter.SetLimit if its parameters changed; all others start unused. It is all or nothing:
// on an error this engine is as it was. Once Next has succeeded, both engines count in the same limits, for requests that are still
// under way.
func (e *Engine) Next(p Policy) (*Engine, error) {
	return e.NextWith(p, e.opts.Stores)
}

// NextWith is Next with other stores. What a limit has used is in its store, under its StateName: it is kept where both are.
func (e *Engine) NextWith(p Policy, stores map[string]weir.Store) (*Engine, error) {
	o := e.opts
	o.Stores = stores
	return build(p, o, e)
}

func build(p Policy, o Options, before *Engine) (*Engine, error) {
	problems := slices.DeleteFunc(p.Check(), func(p Problem) bool { return p.Warning })
	if len(problems) > 0 {
		return nil, &Error{problems}
	}
	e := &Engine{policy: p, opts: o, noRoute: new(atomic.Uint64), shadows: newShadows(), start: time.Now()}
	byName := map[string]*limit{}
	var changes []func() error
	if before != nil {
		e.noRoute, e.shadows, e.overrides = before.noRoute, before.shadows, before.overrides
	} else {
		e.overrides = newOverrides(e.now)
	}
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
	for i := range p.Routes {
		r, err := e.compileRoute(&p.Routes[i], byName)
		if err != nil {
			return nil, err
		}
		e.routes = append(e.routes, r)
	}
	for _, change := range changes {
		if err := change(); err != nil {
			return nil, err // it cannot fail: the limits were checked above
		}
	}
	e.overrides.follow(e)
	return e, nil
}

// compileBoth readies a limit and, where it has a roll_out, the shadow that it is for the other keys. Each has states of its own.
func (e *Engine) compileBoth(l Limit, before *Engine, changes *[]func() error) (*limit, error) {
	old := before.limit(l.Name)
	c, err := e.compile(l, old, changes)
	if err != nil {
		return nil, err
	}
	e.limits = append(e.limits, c)
	c.except = e.overrides.of(old, l)
	if l.RollOut == "" {
		return c, nil
	}
	c.share, _ = parseRollOut(l.RollOut) // checked
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
	return c, nil
}

// compile readies a limit. What is to change in limits that go on from before is put off until nothing can fail any more.
func (e *Engine) compile(l Limit, old *limit, changes *[]func() error) (*limit, error) {
	c := &limit{Limit: l, counts: new(counts), shadows: e.shadows, window: window(l.Limit), keepsKey: e.opts.Keys, state: l.StateName(), banBy: l.Name + banName}
	c.tag, _, _ = l.taggedBy()
	c.cost, _ = parseCost(l.Cost) // checked
	c.exempt = newExemption(&l)
	for _, text := range l.Key {
		p, _ := parsePart(text)
		c.parts = append(c.parts, p)
	}
	c.wait = l.queues() && !l.Shadow
	if e.opts.Parts {
		c.presence = &presence{there: make([]atomic.Bool, len(c.parts))}
	}
	if old != nil {
		c.counts = old.counts
	}
	if z := e.zone(l.Zone); z != nil {
		z.join(c)
		return c, nil
	}
	if old != nil && old.zone != nil {
		old = nil
	}
	if of, ok := l.Limit.(weir.Concurrency); ok {
		return c, e.compilePlaces(c, of, old, changes)
	}
	if c.store = e.opts.Stores[l.Store]; c.store != nil && l.Store != "" {
		c.onFailure = l.failure(e.policy.store(l.Store))
		_, err := weir.NewShared(l.Limit, c.store, weir.Named(c.state)) // it is checked as a store counts
		return c, err
	}
	c.store = nil
	if old != nil && old.table != nil && old.keeps(l) {
		c.table = old.table
		*changes = append(*changes, func() error { return c.table.SetLimit(l.Limit) })
		return c, nil
	}
	var err error
	c.table, err = e.newTable(l)
	return c, err
}

// keeps reports whether what a limit has used is that of a changed one too.
func (l *limit) keeps(next Limit) bool {
	return slices.Equal(l.parts, next.keyParts()) && l.Store == next.Store && l.Shadow == next.Shadow && l.MaxKeys == next.MaxKeys && l.WhenFull == next.WhenFull
}

// newTable returns the states of a limit in memory.
func (e *Engine) newTable(l Limit) (*keyed.Limiter[string], error) {
	maxKeys := l.MaxKeys
	if maxKeys == 0 {
		maxKeys = e.opts.MaxKeys
	}
	return keyed.New[string](l.Limit, keyed.Options{
		MaxKeys: maxKeys,
		Full:    keyed.Full(max(0, slices.Index(whenFull, l.WhenFull))),
		Name:    l.Name,
		Clock:   e.opts.Clock,
		Timers:  e.opts.Timers,
	})
}

// limit returns the limit of that name, nil where there is none.
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

func (e *Engine) compileRoute(r *Route, byName map[string]*limit) (c route, err error) {
	c.pattern, err = parsePattern(r.Match)
	if err != nil {
		return c, err
	}
	c.pattern.addresses = r.Address
	var written, shared []*limit
	var tables, dryTables []*keyed.Limiter[string]
	for _, name := range r.Limits {
		l := byName[name]
		if l.rest != nil {
			c.addRest(l.rest)
		}
		if l.enters() {
			c.places = append(c.places, l)
			continue
		}
		if l.Shadow && l.zone != nil {
			c.dry = append(c.dry, l)
			dryTables = append(dryTables, l.table)
			continue
		}
		if l.Shadow {
			c.shadow = append(c.shadow, l)
			continue
		}
		written = append(written, l)
		if l.store != nil {
			shared = append(shared, l)
			continue
		}
		c.live = append(c.live, l)
		tables = append(tables, l.table)
	}
	e.inOrder(c.places)
	c.memory = len(c.live)
	c.stages = stagesOf(shared)
	for _, s := range c.stages {
		c.live = append(c.live, s.limits...)
	}
	for _, l := range written {
		c.order = append(c.order, slices.Index(c.live, l))
	}
	if c.group, err = keyed.NewGroup(tables...); err != nil {
		return c, err
	}
	c.dryGroup, err = keyed.NewGroup(dryTables...)
	return c, err
}

// addRest adds the shadow that a limit is for keys beyond its roll_out.
func (r *route) addRest(l *limit) {
	if l.enters() {
		r.places = append(r.places, l)
		return
	}
	r.shadow = append(r.shadow, l)
}

// isRest reports whether it is what a limit of the same name is for keys beyond its roll_out.
func (l *limit) isRest() bool { return l.share != nil && l.share.rest }

// Close ends the janitors of the limits, and waits for shadow limits whose stores are being asked. Decisions go on, but for those of such
// shadow limits. It closes no store.
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

// Retire ends the janitors of the limits that a later engine did not take over.
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

// Count is what a limit has counted since the first engine that knew its name.
type Count struct {
	Limit                     string
	Shadow                    bool
	Rest                      bool // it is the shadow that the limit of that name is for keys beyond its roll_out
	Allowed, Limited, Delayed uint64
	Banned, Granted           uint64        // refused by a ban, and passed by a grant
	Exempt                    uint64        // passed since the limit does not apply to them
	Waiting                   int           // now in its queues, where these are in memory
	Held                      int64         // places that are taken now, of one of concurrency; of one in a store, by this process
	Outcomes                  weir.Outcomes // of the requests that held places of a limit of concurrency, and have ended
	Keys                      keyed.Stats

	// Of a limit in a store: where its decisions were made, and how often the store did not answer, so that on_failure decided; how often a
	// shadow limit was not asked, as too many were being asked; and how often a charge was not given back, as the store did not answer.
	Stored               bool
	Sources              [sources]uint64 // by weir.Source
	Failed, Missed, Lost uint64
}

// Counts returns what each limit has counted, in the order of the policy.
func (e *Engine) Counts() []Count {
	all := make([]Count, 0, len(e.limits))
	for _, l := range e.limits {
		c := Count{
			Limit:   l.Name,
			Shadow:  l.Shadow,
			Rest:    l.isRest(),
			Allowed: l.counts.allowed.Load(),
			Limited: l.counts.limited.Load(),
			Delayed: l.counts.delayed.Load(),
			Banned:  l.counts.banned.Load(),
			Granted: l.counts.granted.Load(),
			Exempt:  l.counts.exempt.Load(),
			Stored:  l.store != nil || l.holder != nil,
			Held:    l.counts.inside.Load(),
			Outcomes: weir.Outcomes{
				OK:      l.counts.ended[weir.OK].Load(),
				Ignored: l.counts.ended[weir.Ignore].Load(),
				Dropped: l.counts.ended[weir.Dropped].Load(),
			},
			Failed: l.counts.failed.Load(),
			Missed: l.counts.missed.Load(),
			Lost:   l.counts.lost.Load(),
		}
		if l.table != nil {
			c.Waiting, c.Keys = l.table.Waiting(), l.table.Stats()
		}
		if l.places != nil {
			s := l.places.Stats()
			c.Waiting, c.Held, c.Outcomes, c.Keys = s.Waiting, s.Holding, s.Outcomes, keyed.Stats{Keys: s.Keys, Refused: s.Refused}
		}
		for i := range c.Sources {
			c.Sources[i] = l.counts.sources[i].Load()
		}
		all = append(all, c)
	}
	return all
}

// NoRoute returns how many requests matched no route.
func (e *Engine) NoRoute() uint64 { return e.noRoute.Load() }

// A Request is what is decided about.
type Request struct {
	Method string
	Host   string // as the client sent it, with or without a port
	Path   string // as the client sent it, still escaped, without the query
	Query  string // as the client sent it, without the ?
	Client string // the client's address, from ClientKey
	Header http.Header

	Listener string // the address of the gateway that it came to, as Listen.Gateway says it; empty where that is not known: it fits all routes

	Addr    netip.Addr // the client's address, for exemptions; where it is not valid, Client is taken for it
	Trusted bool       // the request came from a trusted proxy: header fields are believed where a limit exempts by them
	Length  int64      // of the body in bytes; below 0 where it is not known
}
