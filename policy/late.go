package policy

import (
	"context"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// openCost says what a cost that is not known yet depends on.
type openCost uint8

const (
	openNot   openCost = iota // the cost is known
	openBytes                 // the length of the request's body
	openLate                  // the response
)

// opens returns what the cost of a request depends on.
func (l *limit) opens(r *request) openCost {
	switch {
	case r.named != nil: // the caller says what the work costs
		return openNot
	case l.settles():
		return openLate
	case l.late == nil && l.cost.open(r):
		return openBytes
	}
	return openNot
}

// settles reports whether charges of the limit are replaced when the response has come.
func (l *limit) settles() bool { return l.late != nil && l.late.spec != nil }

// markOpen records that the cost of a charge is not known yet.
func (v *Verdict) markOpen(i int, open openCost) {
	if v.open == nil {
		v.open = make([]openCost, len(v.charges))
	}
	v.open[i], v.charges[i].Keep = open, true
}

// laterCosts returns v.late, and creates it at the first call.
func (v *Verdict) laterCosts(e *Engine) *lateCharges {
	if v.late == nil {
		v.late = &lateCharges{e: e}
	}
	return v.late
}

// markLate records what the cost of a charge is learned under.
func (v *Verdict) markLate(e *Engine, i int, key []byte, r *request) {
	late := v.laterCosts(e)
	if v.evaluated[i].late.learned != nil {
		if late.keys == nil {
			late.keys = make([]string, len(v.charges))
		}
		late.keys[i] = learnedKey(key, r)
	}
}

// lateCharges are the parts of a verdict whose costs are known only afterwards, in one allocation.
type lateCharges struct {
	e       *Engine
	keys    []string // by charge: what costs are learned under; nil if none are
	shadows []shadowCharge
	meter   Meter
	metered bool // meter is used
	first   [1]specReader
}

// learnedUnder returns what the cost of a charge is learned under.
func (c *lateCharges) learnedUnder(i int) string {
	if c.keys == nil {
		return ""
	}
	return c.keys[i]
}

// shadowCharge is the charge of a shadow limit, or of what counts for an unlimited plan, that is to be
// settled.
type shadowCharge struct {
	l        *limit
	estimate int64
	key      string           // what costs are learned under
	settle   func(cost int64) // replaces the estimate
	cancel   func()           // gives it back
}

// noteShadowCharge records a charge that is to be settled.
func (v *Verdict) noteShadowCharge(e *Engine, s shadowCharge, key []byte, r *request) {
	if r.named == nil && s.l.late.learned != nil {
		s.key = learnedKey(key, r)
	}
	late := v.laterCosts(e)
	late.shadows = append(late.shadows, s)
}

// KeepEstimates ends the charges of a request whose response nobody reads, as in the replay of a log:
// its estimates stay charged.
func (v *Verdict) KeepEstimates() {
	if v.late == nil || v.Outcome != Allow && v.Outcome != Delay {
		return
	}
	for i, open := range v.open {
		if open != openBytes {
			_ = v.charges[i].Settle(v.charges[i].Cost)
		}
	}
	for _, s := range v.late.shadows {
		s.settle(s.estimate)
	}
	v.late.shadows = nil
}

// endShadows gives back the charges of shadow limits for a request that does not go on.
func (v *Verdict) endShadows() {
	if v.late == nil {
		return
	}
	for _, s := range v.late.shadows {
		s.cancel()
	}
	v.late.shadows = nil
}

// SettleBytes corrects the charges of limits with a cost in bytes once a body of unknown length has
// been read: n is its length. Stores have a second to carry this out.
func (v *Verdict) SettleBytes(n int64) {
	for i, open := range v.open {
		c := &v.charges[i]
		switch open {
		case openBytes:
			_ = c.Settle(n) // opens kept it
		case openNot:
			_ = c.Settle(c.Cost) // nothing of it is given back any more
		case openLate:
		}
	}
	_ = v.settleStores(context.Background(), func(i int) (int64, bool) { return n, v.open != nil && v.open[i] == openBytes })
}

// CountsBytes reports whether SettleBytes would correct any charge.
func (v *Verdict) CountsBytes() bool {
	return slices.Contains(v.open, openBytes) && (v.Outcome == Allow || v.Outcome == Delay)
}

// settleLate replaces the charges whose costs are known now. Of the others, except those for a body
// whose length is not known yet, nothing is given back any more.
func (v *Verdict) settleLate(of func(*limit) result) {
	var costs []int64
	if v.shared != nil {
		costs = make([]int64, len(v.charges))
	}
	for i, open := range v.open {
		c := &v.charges[i]
		switch open {
		case openLate:
			cost := v.evaluated[i].actual(of(v.evaluated[i]), c.Cost, v.late.learnedUnder(i))
			if _ = c.Settle(cost); costs != nil { // opens kept it
				costs[i] = cost
			}
		case openNot:
			_ = c.Settle(c.Cost)
		case openBytes:
		}
	}
	for _, s := range v.late.shadows {
		s.settle(s.l.actual(of(s.l), s.estimate, s.key))
	}
	if v.shared == nil {
		return
	}
	// The end of the response must not wait for a store.
	v.late.e.shadows.afterwards(func() {
		_ = v.settleStores(context.Background(), func(i int) (int64, bool) { return costs[i], v.open != nil && v.open[i] == openLate })
	})
}

// shadowStored charges a shadow limit in its store, in the background. For a request, what counts for an
// unlimited plan is charged when its cost is known; a reservation is charged at once, because it may be
// open for an hour.
func (v *Verdict) shadowStored(l *limit, e *Engine, r *request, key []byte, cost int64) {
	stored := l.keyInStore(key, r)
	switch {
	case v.estimates:
		settle := e.shadows.reserve(l, stored, cost)
		v.noteShadowCharge(e, shadowCharge{l: l, estimate: cost, settle: settle, cancel: func() { settle(0) }}, key, r)
	case r.named == nil && l.onlyCounts && l.settles():
		settle := func(cost int64) { e.shadows.evaluate(l, stored, cost) }
		v.noteShadowCharge(e, shadowCharge{l: l, estimate: cost, settle: settle, cancel: func() {}}, key, r)
	default:
		e.shadows.evaluate(l, stored, cost)
	}
}

// shadowStoredNow is shadowStored for a call that names this limit alone and waits for its decision.
func (v *Verdict) shadowStoredNow(l *limit, e *Engine, r *request, key []byte, cost int64) {
	c := l.shadowCharge(l.keyInStore(key, r), cost)
	c.Keep, c.Estimate = v.estimates, v.estimates
	r.noteShadow(l, l.decide(&c))
	if v.estimates {
		settle := func(cost int64) { e.shadows.afterwards(func() { l.settleShadow(c, cost) }) }
		v.noteShadowCharge(e, shadowCharge{l: l, estimate: cost, settle: settle, cancel: func() { settle(0) }}, key, r)
	}
}

// shadowLate charges a shadow limit whose charge is settled with the others.
func (v *Verdict) shadowLate(l *limit, e *Engine, r *request, key []byte, cost int64) (weir.Decision, time.Duration) {
	within := time.Duration(0)
	if l.queues() {
		within = -1 // the request would have waited
	}
	res, ok := l.table.ReserveBy(l.parameters, string(key), cost, within)
	if !ok {
		return res.Decision(), 0
	}
	v.noteShadowCharge(e, shadowCharge{l: l, estimate: cost, settle: res.Settle, cancel: res.Cancel}, key, r)
	return res.Decision(), res.Delay()
}
