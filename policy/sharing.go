package policy

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pause"
)

// A stage is the limits of a route that one call of a store charges.
type stage struct {
	store  weir.Store
	limits []*limit
	queue  bool // a single limit with a queue, charged ahead of time
}

// stagesOf sorts limits in stores into stages: first the limits of each store together, then each
// queue alone. A store cannot charge a group ahead of time, and the charge of a queue may not be
// given back as exactly.
func stagesOf(limits []*limit) (all []stage) {
	var queues []stage
	for _, l := range limits {
		if l.wait {
			queues = append(queues, stage{l.store, []*limit{l}, true})
			continue
		}
		i := slices.IndexFunc(all, func(s stage) bool { return s.limits[0].Store == l.Store })
		if i < 0 {
			i = len(all)
			all = append(all, stage{store: l.store})
		}
		all[i].limits = append(all[i].limits, l)
	}
	return append(all, queues...)
}

// failure returns the fallback of a limit without its store. "local" is the matter of package
// failover, which decides by itself. If an error still comes through, or the store is used without
// failover, the request is refused.
func (l *Limit) failure(s *Store) string {
	if l.OnFailure == "allow" || l.OnFailure == "" && s.OnFailure == "allow" {
		return "allow"
	}
	return "deny"
}

// sharing holds what a verdict has charged in stores.
type sharing struct {
	first   int           // the position in limits of the first limit in a store
	charges []weir.Charge // one for each limit in a store
	wait    time.Duration // how long until the request may go on, from the time of the decision
	decided int64
	e       *Engine

	settling settlement // zero: each charge is settled in one attempt
}

// patience is how long a store has for calls that no request waits for: to give back a charge, and
// to decide for a shadow limit.
const patience = time.Second

func (e *Engine) newSharing(r *route) *sharing {
	return &sharing{first: r.memory, charges: make([]weir.Charge, len(r.live)-r.memory), e: e}
}

// delay returns how long the limit at position i in limits delays the request, if it is in a store.
func (s *sharing) delay(i int) time.Duration {
	if s == nil || i < s.first {
		return 0
	}
	return s.charges[i-s.first].Delay
}

// sleep waits as long as the stores require.
func (s *sharing) sleep(ctx context.Context) error {
	if s == nil || s.wait == 0 {
		return nil
	}
	return s.e.sleep(ctx, s.wait, s.decided)
}

// sleep waits for the rest of a delay that was decided at a time of the engine's clock.
func (e *Engine) sleep(ctx context.Context, wait time.Duration, decided int64) error {
	left := wait - time.Duration(e.now()-decided)
	if left <= 0 {
		return nil
	}
	done := make(chan struct{})
	timer := e.after(left, func() { close(done) })
	defer timer.Stop()
	return pause.Until(ctx, done)
}

// chargeStores charges the limits in stores, after those in memory have admitted the request. If
// one of them refuses, all charges are given back.
func (v *Verdict) chargeStores(ctx context.Context, e *Engine, r *route) {
	v.shared = e.newSharing(r)
	at := r.memory
	for i := range r.stages {
		s := &r.stages[i]
		keep := v.keeps || v.Outcome == Delay || i+1 < len(r.stages) || r.enters()
		if !v.chargeStage(ctx, s, at, keep) {
			v.giveBack(ctx)
			// read the decisions without this charge; stores return them when a charge is given
			// back
			_, _ = r.group.Peek(v.charges[:r.memory])
			return
		}
		at += len(s.limits)
	}
	v.Decision = v.least()
}

// chargeStage charges the limits of one stage, whose positions begin at at. It reports whether the
// request goes on.
func (v *Verdict) chargeStage(ctx context.Context, s *stage, at int, keep bool) bool {
	batch, places := v.batch(s, at, keep)
	if len(batch) == 0 {
		return true
	}
	out := make([]weir.Decision, len(batch))
	err := s.store.Do(ctx, batch, out)
	if err != nil {
		for k, i := range places {
			v.shared.charges[i-v.shared.first] = batch[k] // some charges may have been carried out
		}
		return v.fallBack(ctx, err, batch, places)
	}
	v.shared.decided = v.shared.e.now()
	refused := -1
	for k, i := range places {
		d := out[k]
		d.By = v.evaluated[i].Name
		v.charges[i].Decision = d
		if !d.Allowed && (refused < 0 || longer(d.RetryAfter, v.charges[refused].Decision.RetryAfter)) {
			refused = i
		}
	}
	if refused >= 0 {
		v.deny(v.evaluated[refused], v.charges[refused].Key, v.charges[refused].Decision)
		v.Delay = 0
		return false
	}
	for k, i := range places {
		v.shared.charges[i-v.shared.first] = batch[k]
		v.shared.wait = max(v.shared.wait, batch[k].Delay)
		if batch[k].Delay > v.Delay {
			v.Outcome, v.Limit, v.Key, v.Delay = Delay, v.evaluated[i].Name, v.charges[i].Key, batch[k].Delay
		}
	}
	return true
}

// batch returns the charges of a stage, and the positions of their limits.
func (v *Verdict) batch(s *stage, at int, keep bool) (batch []weir.Charge, places []int) {
	for j := range s.limits {
		i := at + j
		l := v.evaluated[i] // as it is for the plan
		c := &v.charges[i]
		if c.Skip {
			continue
		}
		open := v.open != nil && v.open[i] != openNot
		q := weir.Charge{Name: l.state, Key: c.Key, Limit: l.Limit.Limit, Plan: l.plan, Cost: c.Cost, Keep: keep || open, Estimate: open || v.estimates}
		if open && q.Cost == 0 {
			q.Cost = 1 // for a cost of 0, a store returns no receipt, which settling needs later
		}
		switch {
		case s.queue:
			q.Op, q.Within = weir.OpReserve, -1
		case len(s.limits) > 1:
			q.Group = 1
		}
		batch, places = append(batch, q), append(places, i)
	}
	return batch, places
}

// fallBack applies the fallback when a store did not decide. It reports whether the request goes
// on.
func (v *Verdict) fallBack(ctx context.Context, err error, batch []weir.Charge, places []int) bool {
	v.Err = err
	if ctx.Err() != nil {
		v.Outcome, v.Delay = Left, 0
		return false
	}
	refuse := func(i int, d weir.Decision) bool {
		v.charges[i].Decision = d
		v.deny(v.evaluated[i], v.charges[i].Key, d)
		v.Delay = 0
		return false
	}
	if isOfCharge(err) {
		of := max(slices.IndexFunc(batch, func(c weir.Charge) bool { return isOfCharge(c.Err) }), 0)
		i := places[of]
		v.evaluated[i].countError(err)
		return refuse(i, v.evaluated[i].withoutStore(err))
	}
	for _, i := range places {
		v.evaluated[i].countError(err)
	}
	for _, i := range places {
		d := v.evaluated[i].withoutStore(err)
		if !d.Allowed {
			return refuse(i, d)
		}
		v.charges[i].Decision = d
	}
	return true
}

// isOfCharge reports whether an error of a store is about a charge, and not about the store.
func isOfCharge(err error) bool {
	return errors.Is(err, weir.ErrCharge) || errors.Is(err, weir.ErrCost)
}

// countError counts a request whose charge the store did not decide. One about the key alone is
// reported, too: no outage tells of it.
func (l *limit) countError(err error) {
	switch {
	case !isOfCharge(err):
		l.counts.failed.Add(1)
	case errors.Is(err, weir.ErrCharge):
		l.counts.undecidable.Add(1)
		if l.undecidable != nil {
			l.undecidable(l.Name, err)
		}
	}
}

// withoutStore returns the decision of a limit whose store did not decide, for the error of the store.
// A charge that no store can carry out is refused: it must not bypass the limit.
func (l *limit) withoutStore(err error) weir.Decision {
	switch {
	case isOfCharge(err):
		return weir.Decision{RetryAfter: weir.Never, By: l.Name, Source: weir.SourceStore}
	case l.onFailure == "allow":
		return weir.Decision{Allowed: true, By: l.Name, Source: weir.SourceAllow}
	}
	return weir.Decision{RetryAfter: weir.Never, By: l.Name, Source: weir.SourceDeny}
}

// longer compares two waits. Never is the longest.
func longer(a, b time.Duration) bool {
	return b != weir.Never && (a == weir.Never || a > b)
}

// least returns the decision with the least remaining, among those that say how much remains.
func (v *Verdict) least() weir.Decision {
	least := weir.Decision{Allowed: true}
	for i := range v.charges {
		d := v.charges[i].Decision
		if !v.charges[i].Skip && (least.Limit == 0 || d.Limit > 0 && d.Remaining < least.Remaining) {
			least = d
		}
	}
	return least
}

// giveBack gives back all charges that can be given back.
func (v *Verdict) giveBack(ctx context.Context) {
	for i := range v.charges {
		_ = v.charges[i].Cancel() // a charge that was not kept stays: see Cancel
	}
	v.endShadows()
	_ = v.settleStores(ctx, func(int) (int64, bool) { return 0, true }) // what a store cannot give back is counted, and stays charged
}

// settleStores replaces the costs of charges in stores, once for each charge, with one call per
// store. It continues after the context has ended. The error is that of Answer.Settle.
func (v *Verdict) settleStores(ctx context.Context, actual func(i int) (cost int64, ok bool)) (failed error) {
	if v.shared == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	for i := range v.shared.charges {
		l := v.evaluated[v.shared.first+i]
		if slices.ContainsFunc(v.evaluated[v.shared.first:v.shared.first+i], func(before *limit) bool { return before.Store == l.Store }) {
			continue // settled with that one
		}
		var batch []weir.Charge
		var places []int
		for j := v.shared.first + i; j < len(v.evaluated); j++ {
			c := &v.shared.charges[j-v.shared.first]
			cost, ok := actual(j)
			if !ok || c.Receipt == "" || v.evaluated[j].Store != l.Store {
				continue
			}
			q := settlementOf(c, cost)
			v.shared.settling.sign(&q, j)
			batch, places = append(batch, q), append(places, j)
		}
		if len(batch) > 0 {
			failed = worse(failed, v.settleStore(ctx, l.store, batch, places))
		}
	}
	return failed
}

// settleStore is settleStores for one store.
func (v *Verdict) settleStore(ctx context.Context, s weir.Store, batch []weir.Charge, places []int) (failed error) {
	out := make([]weir.Decision, len(batch))
	err := s.Do(ctx, batch, out)
	byCharge := slices.ContainsFunc(batch, func(c weir.Charge) bool { return c.Err != nil })
	for k, i := range places {
		if err != nil && (!byCharge || batch[k].Err != nil) { // else it is about other charges
			e := err
			if byCharge {
				e = batch[k].Err
			}
			e = unsettled(e)
			if failed = worse(failed, e); v.shared.settling.isOpen(e) {
				continue
			}
			v.evaluated[i].counts.lost.Add(1)
		} else {
			out[k].By = v.evaluated[i].Name
			v.charges[i].Decision = out[k]
		}
		v.shared.charges[i-v.shared.first].Receipt = ""
	}
	return failed
}

// KeptInMemory returns the names of the limits that name a store, but are kept in the memory of this
// process because Options.Stores has none of that name.
func (e *Engine) KeptInMemory() (names []string) {
	for _, l := range e.limits {
		if l.Limit.Store != "" && l.store == nil && l.holder == nil && !l.isRest() {
			names = append(names, l.Name)
		}
	}
	return names
}
