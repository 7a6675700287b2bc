package policy

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/weirflow/weir"
)

// An Observer is called for decisions as they are made, in the goroutine of the request: its methods must
// not block. They are called concurrently.
type Observer interface {
	// Sees reports whether Observe is to be called for a decision of that limit. It is called for each
	// decision, before anything is put together for Observe. shadow says that a shadow limit decided, and
	// that the outcome is what it would have been.
	Sees(o Outcome, limit string, shadow bool) bool

	Observe(d Observed)

	// Timed is called with how long a decision took, for one of about TimedOneIn decisions: reading the
	// clock twice takes longer than many a decision.
	Timed(took time.Duration)

	// Queued is called with how long a request waited in the queue of a limit, also if it gave up.
	Queued(limit string, waited time.Duration)
}

// TimedOneIn says how many decisions are made for each whose duration is measured. It is a power of 2.
const TimedOneIn = 32

// Observed is a decision as an Observer gets it.
type Observed struct {
	Outcome Outcome
	Match   string // of the route; empty for work that names its limits
	// the limit that refused or delayed, or that has the least left; empty if none was evaluated
	Limit    string
	Key      string // of that limit; see DecodeKey. A long one is replaced by its hash
	Cost     int64
	Delay    time.Duration
	Decision weir.Decision
	Shadow   bool // the limit is a shadow: nothing happened to the request
	Banned   bool // a ban refused it
}

// observes calls the observer about the decision of a request or of asks.
func (v *Verdict) observes(e *Engine, r *request) {
	name := v.Limit
	if name == "" {
		name = v.Decision.By
	}
	if o := e.opts.Observer; o.Sees(v.Outcome, name, false) {
		seen := Observed{Outcome: v.Outcome, Limit: name, Delay: v.Delay, Decision: v.Decision, Match: e.matchOf(v.Route), Banned: strings.HasSuffix(v.Decision.By, banName)}
		seen.Key, seen.Cost = v.keyAndCostOf(name, r)
		o.Observe(seen)
	}
}

// matchOf returns the match of a route; empty for none.
func (e *Engine) matchOf(route int) string {
	if route < 0 || route >= len(e.policy.Routes) {
		return ""
	}
	return e.policy.Routes[route].Match
}

// keyAndCostOf returns the key and the cost of a request at a limit that was evaluated.
func (v *Verdict) keyAndCostOf(limit string, r *request) (string, int64) {
	for i, l := range v.evaluated {
		if l.Name != limit {
			continue
		}
		if v.charges != nil && !v.charges[i].Skip && v.charges[i].Key != "" {
			return v.charges[i].Key, v.charges[i].Cost
		}
		if r.named != nil {
			r.Client = r.named.of(l).client
		}
		key, _ := l.key(nil, r)
		return string(key), v.cost
	}
	return v.Key, v.cost
}

// observes calls the observer about a request that found no place at a Concurrency.
func (d *concurrencyPlace) observes(v *Verdict, of weir.Decision) {
	if e := v.rare.observed; e != nil && d.l.observer.Sees(Deny, d.l.Name, d.l.Shadow) {
		d.l.observer.Observe(Observed{Outcome: Deny, Limit: d.l.Name, Key: d.key, Cost: d.cost, Decision: of, Match: e.matchOf(v.Route), Shadow: d.l.Shadow})
	}
}

// observesOverload calls the observer about a request that an adaptive limit refused when all others had
// admitted it.
func (v *Verdict) observesOverload() {
	if e := v.rare.observed; e != nil && e.opts.Observer.Sees(Deny, v.Limit, false) {
		e.opts.Observer.Observe(Observed{Outcome: Deny, Limit: v.Limit, Cost: 1, Decision: v.Decision, Match: e.matchOf(v.Route)})
	}
}

// observer returns who sees that the request waits; nil for nobody.
func (v *Verdict) observer() Observer {
	for _, l := range v.evaluated {
		if l.Name == v.Limit {
			return l.observer
		}
	}
	return nil
}

// observesWait notes when a request begins to wait for a place, and returns what is called when it ends.
func (l *limit) observesWait() (ended func()) {
	if l.observer == nil {
		return func() {}
	}
	began := time.Now()
	return func() { l.observer.Queued(l.Name, time.Since(began)) }
}

// observesShadow calls the observer about the decision of a shadow limit. It copies the key only if the
// observer wants it.
func observesShadow[K string | []byte](l *limit, key K, d weir.Decision, cost int64, delay time.Duration) {
	if l.observer == nil || l.onlyCounts {
		return
	}
	outcome := Allow
	switch {
	case !d.Allowed:
		outcome = Deny
	case delay > 0:
		outcome = Delay
	}
	if l.observer.Sees(outcome, l.Name, true) {
		l.observer.Observe(Observed{Outcome: outcome, Limit: l.Name, Key: string(key), Cost: cost, Delay: delay, Decision: d, Shadow: true})
	}
}

// isTimed reports, for one of TimedOneIn decisions, that its duration is measured.
func isTimed() bool { return rand.Uint32()%TimedOneIn == 0 }
