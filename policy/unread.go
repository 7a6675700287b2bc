package policy

import "time"

// RefuseUnread refuses a request before its body is read, if a limit in memory refuses it whose key
// and cost do not depend on the body. ok is false if none does: then DecideMatch decides. A queue
// refuses nothing here, and neither does a limit with a zone or in a store. Of several limits that
// refuse, the one with the longest RetryAfter counts, as in DecideMatch; limits that were not
// evaluated may refuse a retry.
//
// Call it between Identify and ReadBody, for a request of which ReadsBody reports true. It charges
// nothing, and counts a request that it refuses.
func (e *Engine) RefuseUnread(m *Match) (v Verdict, ok bool) {
	r := &m.request
	if m.Route < 0 || m.Ambiguous || r.lacking != nil {
		return v, false
	}
	route := &e.routes[m.Route]
	live := route.live[:route.memory]
	if route.plans {
		live = forPlan(live, r.who.plan)
	}
	r.unread = true
	defer func() { r.unread = false }()
	at := time.Now() // of a warning
	var by *limit
	for _, l := range live {
		if l.wait || l.zone != nil || l.readsBody(r) {
			continue
		}
		var buf [maxKey]byte
		key, cost, q := l.keyAndCost(buf[:0], r)
		switch q {
		case skipped, exempt:
		case charged:
			d := l.table.PeekBy(l.parameters, string(key), cost)
			if d.By = l.Name; !d.Allowed && (by == nil || longer(d.RetryAfter, v.Decision.RetryAfter)) {
				by, v.cost = l, cost
				v.deny(l, l.text(key), d)
			}
		default:
			v = Verdict{Route: m.Route, evaluated: []*limit{l}, order: []int{0}}
			v.settle(l, key, q, r)
			return v, true
		}
	}
	if by == nil {
		return Verdict{}, false
	}
	v.Route, v.evaluated, v.order = m.Route, []*limit{by}, []int{0}
	by.counts.limited.Add(1)
	v.noteOutcome()
	if route.warns {
		v.warn(e, r, at)
	}
	return v, true
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
