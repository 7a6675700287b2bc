package policy

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// A stage is those limits of a route that are charged by one call of a store.
type stage struct {
	store  weir.Store
	limits []*limit
	queue  bool // of one that is a queue: it is charged ahead
}

// stagesOf orders the limits in stores: those of each store together; then the queues, each alone, as a store charges no group ahead, and as what
// was promised may not be given back as exactly.
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

// failure is what decides about a limit whose store does not answer: for "local" it takes failover, which decides by itself; an error that comes
// through from there, or from a store without it, is no yes.
func (l *Limit) failure(s *Store) string {
	if l.OnFailure == "allow" || l.OnFailure == "" && s.OnFailure == "allow" {
		return "allow"
	}
	return "deny"
}

// sharing is what a verdict has charged in stores.
type sharing struct {
	first   int           // the place in asked of the first limit in a store
	charges []weir.Charge // one for each of them
	wait    time.Duration // how long until the request may go, from when that was decided
	decided int64
	e       *Engine
}

// patience is how long a store has for what nobody waits for: to take back a charge, and to decide for a shadow limit.
const patience = time.Second

func (e *Engine) newSharing(r *route) *sharing {
	return &sharing{first: r.memory, charges: make([]weir.Charge, len(r.live)-r.memory), e: e}
}

// delay is how long the i-th limit that was asked has the request wait, if that is in a store.
func (s *sharing) delay(i int) time.Duration {
	if s == nil || i < s.first {
		return 0
	}
	return s.charges[i-s.first].Delay
}

// sleep waits for the turn that a store has given.
func (s *sharing) sleep(ctx context.Context) error {
	if s == nil || s.wait == 0 {
		return nil
	}
	return s.e.sleep(ctx, s.wait, s.decided)
}

// sleep waits for what is left of a wait that was decided at a time of the engine's clock.
func (e *Engine) sleep(ctx context.Context, wait time.Duration, decided int64) error {
	left := wait - time.Duration(e.now()-decided)
	if left <= 0 {
		return nil
	}
	done := make(chan struct{})
	timer := e.after(left, func() { close(done) })
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// chargeStores asks the limits in stores, after those in memory have admitted the request. Where one of them does not, all is given back.
func (v *Verdict) chargeStores(ctx context.Context, e *Engine, r *route) {
	v.shared = e.newSharing(r)
	at := r.memory
	for i := range r.stages {
		s := &r.stages[i]
		keep := v.Outcome == Delay || i+1 < len(r.stages) || len(r.places) > 0
		if !v.chargeStage(ctx, s, at, keep) {
			v.giveBack(ctx)
			_, _ = r.group.Peek(v.charges[:r.memory]) // their decisions are what they are without a charge; stores say so when they take one back
			return
		}
		at += len(s.limits)
	}
	v.Decision = v.least()
}

// chargeStage asks one store about the limits whose places begin at at. It reports whether the request goes on.
func (v *Verdict) chargeStage(ctx context.Context, s *stage, at int, keep bool) bool {
	batch, places := v.batch(s, at, keep)
	if len(batch) == 0 {
		return true
	}
	out := make([]weir.Decision, len(batch))
	err := s.store.Do(ctx, batch, out)
	if err != nil {
		for k, i := range places {
			v.shared.charges[i-v.shared.first] = batch[k] // some may have been carried out
		}
		return v.unanswered(ctx, err, batch, places)
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

// batch is what a store is asked at a stage, and which limits that is about.
func (v *Verdict) batch(s *stage, at int, keep bool) (batch []weir.Charge, places []int) {
	for j, l := range s.limits {
		i := at + j
		c := &v.charges[i]
		if c.Skip {
			continue
		}
		open := v.open != nil && v.open[i]
		q := weir.Charge{Name: l.state, Key: c.Key, Limit: l.Limit.Limit, Cost: c.Cost, Keep: keep || open}
		if open {
			q.Cost = 1 // for nothing, a store gives no receipt that could be settled
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

// unanswered is for a store that did not decide. It reports whether the request goes on.
func (v *Verdict) unanswered(ctx context.Context, err error, batch []weir.Charge, places []int) bool {
	v.Err = err
	if ctx.Err() != nil {
		v.Outcome, v.Delay = Left, 0
		return false
	}
	wrong := func(err error) bool { return errors.Is(err, weir.ErrCharge) || errors.Is(err, weir.ErrCost) }
	refuse := func(i int, by weir.Source) bool {
		v.charges[i].Decision = weir.Decision{RetryAfter: weir.Never, By: v.evaluated[i].Name, Source: by}
		v.deny(v.evaluated[i], v.charges[i].Key, v.charges[i].Decision)
		v.Delay = 0
		return false
	}
	if wrong(err) { // whoever sends what cannot be charged does not get past the limit by it
		for k, i := range places {
			if wrong(batch[k].Err) {
				return refuse(i, weir.SourceStore)
			}
		}
		return refuse(places[0], weir.SourceStore)
	}
	for _, i := range places {
		v.evaluated[i].counts.failed.Add(1)
	}
	for _, i := range places {
		if v.evaluated[i].onFailure != "allow" {
			return refuse(i, weir.SourceDeny)
		}
		v.charges[i].Decision = weir.Decision{Allowed: true, By: v.evaluated[i].Name, Source: weir.SourceAllow}
	}
	return true
}

// longer compares two waits; Never is the longest.
func longer(a, b time.Duration) bool {
	return b != weir.Never && (a == weir.Never || a > b)
}

// least is the decision with the least remaining, of those that say how much remains.
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

// giveBack gives back all that can be given back.
func (v *Verdict) giveBack(ctx context.Context) {
	for i := range v.charges {
		_ = v.charges[i].Cancel() // what was not kept stays charged: see Cancel
	}
	v.settleStores(ctx, func(int) (int64, bool) { return 0, true })
}

// settleStores puts other costs in place of what was charged in stores, once for each charge, in one call for each store. It goes on when the
// context has ended.
func (v *Verdict) settleStores(ctx context.Context, actual func(i int) (cost int64, ok bool)) {
	if v.shared == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	for i := range v.shared.charges {
		l := v.evaluated[v.shared.first+i]
		var batch []weir.Charge
		var places []int
		for j := v.shared.first + i; j < len(v.evaluated); j++ {
			c := &v.shared.charges[j-v.shared.first]
			cost, ok := actual(j)
			if !ok || c.Receipt == "" || v.evaluated[j].Store != l.Store {
				continue
			}
			batch = append(batch, weir.Charge{Name: c.Name, Key: c.Key, Limit: c.Limit, Op: weir.OpSettle, Cost: cost, Receipt: c.Receipt})
			places = append(places, j)
			c.Receipt = ""
		}
		if len(batch) > 0 {
			v.settleStore(ctx, l.store, batch, places)
		}
	}
}

// settleStore is settleStores for one store.
func (v *Verdict) settleStore(ctx context.Context, s weir.Store, batch []weir.Charge, places []int) {
	out := make([]weir.Decision, len(batch))
	err := s.Do(ctx, batch, out)
	for k, i := range places {
		if err != nil {
			v.evaluated[i].counts.lost.Add(1)
			continue
		}
		out[k].By = v.evaluated[i].Name
		v.charges[i].Decision = out[k]
	}
}
