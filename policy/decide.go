package policy

import (
	"context"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// An Outcome is what becomes of a request.
type Outcome uint8

// The outcomes.
const (
	Allow   Outcome = iota // it may go now
	Delay                  // it may go when Wait returns
	Deny                   // a limit refused it
	NoRoute                // no route matched
	Invalid                // a header field that holds the cost does not hold one
	Left                   // the context ended before a store had answered: Err says how, and nothing is charged that is known of
)

// String returns the outcome's name.
func (o Outcome) String() string {
	return [...]string{"allow", "delay", "deny", "no route", "invalid", "left"}[o]
}

// A Verdict is the answer to a request.
type Verdict struct {
	Outcome Outcome
	Route   int    // the index of the route that matched; -1 where none did
	Limit   string // the limit that refused or delayed it; empty otherwise
	Key     string // that limit's key for the request, see DecodeKey; where Options.Keys is set, or several limits were asked

	// Decision is that of the limits together: of the one that refused, or of the one with the least remaining.
	Decision weir.Decision

	Delay time.Duration // how long Wait is to take, if nobody leaves the line

	// Err is what a store said that did not decide: then the limit's on_failure did, and Decision.Source says so. It is also what was wrong with
	// a charge that a store cannot carry out, as of a cost beyond what it can count: that one is refused.
	Err error

	cost      int64 // where one limit decided
	rare      *rare // nil for nothing of it
	evaluated []*limit
	order     []int                  // the places in asked, in the order of the policy
	charges   []keyed.Charge[string] // one for each asked; nil where one decided
	open      []bool                 // which of them are for a length that is not known yet; nil for none
	shared    *sharing               // what is in stores; nil for nothing
}

// Decide asks the limits of the first route that matches, charges all of them or none, and says what becomes of the request.
//
// A limit that is a queue is joined where it is busy: the outcome is Delay, and the request's place is held until Wait or Cancel. All
// other limits are charged when the request is accepted into the queue, not when it leaves it.
//
// Limits in memory are charged first, and then those in stores: those of one store in one step, where it can do that, and one store after
// another. When one refuses, what was charged before is given back at once; others may have been refused for it meanwhile. A queue in a store is
// charged when all others have admitted the request, and its place is a time: a request that leaves does not move up those behind.
//
// Shadow limits are evaluated last, and only for requests that the others admit: each counts what it would have counted beside them. Those in
// stores are evaluated in the background: no request waits for them.
func (e *Engine) Decide(req Request) Verdict { return e.DecideContext(context.Background(), req) }

// DecideContext is Decide with a context, that bounds how long stores are waited for. Limits in memory do not look at it.
func (e *Engine) DecideContext(ctx context.Context, req Request) Verdict {
	m := e.Match(req)
	return e.DecideMatch(ctx, &m)
}

func (e *Engine) decide(ctx context.Context, r *request, index int) Verdict {
	route := &e.routes[index]
	v := Verdict{Route: index, Decision: weir.Decision{Allowed: true}, evaluated: route.live, order: route.order}
	if len(route.places) > 0 && v.bannedFrom(route.places, r) {
		return v
	}
	if len(route.live) > 0 && (len(route.places) > 0 || !v.one(ctx, e, r)) {
		v.all(ctx, e, r, route)
	}
	v.noteOutcome()
	if len(route.places) > 0 && (v.Outcome == Allow || v.Outcome == Delay) {
		v.openDoors(ctx, r, route.places)
	}
	if v.Outcome == Allow || v.Outcome == Delay {
		for _, l := range route.shadow {
			v.shadow(l, e, r)
		}
		if len(route.dry) > 0 {
			v.dryRun(r, route)
		}
	}
	return v
}

// one decides by a single limit where nothing of its charge has to be held on to: there are no charges then. It reports false where all
// has to decide: for several limits, for a length that is not known yet, and for a queue that is busy.
func (v *Verdict) one(ctx context.Context, e *Engine, r *request) bool {
	if len(v.evaluated) != 1 {
		return false
	}
	if v.evaluated[0].store != nil {
		return v.stored(ctx, e, r)
	}
	if v.evaluated[0].zone != nil || v.evaluated[0].cost.open(r) {
		return false
	}
	var buf [maxKey]byte
	l := v.evaluated[0]
	key, cost, q := l.question(buf[:0], r)
	if q == asks && l.except.now() != nil && l.except.sets(key) {
		return false // response headers show the key's own parameters, and need the key
	}
	switch q {
	case asks:
		d := keyed.TakeText(l.table, key, cost)
		v.cost = cost
		switch {
		case d.Allowed:
			v.Decision = d
			v.holdBack(e, l, l.text(key), d, cost)
			l.counts.add(d, v.Delay)
		case l.wait:
			return false
		default:
			v.deny(l, l.text(key), d)
			l.counts.limited.Add(1)
		}
	case skip, exempt:
		l.passes(q)
		v.evaluated = nil
	default:
		v.settle(l, key, q, r)
	}
	return true
}

// all decides by the limits together.
func (v *Verdict) all(ctx context.Context, e *Engine, r *request, route *route) {
	v.charges = make([]keyed.Charge[string], len(route.live))
	if !v.ask(r, len(route.stages) > 0 || len(route.places) > 0) {
		return
	}
	if v.charge(e, route); v.Outcome != Deny && len(route.stages) > 0 {
		v.chargeStores(ctx, e, route)
	}
	v.count()
}

// ask works out keys and costs. It reports false where that alone settles the matter. keep says that what is charged in memory may have to be
// given back.
func (v *Verdict) ask(r *request, keep bool) bool {
	var buf [maxKey]byte
	for i, l := range v.evaluated {
		c := &v.charges[i]
		key, cost, q := l.question(buf[:0], r)
		switch q {
		case skip, exempt:
			l.passes(q)
			c.Skip = true
		case asks:
			c.Key, c.Cost, c.Wait, c.Keep, c.Spare = l.placed(key, r), cost, l.wait, keep || l.zone != nil, l.spare
			if l.cost.open(r) {
				v.opens(i)
			}
		default:
			v.settle(l, key, q, r)
			return false
		}
	}
	return true
}

// question is what a limit is to be asked about a request, or why it is not asked.
type question uint8

const (
	asks   question = iota
	skip            // a part of the key is missing, and the limit does not apply then
	lacks           // a part of the key is missing, and the request is refused then
	cheat           // the header field that is to hold the cost holds none
	banned          // the key is, for as long as the request says
	exempt          // the limit does not apply to the request
)

// passes counts a request that the limit does not apply to.
func (l *limit) passes(q question) {
	if q == exempt && !l.isRest() {
		l.counts.exempt.Add(1)
	}
}

// question works out a limit's key and cost for a request.
func (l *limit) question(buf []byte, r *request) (key []byte, cost int64, q question) {
	key, present, empty := l.key(buf, r)
	free := l.exempt.has(key, r)
	switch {
	case free: // but for a ban, which is a decision of the moment
	case empty && l.OnMissing == "skip_empty", !present && l.OnMissing == "skip":
		return key, 0, skip
	case !present && l.OnMissing == "deny":
		return key, 0, lacks
	}
	if all := l.except.now(); all != nil {
		if q = l.ruled(all, key, r); q != asks {
			return key, 0, q
		}
	}
	if free {
		return key, 0, exempt
	}
	if l.share != nil && !l.share.has(l.Name, key) {
		return key, 0, skip
	}
	cost, ok := l.cost.of(r)
	if !ok {
		return key, 0, cheat
	}
	return key, cost, asks
}

// key makes a limit's key for a request. present is false where a part is missing; empty is true where all of them are, or have no value.
func (l *limit) key(buf []byte, r *request) (key []byte, present, empty bool) {
	present, empty = true, len(l.parts) > 0
	for i, p := range l.parts {
		value, ok := p.value(r)
		present, empty = present && ok, empty && value == ""
		buf = appendKey(buf, value)
		if ok && l.presence != nil {
			l.presence.note(i)
		}
	}
	if l.presence != nil {
		l.presence.asked.Store(true)
	}
	return seal(buf), present, empty
}

// settle refuses a request without evaluating the limit.
func (v *Verdict) settle(l *limit, key []byte, q question, r *request) {
	if q == banned {
		v.deny(l, l.text(key), weir.Decision{RetryAfter: r.banned, ResetAfter: r.banned, By: l.banBy})
		l.counts.banned.Add(1)
		return
	}
	v.deny(l, l.text(key), weir.Decision{RetryAfter: weir.Never, By: l.Name})
	if q == cheat {
		v.Outcome = Invalid
		return
	}
	l.counts.limited.Add(1)
}

// text is a key that outlives the request, where verdicts carry it.
func (l *limit) text(key []byte) string {
	if !l.keepsKey {
		return ""
	}
	return string(key)
}

func (v *Verdict) deny(l *limit, key string, d weir.Decision) {
	v.Outcome, v.Limit, v.Key, v.Decision = Deny, l.Name, key, d
}

// opens notes that the cost of a charge is not known yet.
func (v *Verdict) opens(i int) {
	if v.open == nil {
		v.open = make([]bool, len(v.charges))
	}
	v.open[i], v.charges[i].Keep = true, true
}

// charge asks the limits in memory and sets the outcome.
func (v *Verdict) charge(e *Engine, r *route) {
	v.Decision, _ = r.group.Take(v.charges[:r.memory]) // the error is for a number of charges that is not the group's
	ownNames(&v.Decision, v.evaluated[:r.memory], v.charges)
	for i, l := range v.evaluated[:r.memory] {
		c := &v.charges[i]
		switch {
		case c.Skip:
		case !v.Decision.Allowed && l.Name == v.Decision.By:
			v.deny(l, c.Key, v.Decision)
		case c.Place != nil && c.Place.Delay() > v.Delay:
			v.Outcome, v.Limit, v.Key, v.Delay = Delay, l.Name, c.Key, c.Place.Delay()
		case v.Decision.Allowed:
			v.holdBack(e, l, c.Key, c.Decision, c.Cost)
		}
	}
}

// count counts the outcome once for each evaluated limit, and a refusal only for the limit that refused.
func (v *Verdict) count() {
	for i, l := range v.evaluated {
		c := &v.charges[i]
		switch {
		case c.Skip || v.Outcome == Left || v.Outcome == Deny && l.Name != v.Limit:
			continue
		case v.Outcome == Deny:
			l.counts.limited.Add(1)
		case c.Place != nil || v.shared.delay(i) > 0 || l.held(c.Decision, c.Cost) > 0:
			l.counts.delayed.Add(1)
		default:
			l.counts.allowed.Add(1)
		}
		if l.store != nil {
			l.counts.sources[c.Decision.Source].Add(1)
		}
	}
}

// shadow decides in a limit's own state, which nothing else looks at.
func (v *Verdict) shadow(l *limit, e *Engine, r *request) {
	var buf [maxKey]byte
	key, cost, q := l.question(buf[:0], r)
	switch q {
	case lacks:
		l.counts.limited.Add(1)
		return
	case skip, cheat, banned, exempt:
		l.passes(q)
		return
	}
	if l.store != nil {
		e.shadows.ask(l, string(key), cost)
		return
	}
	var d weir.Decision
	var delay time.Duration
	if l.queues() {
		// It would have waited: as nobody really waits, its charge is made ahead.
		res, _ := l.table.Reserve(string(key), cost, -1)
		d, delay = res.Decision(), res.Delay()
	} else {
		d = keyed.TakeText(l.table, key, cost)
		delay = l.held(d, cost)
	}
	if l.counts.add(d, delay); !d.Allowed || delay > 0 {
		v.note(l, d, cost, delay)
	}
}

// held is how long a request is held back that was charged when it came, for a limit that fixes the delay then.
func (l *limit) held(d weir.Decision, cost int64) time.Duration {
	if of, ok := l.Limit.Limit.(weir.NginxBucket); ok {
		return of.Delay(d, cost)
	}
	if l.zone == nil || !d.Allowed {
		return 0
	}
	return l.inZone.ZoneDelay(d.ResetAfter, cost)
}

// add counts a decision.
func (c *counts) add(d weir.Decision, delay time.Duration) {
	switch {
	case !d.Allowed:
		c.limited.Add(1)
	case delay > 0:
		c.delayed.Add(1)
	default:
		c.allowed.Add(1)
	}
}

// Wait holds the caller until a delayed request may go. When the context ends first it returns the context's error, and the request's
// places are given up and its charges given back as by Cancel.
func (v *Verdict) Wait(ctx context.Context) error {
	for i := range v.charges {
		place := v.charges[i].Place
		if place == nil {
			continue
		}
		select {
		case <-place.Ready():
			if err := place.Err(); err != nil { // the limit was changed, and it does not fit any more
				v.Cancel()
				return err
			}
		case <-ctx.Done():
			if place.Leave() {
				v.Cancel()
				return ctx.Err()
			}
		}
	}
	if err := v.shared.sleep(ctx); err != nil {
		v.Cancel()
		return err
	}
	if err := v.rare.sleep(ctx); err != nil {
		v.letGo()
		return err
	}
	return nil
}

// Cancel gives back what was charged for a request that is delayed and will not be served: the limits in memory are then as if it had never come,
// and stores give back as much as they can, within a second. A request that could go at once stays charged.
func (v *Verdict) Cancel() {
	if v.Outcome == Delay || v.open != nil {
		v.giveBack(context.Background())
	}
}

// SettleBytes tells the limits whose cost is in bytes how long a body was whose length was not known, once it has been read. Stores have a
// second to hear of it.
func (v *Verdict) SettleBytes(n int64) {
	for i, open := range v.open {
		if open {
			_ = v.charges[i].Settle(n) // opens has had it kept
		}
	}
	v.settleStores(context.Background(), func(i int) (int64, bool) { return n, v.open != nil && v.open[i] })
}

// CountsBytes reports whether SettleBytes has somebody to tell.
func (v *Verdict) CountsBytes() bool {
	return v.open != nil && (v.Outcome == Allow || v.Outcome == Delay)
}

// Evaluated is one limit that was evaluated for a request, for response headers.
type Evaluated struct {
	Name     string
	Limit    int64         // as Decision.Limit
	Window   time.Duration // the time until all of Limit is back
	Decision weir.Decision
}

// Evaluated returns the evaluated limits, in the order of the route, without shadow limits.
func (v *Verdict) Evaluated() []Evaluated {
	all := make([]Evaluated, 0, len(v.evaluated))
	for _, i := range v.order[:len(v.evaluated)] {
		l := v.evaluated[i]
		d, window := v.Decision, l.window // of the only one, where there are no charges
		if v.charges != nil {
			if v.charges[i].Skip {
				continue
			}
			d = v.charges[i].Decision
			window = l.except.window(v.charges[i].Key, window)
		}
		if d.Limit > 0 {
			all = append(all, Evaluated{l.Name, d.Limit, window, d})
		}
	}
	return all
}
