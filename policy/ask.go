package policy

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirflow/weir"
)

// An Answer is the decision about the limits that Asks name.
type Answer struct {
	Allowed bool

	// Decision is that of the limit that refused, or of the limit with the least remaining.
	Decision weir.Decision
	Limit    string        // the limit that refused; empty if none did
	Delay    time.Duration // how long the caller delays the work: a reservation, or an algorithm that delays
	Each     []Answered    // in the order of the Asks

	// Err is the error of a store that could not decide: the limit's on_failure decided instead.
	Err error

	verdicts []layer
	entries  []entry
	one      struct { // memory for the first entry
		entries [1]entry
		asks    [1]int
	}
	booked *booking // a charge ahead of its time; nil for none
	kept   bool

	ending sync.Mutex // held while the reservation is being ended
	ended  bool
	once   string // begins the names of its settlements in stores
}

// Errors of Answer.Settle, Cancel and Keep. errors.Is finds them.
var (
	// ErrUnsettled means that a store is unavailable: the reservation is still open, and can be settled
	// later.
	ErrUnsettled = errors.New("the store is unavailable: the reservation is still open")
	// ErrEnded means that there is nothing to settle: the reservation was settled or cancelled before, or
	// nothing was reserved.
	ErrEnded = errors.New("there is no reservation to settle, or it was settled before")
)

// An Answered is the decision about one Ask.
type Answered struct {
	Limit    string
	Key      []string // as requests have it: addresses and hosts in their normal form
	Cost     int64
	Plan     string
	Window   time.Duration // until all of the limit is available again
	Decision weir.Decision // of this limit alone; after Settle and Cancel with what is left then
	// the limit does not apply: by an exemption, a grant, the plan, or a roll_out. Decision has what an unused
	// key has left, and a Limit of 0 for a plan that is unlimited
	Exempt bool
	Shadow bool // the limit is a shadow: decided and counted, and not enforced
	// the limit has decided; false if another one had refused before, for Exempt, and for a shadow in a store
	// that decides in the background, beside other limits
	Evaluated bool
	Warned    int64 // as in Evaluated
}

// A layer is the entries that one call charges: at most one for each state table.
type layer struct {
	v       Verdict
	route   *route // of these entries alone
	index   []int  // by position in v.evaluated: the position of the entry
	entries []int  // the positions of all its entries
	request *request
}

// Take charges all asks or none. Work is admitted only if it may go at once: a busy queue refuses.
//
// Asks for the same key of a limit are one charge, of the sum of their costs. Asks for several keys of
// one limit are charged one after another, and given back if a later one refuses: in the meantime, they
// may have caused other requests to be refused. Shadow limits are evaluated as for requests.
//
// RetryAfter of the answer's Decision is that of the whole call. Limits after the one that refused are
// peeked at for it, but those in stores only if a limit in a store refused: one in memory keeps stores
// from being called.
//
// The error is an *AskError, or that of a context that ended before a store responded.
func (e *Engine) Take(ctx context.Context, asks []Ask) (*Answer, error) {
	return e.ask(ctx, asks, false)
}

// Reserve is like Take, for work whose cost is settled later: the charges stay outstanding until
// Settle or Cancel of the Answer. A single ask may be charged ahead of its time if the delay is at most
// within; below 0, any delay is accepted. Several asks are charged only if the work may go at once.
func (e *Engine) Reserve(ctx context.Context, asks []Ask, within time.Duration) (*Answer, error) {
	if len(asks) != 1 || within == 0 {
		return e.ask(ctx, asks, true)
	}
	e, in := e.enter()
	defer in.leave()
	all, err := e.check(asks)
	if err != nil {
		return nil, err
	}
	l := all[0].limit
	if l.zone != nil || l.Shadow || !l.books() {
		return e.askAll(ctx, all, true)
	}
	return e.reserveAhead(ctx, all[0], within)
}

// Check returns the error that Take, Peek and Reserve of these asks would return before they charge
// anything: an *AskError, or nil.
func (e *Engine) Check(asks []Ask) error {
	_, err := e.check(asks)
	return err
}

func (e *Engine) ask(ctx context.Context, asks []Ask, keep bool) (*Answer, error) {
	e, in := e.enter()
	defer in.leave()
	all, err := e.check(asks)
	if err != nil {
		return nil, err
	}
	return e.askAll(ctx, all, keep)
}

func (e *Engine) askAll(ctx context.Context, all []*namedAsk, keep bool) (*Answer, error) {
	a := newAnswer(all)
	a.combine(all)
	a.kept = keep
	if len(a.entries) == 1 {
		return a, a.decideAlone(ctx, e, &namedAsks{keep: keep, estimates: keep})
	}
	layers, last := layersOf(a.entries)
	for i, index := range layers {
		some := make([]*namedAsk, len(index))
		limits := make([]*limit, len(index))
		for k, at := range index {
			some[k], limits[k] = a.entries[at].namedAsk, a.entries[at].limit
		}
		r := new(route)
		if err := e.compileLimits(r, limits); err != nil {
			return nil, err // cannot happen: the tables of a layer differ
		}
		req := &request{named: &namedAsks{all: some, keep: keep || len(layers) > 1, estimates: keep, shadowsLater: i < last}}
		a.verdicts = append(a.verdicts, layer{v: e.decideNamed(ctx, req, r), route: r, request: req})
		if err := a.join(&a.verdicts[len(a.verdicts)-1], some, index); err != nil || !a.Allowed {
			a.giveBack(ctx)
			if err == nil {
				e.retryOfAll(ctx, a)
			}
			return a, err
		}
	}
	for i := range a.verdicts {
		of := &a.verdicts[i]
		if named := of.request.named; named.shadowsLater {
			of.v.runShadows(e, of.request, of.route, named.forPlans(of.route.shadow))
		}
		if of.request = nil; !keep {
			of.v.conclude()
		}
	}
	a.withoutEnforced()
	return a, nil
}

// withoutEnforced makes the figures of the answer those of the limit with the least left, if no limit was
// enforced that has any.
func (a *Answer) withoutEnforced() {
	if !a.Allowed || a.Decision.Limit > 0 {
		return
	}
	for i := range a.Each {
		d := &a.Each[i].Decision
		if d.Limit > 0 && (a.Decision.Limit == 0 || d.Remaining < a.Decision.Remaining) {
			a.Decision.Limit, a.Decision.Remaining, a.Decision.ResetAfter = d.Limit, d.Remaining, d.ResetAfter
			a.Decision.By, a.Decision.Source = d.By, d.Source
		}
	}
}

// decideAlone evaluates the limit of a single entry.
func (a *Answer) decideAlone(ctx context.Context, e *Engine, named *namedAsks) error {
	named.all = []*namedAsk{a.entries[0].namedAsk}
	r := e.alone[a.entries[0].limit.Name]
	a.verdicts = []layer{{v: e.decideNamed(ctx, &request{named: named}, r), route: r}}
	err := a.join(&a.verdicts[0], named.all, []int{0})
	a.withoutEnforced()
	return err
}

func (e *Engine) decideNamed(ctx context.Context, req *request, r *route) (v Verdict) {
	e.decide(ctx, req, r, -1, &v)
	if v.Outcome == Delay && !req.named.keep {
		v.conclude() // the caller delays the work, and does not give it up
	}
	return v
}

// layersOf sorts the positions of entries into layers, so that each layer charges a state table once.
// Shadow limits come last: they are evaluated only for work that the others admit. last is the last layer
// that may refuse.
func layersOf(all []entry) (layers [][]int, last int) {
	same := func(at, other int) bool {
		a, b := all[at].limit, all[other].limit
		return a == b || a.table != nil && a.table == b.table
	}
	for _, shadows := range []bool{false, true} {
		for i := range all {
			if all[i].limit.Shadow != shadows {
				continue
			}
			at := last
			for at < len(layers) && slices.ContainsFunc(layers[at], func(other int) bool { return same(i, other) }) {
				at++
			}
			if at == len(layers) {
				layers = append(layers, nil)
			}
			layers[at] = append(layers[at], i)
		}
		if !shadows {
			last = max(len(layers)-1, 0)
		}
	}
	return layers, last
}

// answered returns what is known of an ask before its limit is evaluated.
func (n *namedAsk) answered() Answered {
	l := n.limit.of(n.plan)
	return Answered{Limit: l.Name, Key: n.parts, Cost: n.cost, Plan: n.plan, Window: l.window, Shadow: l.Shadow, Decision: weir.Decision{Allowed: true, By: l.Name}}
}

// unused is the decision about a key that the limit does not apply to.
func (n *namedAsk) unused() weir.Decision {
	l := n.limit.of(n.plan)
	d := weir.Decision{Allowed: true, By: l.Name}
	if p, err := weir.Prepare(l.Limit.Limit, time.Microsecond); err == nil && !l.unlimited {
		d.Limit = p.Peek(nil, 0, 0).Limit
		d.Remaining = d.Limit
	}
	return d
}

// join adds the verdict of a layer to the answer. index has the positions of its entries.
func (a *Answer) join(of *layer, some []*namedAsk, index []int) error {
	v := &of.v
	if v.Err != nil {
		a.Err = v.Err
	}
	if v.Outcome == Left {
		a.Allowed = false
		return v.Err
	}
	for i, n := range some {
		for _, at := range a.entries[index[i]].asks {
			each := &a.Each[at]
			if each.Exempt = n.applied == skipped || n.applied == exempt; each.Exempt {
				each.Decision = n.unused()
			} else if n.shadowed != (weir.Decision{}) {
				each.Decision, each.Evaluated = n.shadowed, true
			}
		}
	}
	of.entries, of.index = index, make([]int, len(v.evaluated))
	for i, l := range v.evaluated {
		k := slices.IndexFunc(some, func(n *namedAsk) bool { return n.limit.Name == l.Name })
		of.index[i] = index[k]
		for _, at := range a.entries[index[k]].asks {
			each := &a.Each[at]
			switch {
			case v.charges == nil:
				each.Decision, each.Evaluated = v.Decision, true
			case !v.charges[i].Skip && v.charges[i].Decision != (weir.Decision{}): // another limit may have decided before
				each.Decision, each.Evaluated = v.charges[i].Decision, true
				each.Window = l.except.window(v.charges[i].Key, l.window)
			}
			if d := each.Decision; d.Allowed {
				_, each.Warned = l.warned(&d)
			}
		}
	}
	if a.Delay = max(a.Delay, v.Delay); v.Outcome == Deny {
		a.Allowed, a.Limit, a.Decision, a.Delay = false, v.Limit, v.Decision, 0
		for i, n := range some { // a ban decides without an evaluation
			if n.limit.Name == v.Limit {
				for _, at := range a.entries[index[i]].asks {
					a.Each[at].Decision, a.Each[at].Evaluated = v.Decision, true
				}
			}
		}
	} else if a.Decision.Limit == 0 || v.Decision.Limit > 0 && v.Decision.Remaining < a.Decision.Remaining {
		a.Decision = v.Decision
	}
	return nil
}

// Banned reports whether a ban refused the work.
func (a *Answer) Banned() bool { return !a.Allowed && strings.HasSuffix(a.Decision.By, banName) }

// Events returns the events of limits with a Log.
func (a *Answer) Events() (all []Event) {
	for i := range a.verdicts {
		all = append(all, a.verdicts[i].v.Events()...)
	}
	return all
}

// Evaluated returns the limits that were evaluated, for response headers, each once: with the decision
// about the key that refused, or that has the least left.
func (a *Answer) Evaluated() (all []Evaluated) {
	for i := range a.Each {
		x := &a.Each[i]
		if x.Shadow || x.Exempt || x.Decision.Limit <= 0 {
			continue
		}
		of := Evaluated{x.Limit, x.Decision.Limit, x.Window, x.Decision, x.Warned}
		at := slices.IndexFunc(all, func(o Evaluated) bool { return o.Name == x.Limit })
		switch {
		case at < 0:
			all = append(all, of)
		case tighter(x.Decision, all[at].Decision):
			all[at] = of
		}
	}
	return all
}

// tighter reports whether a is the one of two decisions of a limit that the client must obey.
func tighter(a, b weir.Decision) bool {
	switch {
	case a.Allowed != b.Allowed:
		return b.Allowed
	case !a.Allowed:
		return longer(a.RetryAfter, b.RetryAfter)
	}
	return a.Remaining < b.Remaining
}

// Settle replaces the costs of a reservation by the actual ones, in the order of the asks. The first
// Settle or Cancel that succeeds counts, and later ones return ErrEnded. Settling in stores takes a second
// at most.
//
// While a store is unavailable, Settle returns ErrUnsettled. It can then be repeated for as long as repeat
// said at the first call, and each charge is settled once: a settlement that has reached a store although
// its reply was lost counts, with the cost that it had. With a repeat of 0, each call ends the reservation,
// and what could not be settled stays charged.
//
// With an error in which errors.Is finds weir.ErrExpired, the reservation is ended, but a store remembered
// a charge of it no longer: that one stays as it was.
func (a *Answer) Settle(ctx context.Context, actual []int64, repeat time.Duration) error {
	if !a.kept || !a.Allowed || len(actual) != len(a.Each) {
		return ErrEnded
	}
	a.ending.Lock()
	defer a.ending.Unlock()
	if a.ended {
		return ErrEnded
	}
	if a.once == "" && repeat > 0 {
		a.once = rand.Text()
	}
	err := a.settleStores(ctx, actual, repeat)
	if errors.Is(err, ErrUnsettled) && repeat > 0 {
		return err
	}
	a.ended = true
	a.settleShadows(actual)
	if a.booked != nil {
		return err
	}
	for i := range a.verdicts {
		of := &a.verdicts[i]
		for k := range of.v.charges {
			_ = of.v.charges[k].Settle(a.sum(of.index[k], actual)) // those in stores are settled; a skipped one has nothing to settle
		}
	}
	a.look(a.verdicts)
	return err
}

// settleShadows settles the charges of shadow limits and of what counts for unlimited plans: those in stores
// in the background. What cannot be settled stays charged.
func (a *Answer) settleShadows(actual []int64) {
	for i := range a.verdicts {
		of := &a.verdicts[i]
		if of.v.late == nil {
			continue
		}
		for _, s := range of.v.late.shadows {
			at := slices.IndexFunc(of.entries, func(at int) bool { return a.entries[at].limit.Name == s.l.Name })
			s.settle(a.sum(of.entries[at], actual))
		}
		of.v.late.shadows = nil
	}
}

// settleStores settles the charges in stores that are not settled yet, and a charge ahead of its time.
func (a *Answer) settleStores(ctx context.Context, actual []int64, repeat time.Duration) error {
	if a.booked != nil {
		left, err := a.booked.settle(ctx, actual[0], settlement{a.once, repeat})
		a.Each[0].leave(left)
		return err
	}
	var failed error
	for i := range a.verdicts {
		of := &a.verdicts[i]
		if of.v.shared == nil {
			continue
		}
		of.v.shared.settling = settlement{a.once + "." + strconv.Itoa(i), repeat}
		err := of.v.settleStores(ctx, func(k int) (int64, bool) { return a.sum(of.index[k], actual), true })
		failed = worse(failed, err)
	}
	return failed
}

// Cancel gives back what a reservation has charged, as far as that cannot admit too much. It ends the
// reservation, as Settle with a repeat of 0.
func (a *Answer) Cancel(ctx context.Context) error {
	return a.Settle(ctx, make([]int64, len(a.Each)), 0)
}

// Keep ends a reservation whose costs stay as they were reserved.
func (a *Answer) Keep(ctx context.Context) error {
	costs := make([]int64, len(a.Each))
	for i := range a.Each {
		costs[i] = a.Each[i].Cost
	}
	return a.Settle(ctx, costs, 0)
}

// giveBack gives back the layers before the one that refused.
func (a *Answer) giveBack(ctx context.Context) {
	before := a.verdicts[:len(a.verdicts)-1]
	for i := range before {
		before[i].v.giveBack(ctx)
	}
	a.look(before)
	if a.Limit != "" {
		for _, at := range a.verdicts[len(before)].index {
			if x := &a.Each[a.entries[at].asks[0]]; x.Limit == a.Limit && !x.Decision.Allowed {
				a.Decision.Remaining, a.Decision.ResetAfter = x.Decision.Remaining, x.Decision.ResetAfter
			}
		}
	}
}

// look updates what is left of each limit after the charges of some layers were settled or given
// back. Stores have returned it by then; limits in memory are peeked at.
func (a *Answer) look(settled []layer) {
	type state struct{ limit, key string }
	left := map[state]weir.Decision{}
	for i := range settled {
		of := &settled[i]
		for k := range of.v.charges {
			of.v.charges[k].Keep = false // this look is no reservation, and needs no room for one
		}
		if of.v.charges != nil {
			_, _ = of.route.group.Peek(of.v.charges[:of.route.memory]) // an error can only mean a wrong number of charges
		}
		for k, l := range of.v.evaluated {
			if of.v.charges != nil && !of.v.charges[k].Skip {
				left[state{l.Name, of.v.charges[k].Key}] = of.v.charges[k].Decision
			}
		}
	}
	for i := range a.verdicts {
		of := &a.verdicts[i]
		for k := range of.v.charges {
			if d, ok := left[state{of.v.evaluated[k].Name, of.v.charges[k].Key}]; ok && !of.v.charges[k].Skip {
				for _, at := range a.entries[of.index[k]].asks {
					a.Each[at].leave(d)
				}
			}
		}
	}
}

// leave updates what is left, and keeps the decision.
func (x *Answered) leave(d weir.Decision) {
	if d.Limit > 0 {
		x.Decision.Remaining, x.Decision.ResetAfter = d.Remaining, d.ResetAfter
	}
}
