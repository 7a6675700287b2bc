package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirflow/weir"
)

// An Ask names a limit of the policy and a key of it. With it, callers that have no HTTP request use
// the same limits as routes do: the same counters, overrides, plans and shadow limits.
type Ask struct {
	Limit string
	Key   []string // the parts, in the order of the limit's key
	Cost  int64
	// in place of Cost: the limit's own cost, or 1 if the policy reads it from requests
	OwnCost bool
	// the customer's plan, one of the policy; default: the plan of the customer in the key, or Plans.Default
	Plan string
}

// MaxAsks limits how many limits one call names.
const MaxAsks = 256

// An AskError says what is wrong with an Ask. Nothing was charged.
type AskError struct {
	Index   int    // the position among the asks
	Field   string // "limit", "key", "cost" or "plan"; empty if there are too many asks, or none
	Problem string
	Fix     string // what to write instead
	Unknown bool   // the policy has no limit of that name
}

// Error returns the problem and its fix.
func (e *AskError) Error() string {
	text := "weir: "
	if e.Field != "" {
		text += e.Field + ": "
	}
	return text + e.Problem + ": " + e.Fix
}

// Is makes errors.Is find weir.ErrCost in the error about a negative cost.
func (e *AskError) Is(target error) bool { return target == weir.ErrCost && e.Field == "cost" }

// namedAsks are the asks that one call of decide evaluates, each for another limit.
type namedAsks struct {
	all       []*namedAsk
	keep      bool
	estimates bool     // the true costs are known only afterwards
	peek      bool     // nothing is charged or counted
	done      bool     // the work is done: its cost is charged whatever is left
	ahead     *booking // the charge of a single limit ahead of its time; nil for none
	// a later layer of the call may still refuse: its shadow limits are evaluated once all have admitted
	shadowsLater bool
}

// namedAsk is an Ask that was checked.
type namedAsk struct {
	limit   *limit
	parts   []string
	cost    int64
	plan    string
	client  string // the part of the key that is an address; empty for none
	applied applicability
	// what the limit has decided as a shadow; zero for one in a store that decides in the background
	shadowed weir.Decision
}

// of returns the ask of a limit. A limit with a roll_out and its shadow have the same name.
func (n *namedAsks) of(l *limit) *namedAsk {
	for _, a := range n.all {
		if a.limit.Name == l.Name {
			return a
		}
	}
	return nil
}

// noteShadow records what a shadow limit has decided about an ask.
func (r *request) noteShadow(l *limit, d weir.Decision) {
	if r.named != nil && l.isOfAsk() {
		d.By = l.Name
		r.named.of(l).shadowed = d
	}
}

// isOfAsk reports whether answers are about the limit: callers have not named the shadow of a limit with a
// roll_out, nor what counts for an unlimited plan.
func (l *limit) isOfAsk() bool { return !l.isRest() && !l.onlyCounts }

// forPlans returns each limit with the parameters of its ask's plan. These calls never wait in a
// queue: callers that can wait use Reserve.
func (n *namedAsks) forPlans(limits []*limit) []*limit {
	var changed []*limit
	for i, l := range limits {
		of := l.of(n.of(l).plan)
		if of.wait {
			copied := *of
			copied.wait = false
			of = &copied
		}
		if of == l {
			continue
		}
		if changed == nil {
			changed = append(changed, limits...)
		}
		changed[i] = of
	}
	if changed != nil {
		return changed
	}
	return limits
}

// value returns the value of one part of the limit's key: of the request, or as the ask has it.
func (l *limit) value(i int, r *request) (value string, present, repeated bool) {
	if r.named != nil {
		return r.named.of(l).parts[i], true, false
	}
	return l.parts[i].value(r)
}

// compileAlone compiles a route for each limit, for calls that name one limit.
func (e *Engine) compileAlone(byName map[string]*limit) error {
	e.alone = make(map[string]*route, len(byName))
	for name, l := range byName {
		r := new(route)
		if err := e.compileLimits(r, []*limit{l}); err != nil {
			return err
		}
		e.alone[name] = r
	}
	return nil
}

// check checks the asks of a call.
func (e *Engine) check(asks []Ask) ([]*namedAsk, error) {
	switch {
	case len(asks) == 0:
		return nil, &AskError{Problem: "no limit is named", Fix: "name at least one"}
	case len(asks) > MaxAsks:
		return nil, &AskError{Problem: fmt.Sprintf("%d limits are named in one call", len(asks)), Fix: fmt.Sprintf("name at most %d", MaxAsks)}
	}
	block := make([]namedAsk, len(asks))
	all := make([]*namedAsk, len(asks))
	for i := range asks {
		all[i] = &block[i]
		if err := e.checkAsk(&asks[i], all[i]); err != nil {
			err.Index = i
			return nil, err
		}
	}
	if err := checkPlans(all); err != nil {
		return nil, err
	}
	return all, nil
}

func (e *Engine) checkAsk(a *Ask, n *namedAsk) *AskError {
	r := e.alone[a.Limit]
	if r == nil {
		return &AskError{Field: "limit", Problem: fmt.Sprintf("there is no limit %.80q", a.Limit), Fix: e.suggestLimit(a.Limit), Unknown: true}
	}
	l := r.only()
	n.limit, n.cost, n.plan = l, a.Cost, a.Plan
	switch {
	case l.enters():
		return &AskError{Field: "limit", Problem: fmt.Sprintf("%q is a concurrency: requests enter and leave it, and nothing can be taken from it", a.Limit),
			Fix: "name a limit with another algorithm, such as a token_bucket, or add it to a route, for requests of the gateway or of /v1/enter"}
	case a.OwnCost:
		n.cost = l.ownCost()
	case a.Cost < 0:
		return &AskError{Field: "cost", Problem: fmt.Sprintf("%d is negative", a.Cost), Fix: "write 0 or more; to give back a charge, reserve and settle it"}
	}
	if len(a.Key) != len(l.parts) {
		return &AskError{Field: "key", Problem: fmt.Sprintf("it has %s, and the key of %q has %s", countedParts(len(a.Key)), a.Limit, countedParts(len(l.parts))), Fix: l.keyExample()}
	}
	if err := n.normalise(a.Key); err != nil {
		return &AskError{Field: "key", Problem: err.Error(), Fix: l.keyExample()}
	}
	if wrong := e.wrongPlan(n.plan); wrong != nil {
		return wrong
	}
	if n.plan == "" && len(l.Plans) > 0 {
		if n.plan = e.planOf(l, n.parts); n.plan == "" {
			n.plan = e.policy.Plans.Default
		}
	}
	return nil
}

func (e *Engine) suggestLimit(name string) string {
	known := names(e.policy.Limits, func(l Limit) string { return l.Name })
	if len(known) == 0 {
		return "the policy has no limits"
	}
	return suggest(name, known[:min(len(known), mostNamed)])
}

// mostNamed bounds how many names an error lists.
const mostNamed = 20

// CheckPlan returns an *AskError if the policy does not name a plan: no limit has parameters for it, it
// is not the default, and no API key has it (a method HasPlan of Options.Customers). Empty is no plan.
func (e *Engine) CheckPlan(plan string) error {
	if wrong := e.wrongPlan(plan); wrong != nil {
		return wrong
	}
	return nil
}

func (e *Engine) wrongPlan(plan string) *AskError {
	if plan == "" || slices.Contains(e.plans, plan) {
		return nil
	}
	if keys, ok := e.opts.Customers.(interface{ HasPlan(plan string) bool }); ok && keys.HasPlan(plan) {
		return nil
	}
	fix := "take plan out: the policy has no plans"
	if len(e.plans) > 0 {
		fix = suggest(plan, e.plans[:min(len(e.plans), mostNamed)])
	}
	return &AskError{Field: "plan", Problem: fmt.Sprintf("there is no plan %.80q", plan), Fix: fix}
}

// namedPlans returns the plans that a policy names, sorted.
func (p *Policy) namedPlans() []string {
	all := []string{p.Plans.Default}
	for i := range p.Limits {
		all = append(all, names(p.Limits[i].Plans, func(of PlanLimit) string { return of.Plan })...)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(plan string) bool { return plan == "" })
}

// only returns the limit of a route of compileAlone.
func (r *route) only() *limit {
	for _, some := range [][]*limit{r.live, r.dry, r.places, r.shadow} {
		if len(some) > 0 {
			return some[0]
		}
	}
	return nil
}

// ownCost returns the fixed cost of a limit, or 1.
func (l *limit) ownCost() int64 {
	switch {
	case l.late != nil:
		return l.late.fallback
	case l.cost.kind == costFixed:
		return l.cost.n
	}
	return 1
}

// keyExample says what the key of a limit looks like.
func (l *limit) keyExample() string {
	if len(l.parts) == 0 {
		return "write no key: all callers share one state"
	}
	return fmt.Sprintf("write one text for each of %s, in this order", strings.Join(l.Limit.Key, ", "))
}

var errKeyLong = fmt.Errorf("it is longer than %d bytes", maxParts)

// normalise writes the parts of a key as requests have them, so that both count in one state.
func (n *namedAsk) normalise(key []string) error {
	n.parts = key
	size := 0
	for i, p := range n.limit.parts {
		text := key[i]
		if size += len(text); size > maxParts {
			return errKeyLong
		}
		switch p.kind {
		case partConst:
			if text != p.name {
				return fmt.Errorf("part %d is always %q", i+1, p.name)
			}
		case partHeader:
			text = canonicalHeader(p.name, text)
		case partHost:
			if text != "" {
				text = normalHost(text)
			}
		case partFullIP:
			full, ok := fullAddressOf(text)
			if !ok {
				return fmt.Errorf("part %d: it is not an IP address", i+1)
			}
			text, n.client = full, full
		case partClientIP:
			var err error
			if text, err = clientPart(text); err != nil {
				return fmt.Errorf("part %d: %w", i+1, err)
			}
			n.client = text
		}
		if text != key[i] {
			if &n.parts[0] == &key[0] {
				n.parts = append([]string(nil), key...)
			}
			n.parts[i] = text
		}
	}
	return nil
}

// clientPart returns the key of a client's address. It takes what ClientKey returns, too.
func clientPart(text string) (string, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return ClientKey(addr), nil
	}
	if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is6() && p.Bits() == 64 && p.Masked() == p {
		return ClientKey(p.Addr()), nil
	}
	return "", errors.New("it is not an IP address")
}
