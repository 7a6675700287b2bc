package policy

import (
	"context"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// An Outcome says whether a request may go on.
type Outcome uint8

// The outcomes.
const (
	Allow   Outcome = iota // it may go on now
	Delay                  // it may go on when Wait returns
	Deny                   // a limit refused it
	NoRoute                // no route matched
	Invalid                // its header field with the cost holds none, or its path is ambiguous: see Match
	// the context ended before a store responded; Err is the context's error, and no known charge
	// remains
	Left
	// the policy denies requests of unknown customers: there is no valid API key or token
	UnknownCustomer
	// whether the request's API key is valid could not be found out: it may be valid later
	UnverifiedCustomer
)

// String returns the outcome's name.
func (o Outcome) String() string {
	return [...]string{"allow", "delay", "deny", "no route", "invalid", "left", "unknown customer", "unverified customer"}[o]
}

// A Verdict is the decision about a request.
type Verdict struct {
	Outcome Outcome
	Route   int    // the index of the route that matched; -1 if none did
	Limit   string // the limit that refused or delayed the request; otherwise empty
	// that limit's key, see DecodeKey; set if Options.Keys is set or several limits were evaluated
	Key string

	// Decision combines the decisions of all limits: it is that of the limit that refused, or of
	// the limit with the least remaining.
	Decision weir.Decision

	Delay time.Duration // how long Wait will take if nobody leaves the queue

	// Err is the error of a store that could not decide. The limit's on_failure decided instead,
	// and Decision.Source says so. Err can also be the error of a charge that no store can carry
	// out, such as a cost beyond what it can count; such a request is refused.
	Err error

	cost       int64      // if a single limit decided
	rare       *rareParts // nil if not needed
	evaluated  []*limit
	order      []int                  // the positions in limits, in the order of the policy
	charges    []keyed.Charge[string] // one for each limit in limits; nil if a single limit decided
	open       []openCost             // which charges have costs that are not known yet; nil for none
	late       *lateCharges           // nil if no cost is known only afterwards
	shared     *sharing               // the charges in stores; nil for none
	keeps      bool                   // all charges are kept until Settle or Cancel of an Answer
	estimates  bool                   // and their true costs are known only then
	overloaded bool                   // an adaptive limit refused
}

// InvalidReason says why the outcome is Invalid, as a text for the client; empty for other outcomes.
func (v *Verdict) InvalidReason() string {
	switch {
	case v.Outcome != Invalid:
		return ""
	case v.Limit == "": // no limit was evaluated
		return "servers read this path in different ways: write it without .., #, encoded slashes and the like"
	}
	return "the cost of this request is not a whole number of at least 1"
}

// Decide evaluates the limits of the first route that matches. It charges all of them or none, and
// returns the outcome.
//
// If a limit is a queue and is busy, the request joins it. The outcome is Delay, and the request
// keeps its place until Wait or Cancel. All other limits are charged when the request joins the
// queue, not when it leaves it.
//
// Limits in memory are charged first, then limits in stores. Limits of one store are charged in one
// atomic step if the store can do that. Several stores are charged one after another. When a store
// refuses, earlier charges are given back at once; in the meantime, they may have caused other
// requests to be refused. A queue in a store is charged after all other limits have admitted the
// request. A place in such a queue is a time, so when a request leaves, the requests behind it do not move
// up.
//
// Shadow limits are evaluated last, and only for requests that all other limits admit. Each shadow
// limit counts what it would have decided if it were enforced. Shadow limits in stores are
// evaluated in the background, so that no request waits for them.
func (e *Engine) Decide(req Request) Verdict { return e.DecideContext(context.Background(), req) }

// DecideContext is like Decide. The context limits how long to wait for stores. Limits in memory
// ignore it.
func (e *Engine) DecideContext(ctx context.Context, req Request) Verdict {
	m := e.Match(req)
	return e.DecideMatch(ctx, &m)
}

// decide decides by the limits of a route, whose index is -1 for limits that were asked for by name.
func (e *Engine) decide(ctx context.Context, r *request, route *route, index int, v *Verdict) {
	*v = Verdict{Route: index, Decision: weir.Decision{Allowed: true}, evaluated: route.live, order: route.order}
	if e.opts.Observer == nil {
		v.decide(ctx, e, r, route)
		return
	}
	var began time.Time
	timed := isTimed()
	if timed {
		began = time.Now()
	}
	if v.decide(ctx, e, r, route); timed {
		e.opts.Observer.Timed(time.Since(began))
	}
	v.observes(e, r)
}

// decide is Engine.decide without the observer.
func (v *Verdict) decide(ctx context.Context, e *Engine, r *request, route *route) {
	places, shadows := route.places, route.shadow
	switch {
	case r.named != nil:
		v.keeps, v.estimates = r.named.keep, r.named.estimates
		v.evaluated, shadows = r.named.forPlans(route.live), r.named.forPlans(shadows)
	case len(route.asks) > 0 || route.readsClaims || route.admits.is() && e.ranks.asks:
		if !r.asked {
			r.lacking, r.asked = e.identify(ctx, r, route), true
		}
		if r.lacking != nil {
			v.refuseUnknown(r.lacking, r.unverified)
			return
		}
		if route.plans {
			v.evaluated, places, shadows = forPlan(route.live, r.who.plan), forPlan(places, r.who.plan), forPlan(shadows, r.who.plan)
		}
	}
	if len(places) > 0 && v.refuseBanned(places, r) || r.named == nil && v.refuseOverload(e, r, &route.admits) {
		return
	}
	var at time.Time
	if route.warns {
		at = time.Now()
	}
	if len(route.live) > 0 && (route.enters() || !v.decideOne(ctx, e, r)) {
		v.decideAll(ctx, e, r, route)
	}
	v.noteOutcome()
	if route.warns && (v.Outcome == Allow || v.Outcome == Delay || v.Outcome == Deny) {
		v.warn(e, r, at)
	}
	if route.enters() && (v.Outcome == Allow || v.Outcome == Delay) {
		v.findPlaces(ctx, r, places)
		if e.opts.Observer != nil {
			v.extra().observed = e
		}
		if v.Outcome != Deny && route.admits.is() {
			v.extra().admits = route.admits
			v.rare.admits.as = e.rank(r, &route.admits)
		}
	}
	if (v.Outcome == Allow || v.Outcome == Delay) && (r.named == nil || !r.named.shadowsLater) {
		v.runShadows(e, r, route, shadows)
	}
	if v.Outcome == Allow && !v.keeps {
		v.conclude()
	}
}

// conclude ends the kept charges of a request that no limit refuses any more and that nobody gives
// up: as long as a charge can be given back, the limiter of its key remembers it. While a body's
// length is unknown, or a place of concurrency has yet to be found, nothing is ended.
func (v *Verdict) conclude() {
	if v.open != nil || v.Holds() && !v.rare.entered {
		return
	}
	for i := range v.charges {
		c := &v.charges[i]
		_ = c.Settle(c.Cost) // what was not kept stays charged, too
	}
}

// decideOne decides by a single limit whose charge need not be remembered. It reports false if the
// general path must decide: with several limits, a body of unknown length, or a busy queue.
func (v *Verdict) decideOne(ctx context.Context, e *Engine, r *request) bool {
	if len(v.evaluated) != 1 || v.keeps {
		return false
	}
	if v.evaluated[0].store != nil {
		return v.decideStored(ctx, e, r)
	}
	if len(v.evaluated[0].Plans) > 0 || v.evaluated[0].zone != nil || v.evaluated[0].opens(r) != openNot {
		return false
	}
	var buf [maxKey]byte
	l := v.evaluated[0]
	key, cost, q := l.keyAndCost(buf[:0], r)
	if q == charged && l.except.now() != nil && l.except.hasParameters(key) {
		return false // response headers show the key's own parameters, and need the key
	}
	if q != charged {
		v.withoutCharge(l, key, q, r)
		return true
	}
	d := keyed.TakeText(l.table, key, cost)
	v.cost = cost
	switch {
	case d.Allowed:
		v.Decision = d
		v.delay(e, l, l.text(key), d, cost)
		l.counts.add(d, v.Delay)
	case l.wait && d.Limit > 1: // with 1, nothing ever waits
		return false
	default:
		v.deny(l, l.text(key), d)
		l.counts.limited.Add(1)
	}
	return true
}

// decideAll decides by all limits of the route together.
func (v *Verdict) decideAll(ctx context.Context, e *Engine, r *request, route *route) {
	if r.named != nil && r.named.ahead != nil {
		v.book(ctx, r.named.ahead, r)
		return
	}
	if r.isDone() {
		v.chargeDone(ctx, e, r)
		return
	}
	v.charges = make([]keyed.Charge[string], len(route.live))
	if !v.evaluate(e, r, v.keeps || len(route.stages) > 0 || route.enters()) {
		return
	}
	if v.charge(e, route); v.Outcome != Deny && len(route.stages) > 0 {
		v.chargeStores(ctx, e, route)
	}
	v.count()
}

// evaluate determines keys and costs. It reports false if that alone decides about the request.
// keep says that a charge in memory may have to be given back.
func (v *Verdict) evaluate(e *Engine, r *request, keep bool) bool {
	var buf [maxKey]byte
	for i, l := range v.evaluated {
		c := &v.charges[i]
		key, cost, q := l.keyAndCost(buf[:0], r)
		switch q {
		case skipped, exempt:
			l.countExempt(q)
			c.Skip = true
		case charged:
			c.Key, c.Cost, c.Wait, c.Keep, c.Spare = l.keyInStore(key, r), cost, l.wait, keep || l.zone != nil, l.spare
			c.Parameters = l.parameters
			if open := l.opens(r); open != openNot {
				v.markOpen(i, open)
			}
			if l.settles() && r.named == nil {
				v.markLate(e, i, key, r)
			}
		default:
			v.settle(l, key, q, r)
			return false
		}
	}
	return true
}

func (v *Verdict) deny(l *limit, key string, d weir.Decision) {
	v.Outcome, v.Limit, v.Key, v.Decision = Deny, l.Name, key, d
}

// charge charges the limits in memory and sets the outcome.
func (v *Verdict) charge(e *Engine, r *route) {
	// an error can only mean a wrong number of charges
	v.Decision, _ = r.group.Take(v.charges[:r.memory])
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
			v.delay(e, l, c.Key, c.Decision, c.Cost)
		}
	}
}

// count counts the outcome once for each evaluated limit. A refusal counts only for the limit that
// refused.
func (v *Verdict) count() {
	for i, l := range v.evaluated {
		c := &v.charges[i]
		switch {
		case c.Skip || v.Outcome == Left || v.Outcome == Deny && l.Name != v.Limit:
			continue
		case v.Outcome == Deny:
			l.counts.limited.Add(1)
		case c.Place != nil || v.shared.delay(i) > 0 || l.fixedDelay(c.Decision, c.Cost) > 0:
			l.counts.delayed.Add(1)
		default:
			l.counts.allowed.Add(1)
		}
		if l.store != nil {
			l.counts.sources[c.Decision.Source].Add(1)
			l.tops.note(c.Key, c.Cost, v.Outcome != Deny)
		}
	}
}

// runShadows evaluates the shadow limits of a route, and counts for unlimited plans.
func (v *Verdict) runShadows(e *Engine, r *request, route *route, shadows []*limit) {
	if route.plans {
		shadows = v.withCounting(shadows, route, r)
	}
	if r.isDone() {
		for _, l := range shadows {
			e.shadowDone(l, r)
		}
		for _, l := range route.dry {
			e.shadowDone(l, r)
		}
		return
	}
	for _, l := range shadows {
		v.shadow(l, e, r)
	}
	if len(route.dry) > 0 {
		v.dryRun(e, r, route)
	}
}

// shadow evaluates a shadow limit, in a state that no other limit uses.
func (v *Verdict) shadow(l *limit, e *Engine, r *request) {
	var buf [maxKey]byte
	key, cost, q := l.keyAndCost(buf[:0], r)
	switch q {
	case missing:
		l.counts.limited.Add(1)
		return
	case skipped, invalidCost, banned, exempt:
		l.countExempt(q)
		return
	}
	if l.store != nil && l.isOfAsk() && r.named != nil && len(r.named.all) == 1 { // it delays nothing else
		v.shadowStoredNow(l, e, r, key, cost)
		return
	}
	if l.store != nil {
		v.shadowStored(l, e, r, key, cost)
		return
	}
	var d weir.Decision
	var delay time.Duration
	if v.estimates || l.settles() && r.named == nil {
		d, delay = v.shadowLate(l, e, r, key, cost)
	} else if l.queues() {
		// The request would have waited. It does not really wait, so its charge is made ahead of
		// time.
		res, _ := l.table.ReserveBy(l.parameters, string(key), cost, -1)
		d, delay = res.Decision(), res.Delay()
		res.Settle(cost) // nothing of it is given back
	} else {
		if len(l.Plans) == 0 {
			d = keyed.TakeText(l.table, key, cost)
		} else {
			d = l.table.TakeBy(l.parameters, string(key), cost)
		}
		delay = l.fixedDelay(d, cost)
	}
	r.noteShadow(l, d)
	observesShadow(l, key, d, cost, delay)
	if l.counts.add(d, delay); !d.Allowed || delay > 0 {
		v.note(l, d, cost, delay)
	}
}

// Wait blocks until a delayed request may go on. If the context ends first, Wait returns the
// context's error, and gives up the request's places and charges like Cancel.
func (v *Verdict) Wait(ctx context.Context) error {
	o := v.observer()
	if o == nil || v.Delay == 0 {
		return v.wait(ctx)
	}
	began := time.Now()
	err := v.wait(ctx)
	o.Queued(v.Limit, time.Since(began))
	return err
}

func (v *Verdict) wait(ctx context.Context) error {
	for i := range v.charges {
		place := v.charges[i].Place
		if place == nil {
			continue
		}
		select {
		case <-place.Ready():
			// the limit was changed, and the request no longer fits
			if err := place.Err(); err != nil {
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
		v.giveUpDelay()
		return err
	}
	v.conclude()
	return nil
}

// Cancel gives back the charges of a delayed request that will not be served. Limits in memory are
// then as if the request had never come. Stores give back as much as they can, within a second. A
// request that could go on at once stays charged.
func (v *Verdict) Cancel() {
	if v.Outcome == Delay || v.open != nil {
		v.giveBack(context.Background())
	}
}

// Evaluated is a limit that was evaluated for a request, for response headers.
type Evaluated struct {
	Name     string
	Limit    int64         // like Decision.Limit
	Window   time.Duration // the time until all of Limit is available again
	Decision weir.Decision
	Warned   int64 // from the limit's WarnAt on, how much of the limit is used, in percent; else 0
}

// IsOver reports whether the verdict is a refusal by the only limit, in memory: nothing goes on after it that
// keeps the verdict or the request. Stores may do so.
func (v *Verdict) IsOver() bool {
	return v.Outcome == Deny && v.rare == nil && v.charges == nil && v.shared == nil && v.late == nil &&
		len(v.evaluated) == 1 && v.evaluated[0].store == nil
}

// Evaluated returns the evaluated limits in the order of the route, without shadow limits.
func (v *Verdict) Evaluated() []Evaluated {
	return v.AppendEvaluated(make([]Evaluated, 0, len(v.evaluated)))
}

// AppendEvaluated appends what Evaluated returns.
func (v *Verdict) AppendEvaluated(all []Evaluated) []Evaluated {
	for _, i := range v.order[:len(v.evaluated)] {
		l := v.evaluated[i]
		d, window := v.Decision, l.window // without charges, there is only one limit
		if v.charges != nil {
			if v.charges[i].Skip {
				continue
			}
			d = v.charges[i].Decision
			window = l.except.window(v.charges[i].Key, window)
		}
		if d.Limit > 0 {
			_, used := l.warned(&d)
			all = append(all, Evaluated{l.Name, d.Limit, window, d, used})
		}
	}
	return all
}
