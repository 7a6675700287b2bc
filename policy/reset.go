package policy

import (
	"context"

	"github.com/weirflow/weir"
)

// Reset makes a key of a limit start over without counts. Bans and grants of the key stay. Limits of a
// zone share their states: a reset is one of the zone. The ask's cost does not matter. The error is an
// *AskError, or that of the store.
func (e *Engine) Reset(ctx context.Context, a Ask) error {
	e, in := e.enter()
	defer in.leave()
	a.OwnCost = true
	all, err := e.check([]Ask{a})
	if err != nil {
		return err
	}
	l := all[0].limit.of(all[0].plan)
	if err := l.reset(ctx, all[0]); err != nil {
		return err
	}
	if l.rest != nil { // the shadow that keys outside of a roll_out have
		return l.rest.reset(ctx, all[0])
	}
	return nil
}

func (l *limit) reset(ctx context.Context, n *namedAsk) error {
	r := &request{named: &namedAsks{all: []*namedAsk{n}, peek: true}}
	var buf [maxKey]byte
	key, _ := l.key(buf[:0], r)
	switch {
	case l.store != nil:
		batch := []weir.Charge{{Name: l.state, Key: l.keyInStore(key, r), Limit: l.Limit.Limit, Plan: l.plan, Op: weir.OpReset}}
		return l.store.Do(ctx, batch, make([]weir.Decision, 1))
	case l.zone != nil:
		l.zone.table.Reset(string(key))
	default:
		l.table.Reset(string(key))
	}
	return nil
}
