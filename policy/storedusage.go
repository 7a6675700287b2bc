package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirflow/weir"
)

// A StateLister is a weir.Store that can list the keys of a limit.
type StateLister interface {
	// StateKeys calls each with the keys that have a state under a name, each key once, in no order, and
	// reads them in steps of bounded size. under is the position in of of the limit that the state was
	// written under; -1 for another one. An error of each ends it.
	StateKeys(ctx context.Context, name string, of []weir.Limit, each func(key string, under int) error) error
}

// usageBatch is how many keys one call of a store is about.
const usageBatch = 100

// Problems of usages in stores.
var (
	errNotListed = errors.New("its store does not list keys: ask for the usage of each key")
	errNotStored = errors.New("its store is unavailable")
	errNoPlan    = errors.New("it was used under parameters that no plan has now, or under those of two plans: ask for the usage of the key, and name the plan")
)

// StoredUsages calls each with what every key has used of the quotas that are kept in stores. A usage with a
// Problem and without a key says that the limit cannot be listed, or not to its end; one with a key, that what
// the key has used is not known. An error of each ends it.
func (e *Engine) StoredUsages(ctx context.Context, each func(Usage) error) error {
	for _, l := range e.limits {
		if l.store == nil || l.holder != nil || l.isRest() || !l.isQuota() {
			continue
		}
		lister, ok := l.store.(StateLister)
		if !ok {
			if err := each(Usage{Limit: l.Name, Shadow: l.Shadow, Problem: errNotListed}); err != nil {
				return err
			}
			continue
		}
		list := &usageList{l: l, each: each}
		list.candidates()
		err := lister.StateKeys(ctx, l.state, list.of, func(key string, under int) error { return list.add(ctx, key, under) })
		if err == nil {
			err = list.flush(ctx)
		}
		if list.ended != nil {
			return list.ended
		}
		if err != nil {
			if err := each(Usage{Limit: l.Name, Shadow: l.Shadow, Problem: fmt.Errorf("its keys were not listed to the end: %w", err)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// usageList lists the usages of one limit.
type usageList struct {
	l     *limit
	plans []*limit     // the limit, and as it is for each plan
	of    []weir.Limit // their limits
	each  func(Usage) error
	ended error // of each
	batch []weir.Charge
}

// candidates finds the parameters that a state may have been written under.
func (u *usageList) candidates() {
	u.plans = []*limit{u.l}
	for i := range u.l.Plans {
		p := u.l.plans[u.l.Plans[i].Plan]
		if p.unlimited {
			p = p.uncharged
		}
		if p != nil {
			u.plans = append(u.plans, p)
		}
	}
	for _, p := range u.plans {
		u.of = append(u.of, p.Limit.Limit)
	}
}

// add adds a key.
func (u *usageList) add(ctx context.Context, key string, under int) error {
	if under < 0 && len(u.l.Plans) > 0 {
		of := Usage{Limit: u.l.Name, Shadow: u.l.Shadow, Problem: errNoPlan}
		of.Key, _ = DecodeKey(key)
		u.ended = u.each(of)
		return u.ended
	}
	p := u.plans[max(under, 0)] // the state is converted to the limit as it is now
	u.batch = append(u.batch, weir.Charge{Name: p.state, Key: key, Limit: p.Limit.Limit, Plan: p.plan, Cost: 1, Op: weir.OpPeek, Usage: true})
	if len(u.batch) < usageBatch {
		return nil
	}
	return u.flush(ctx)
}

// flush asks for what the keys of the batch have used.
func (u *usageList) flush(ctx context.Context) error {
	if len(u.batch) == 0 {
		return nil
	}
	out := make([]weir.Decision, len(u.batch))
	at := time.Now()
	err := u.l.store.Do(ctx, u.batch, out)
	for i, d := range out {
		of := Usage{Limit: u.l.Name, Plan: u.batch[i].Plan, At: at, Shadow: u.l.Shadow}
		of.Key, _ = DecodeKey(u.batch[i].Key)
		switch {
		case err != nil:
			of.Problem = err
		case !stored(d):
			of.Problem = errNotStored
		default:
			of.fillFrom(d, &u.batch[i])
		}
		if of.Used == 0 && of.Problem == nil {
			continue
		}
		if u.ended = u.each(of); u.ended != nil {
			return u.ended
		}
	}
	u.batch = u.batch[:0]
	return nil
}

// stored reports whether a decision tells what is counted in the store: that of a fallback tells what this
// node has admitted meanwhile.
func stored(d weir.Decision) bool {
	return d.Source == weir.SourceStore || d.Source == weir.SourceLease || d.Source == weir.SourceLocal
}
