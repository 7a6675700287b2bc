package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/weirflow/weir/policy"
)

// AdaptiveCount is what became of an adaptive limit: of a route, or of a target of an upstream.
type AdaptiveCount struct {
	Limit                         string // such as adaptive:app
	Target                        string // the address of the target; empty for a route
	OK, Ignored, Dropped, Refused int64
	Lowest, Highest, Last         int64 // the limit, looked at once a second of the log
}

// replayedLimits are the adaptive limits of a policy, and what was seen of them.
type replayedLimits struct {
	engine    *policy.Engine
	upstreams *policy.VirtualUpstreams
	seen      []AdaptiveCount // of the routes, then of the targets
	lookedAt  int64
	unknown   int64 // requests without a duration
}

// never is a time before all.
const never = -1 << 62

// limitsOf returns the adaptive limits of an engine's policy; nil if there are none.
func (r *runner) limitsOf(engine *policy.Engine) (*replayedLimits, error) {
	if a, known := r.adaptive[engine]; known {
		return a, nil
	}
	r.adaptive[engine] = nil
	if p := engine.Policy(); !p.HasAdaptive() {
		return nil, nil
	}
	u, err := engine.VirtualUpstreams()
	if err != nil {
		return nil, err
	}
	r.adaptive[engine] = &replayedLimits{engine: engine, upstreams: u, lookedAt: never}
	return r.adaptive[engine], nil
}

// look notes the limits once a second.
func (a *replayedLimits) look(now int64) {
	if now-a.lookedAt < int64(time.Second) {
		return
	}
	a.lookedAt = now
	all := a.engine.AdaptiveCounts()
	routes := len(all)
	targets, addrs := a.upstreams.Counts()
	all = append(all, targets...)
	if a.seen == nil {
		a.seen = make([]AdaptiveCount, len(all))
	}
	for i, s := range all {
		c := &a.seen[i]
		if c.Limit = s.Name; i >= routes {
			c.Target = addrs[i-routes]
		}
		o := s.Outcomes
		c.OK, c.Ignored, c.Dropped, c.Refused = int64(o.OK), int64(o.Ignored), int64(o.Dropped), int64(o.Refused)
		c.Last = s.Limit
		c.Lowest, c.Highest = min(cmp.Or(c.Lowest, s.Limit), s.Limit), max(c.Highest, s.Limit)
	}
}

// count returns what became of the limits until now, and how many requests had no duration.
func (a *replayedLimits) count() ([]AdaptiveCount, int64) {
	if a == nil {
		return nil, 0
	}
	a.lookedAt = never
	a.look(0)
	return a.seen, a.unknown
}

// enter takes the places of a request at adaptive limits, until its response has ended.
func (r *runner) enter(a *replayedLimits, v *policy.Verdict, q *query) {
	took, status := q.res.Duration, q.res.Status
	if took < 0 {
		if v.Measured() {
			a.unknown++
		}
		v.WithoutPlaces()
		return
	}
	leave, err := v.EnterVirtual(a.upstreams)
	if err == nil && leave != nil {
		r.last = max(r.last, r.clock.Now()+int64(took))
		r.clock.AfterFunc(took, func() { leave(policy.OutcomeOf(status)) })
	}
}

// adaptives writes the table of adaptive limits.
func (r *Report) adaptives(b *bytes.Buffer) {
	if len(r.Adaptive) == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\nadaptive limit\ttarget\tok\tignored\tdropped\trefused\tlowest\thighest\tlast\t\n")
	for _, c := range r.Adaptive {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", shownName(c.Limit), shownName(cmp.Or(c.Target, "-")), c.OK, c.Ignored, c.Dropped, c.Refused, c.Lowest, c.Highest, c.Last)
	}
	t.Flush()
	if r.NoDuration > 0 {
		fmt.Fprintf(b, "  %d requests have no duration in the log, and took no place\n", r.NoDuration)
	}
}
