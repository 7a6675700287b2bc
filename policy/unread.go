package policy

import (
	"context"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// RefuseUnread refuses a request before its body is read, if a limit refuses it whose key and cost do not
// depend on the body. ok is false if none does: then DecideMatch decides. A queue refuses nothing here, and
// neither does a limit with a zone. Of several limits that refuse, the one with the longest RetryAfter
// counts, as in DecideMatch; limits that were not evaluated may refuse a retry.
//
// Limits in memory are evaluated first. If none of them refuses, each store is called once; one that does not
// respond refuses nothing here.
//
// Call it between Identify and ReadBody, for a request of which ReadsBody reports true. It charges
// nothing, and counts a request that it refuses.
func (e *Engine) RefuseUnread(ctx context.Context, m *Match) (v Verdict, ok bool) {
	r := &m.request
	if m.Route < 0 || m.Ambiguous || r.lacking != nil {
		return v, false
	}
	route := &e.routes[m.Route]
	live := route.live
	if route.plans {
		live = forPlan(live, r.who.plan)
	}
	r.unread = true
	defer func() { r.unread = false }()
	u := unread{r: r, v: Verdict{Route: m.Route, order: []int{0}}}
	at := time.Now() // of a warning
	for i, l := range live {
		if i == route.memory && u.by != nil {
			break // a limit in memory keeps stores from being called
		}
		if decided := u.evaluate(l); decided {
			return u.v, true
		}
	}
	if u.by == nil {
		u.peekStores(ctx)
	}
	if u.by == nil {
		return Verdict{}, false
	}
	u.v.evaluated = []*limit{u.by}
	if u.by.counts.limited.Add(1); u.by.store != nil {
		u.by.counts.sources[u.v.Decision.Source].Add(1)
	}
	u.v.noteOutcome()
	if route.warns {
		u.v.warn(e, r, at)
	}
	return u.v, true
}

// unread is what is known of a request whose body has not been read.
type unread struct {
	r      *request
	v      Verdict
	by     *limit        // that refuses; nil for none
	stored []*limit      // that are to be peeked at in their stores
	peeks  []weir.Charge // one for each
}

// evaluate peeks at a limit in memory, and prepares it for one in a store. It reports whether the key alone
// decides about the request.
func (u *unread) evaluate(l *limit) bool {
	if l.wait || l.zone != nil || l.readsBody(u.r) {
		return false
	}
	var buf [maxKey]byte
	key, cost, q := l.keyAndCost(buf[:0], u.r)
	switch q {
	case skipped, exempt:
	case charged:
		if l.store == nil {
			u.note(l, l.text(key), cost, l.table.PeekBy(l.parameters, string(key), cost))
			break
		}
		u.stored = append(u.stored, l)
		u.peeks = append(u.peeks, weir.Charge{Name: l.state, Key: l.keyInStore(key, u.r), Limit: l.Limit.Limit, Plan: l.plan, Cost: cost, Op: weir.OpPeek})
	default:
		u.v = Verdict{Route: u.v.Route, evaluated: []*limit{l}, order: u.v.order}
		u.v.settle(l, key, q, u.r)
		return true
	}
	return false
}

// note keeps the refusal with the longest RetryAfter.
func (u *unread) note(l *limit, key string, cost int64, d weir.Decision) {
	if d.By = l.Name; !d.Allowed && (u.by == nil || longer(d.RetryAfter, u.v.Decision.RetryAfter)) {
		u.by, u.v.cost = l, cost
		u.v.deny(l, key, d)
	}
}

// peekStores peeks at the limits in stores, with one call of each store.
func (u *unread) peekStores(ctx context.Context) {
	for _, s := range stagesOf(u.stored) {
		var batch []weir.Charge
		for _, l := range s.limits {
			batch = append(batch, u.peeks[slices.Index(u.stored, l)])
		}
		out := make([]weir.Decision, len(batch))
		if s.store.Do(ctx, batch, out) != nil {
			continue
		}
		for i, l := range s.limits {
			u.note(l, l.text([]byte(batch[i].Key)), batch[i].Cost, out[i])
		}
	}
}

// readsBody reports whether the key or the cost of a limit depends on the body of a request.
func (l *limit) readsBody(r *request) bool {
	for i := range l.parts {
		if l.parts[i].kind == partBody {
			return true
		}
	}
	if l.late == nil {
		return false
	}
	for _, t := range l.late.before {
		switch t.source {
		case estimateBody, estimateLearned: // learned by the model, which the body names
			return true
		case estimatePrompt:
			if r.Length < 0 {
				return true
			}
		}
	}
	return false
}
