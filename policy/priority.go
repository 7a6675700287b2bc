package policy

import (
	"fmt"
	"hash/maphash"
	"net/textproto"
	"strings"

	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/internal/httpsyntax"
)

// Priorities say how important requests are at adaptive limits, which refuse the less important ones
// first. The header comes first, then the Priority of the route, then the plan.
type Priorities struct {
	// a header field with the name of a priority, which is believed from trusted proxies alone; empty for
	// none
	Header string
	Plans  []PlanPriority // each plan once

	// While requests of one priority do not fit, some customers are served, the others not, and after a
	// minute others are. A client without a plan counts by its address. default: chance decides about
	// each request
	PerCustomer bool
}

// A PlanPriority is the priority of the requests of a plan.
type PlanPriority struct{ Plan, Priority string }

// String returns it as in a policy file.
func (p PlanPriority) String() string { return p.Plan + ": " + p.Priority }

// PriorityNames returns the names of the priorities, the most important one first.
func PriorityNames() (names []string) {
	for p := adaptive.CriticalPlus; p >= adaptive.Sheddable; p-- {
		names = append(names, p.String())
	}
	return names
}

// priority checks the name of a priority.
func (c *checker) priority(name string, path ...string) {
	if _, err := adaptive.ParsePriority(name); name != "" && err != nil {
		c.wrong(fmt.Sprintf("%q is not a priority", name), suggest(name, PriorityNames()), path...)
	}
}

func (c *checker) priorities() {
	p := &c.Priorities
	switch {
	case p.Header == "":
	case !httpsyntax.IsToken(p.Header):
		c.wrong(fmt.Sprintf("%q is not the name of a header field", p.Header), "write it like X-Priority", "priorities", "header")
	case len(c.TrustedProxies) == 0:
		c.warn("the header is believed only from trusted_proxies, and there are none", "add trusted_proxies with the proxies in front that set or remove the header", "priorities", "header")
	}
	for _, plan := range p.Plans {
		c.priority(plan.Priority, "priorities", "plans", plan.Plan)
		if len(c.Plans.From) == 0 {
			c.wrong("no request has a plan", "plans: { from: [key.plan], ... }, or take it out", "priorities", "plans", plan.Plan)
		}
	}
	if (p.Header != "" || len(p.Plans) > 0 || p.PerCustomer) && !c.HasAdaptive() {
		c.warn("no upstream and no route has an adaptive limit, which priorities are for", "adaptive: {} at an upstream", "priorities")
	}
}

// HasAdaptive reports whether there is an adaptive limit, of an upstream or of a route.
func (p *Policy) HasAdaptive() bool {
	for i := range p.Upstreams {
		if p.Upstreams[i].Adaptive.On {
			return true
		}
	}
	for i := range p.Routes {
		if p.Routes[i].Adaptive.On {
			return true
		}
	}
	return false
}

// ranks is the compiled Priorities.
type ranks struct {
	header      string // in canonical form; empty for none
	plans       map[string]adaptive.Priority
	perCustomer bool
	asks        bool // the customer or the plan matters
	seed        maphash.Seed
}

func newRanks(p *Policy) ranks {
	r := ranks{header: textproto.CanonicalMIMEHeaderKey(p.Priorities.Header), plans: map[string]adaptive.Priority{}, perCustomer: p.Priorities.PerCustomer, seed: maphash.MakeSeed()}
	for _, of := range p.Priorities.Plans {
		r.plans[of.Plan] = *priorityOf(of.Priority)
	}
	r.asks = len(p.Plans.From) > 0 && (r.perCustomer || len(r.plans) > 0)
	return r
}

// priorityOf returns a priority by its name, which was checked; nil for none.
func priorityOf(name string) *adaptive.Priority {
	if name == "" {
		return nil
	}
	p, _ := adaptive.ParsePriority(name)
	return &p
}

// rank returns how important a request is.
func (e *Engine) rank(r *request, a *admission) (as adaptive.Request) {
	if e.ranks.perCustomer {
		of := r.Client
		if r.who.customer != "" {
			of = r.who.customer
		}
		as.User = max(maphash.String(e.ranks.seed, of), 1) // 0 is nobody known
	}
	if e.ranks.header != "" && r.Trusted {
		if value, there, repeated := HeaderValue(r.Header[e.ranks.header]); there && !repeated {
			if p, err := adaptive.ParsePriority(strings.ToLower(value)); err == nil {
				as.Priority = p
				return as
			}
		}
	}
	if a.priority != nil {
		as.Priority = *a.priority
	} else if p, ok := e.ranks.plans[r.who.plan]; ok {
		as.Priority = p
	}
	return as
}
