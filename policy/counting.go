package policy

import (
	"slices"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// counting returns a quota with a limit that is never reached, for plans that the quota does not apply to:
// what their customers use is counted all the same, as for bills. It returns nil for an algorithm that does
// not count in windows.
func (l *Limit) counting() weir.Limit {
	if !l.isQuota() || l.Shadow {
		return nil
	}
	of, ok := rules.ParamsOf(l.Limit).(rules.Counted)
	if !ok {
		return nil
	}
	field, most := of.Unbounded()
	unbounded, err := WithFields(l.Limit, map[string]any{field: most})
	if err != nil {
		return nil
	}
	return unbounded
}

// compileCounting compiles what counts for an unlimited plan: in the states of the limit, so that a
// customer whose plan changes keeps what was used. Counters of requests leave it out.
func (l *limit) compileCounting(plan string) (c *limit, err error) {
	of := l.counting()
	if of == nil {
		return nil, nil
	}
	c = new(limit)
	*c = *l
	c.Limit.Limit, c.plan, c.counts = of, plan, new(counts)
	c.onlyCounts = true
	if l.table != nil {
		c.parameters, err = l.table.Parameters(of)
	} else if l.store != nil {
		_, err = weir.NewShared(of, l.store, weir.Named(l.state))
	}
	return c, err
}

// withCounting adds what counts for unlimited plans to the limits that are evaluated last and refuse
// nothing.
func (v *Verdict) withCounting(last []*limit, route *route, r *request) []*limit {
	for _, l := range route.live {
		plan := r.who.plan
		if r.named != nil {
			plan = r.named.of(l).plan
		}
		if c := l.of(plan).uncharged; c != nil {
			last = append(slices.Clip(last), c)
		}
	}
	return last
}
