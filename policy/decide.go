package policy

import (
	"context"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// An Outcome is what becomes of a request.
type Outcome uint8

// The outcomes.
const (
	Allow   Outcome = iota // it may go now
	Delay                  // it may go when Wait returns
	Deny                   // a limit refused it
	NoRoute                // no route matched
	Invalid                // a header field that holds the cost does not hold one
)

// String returns the outcome's name.
func (o Outcome) String() string {
	return [...]string{"allow", "delay", "deny", "no route", "invalid"}[o]
}

// A Verdict is the answer to a request.
type Verdict struct {
	Outcome Outcome
	Route   int    // the index of the route that matched; -1 where none did
	Limit   string // the limit that refused or delayed it; empty otherwise
	Key     string // that limit's key for the request, see DecodeKey; where Options.Keys is set, or several limits were asked

	// Decision is that of the limits together: of the one that refused, or of the one with the least remaining.
	Decision weir.Decision

	Delay time.Duration // how long Wait is to take, if nobody leaves the line

	asked   []*limit
	charges []keyed.Charge[string] // one for each asked; nil where one decided
}

// Decide asks the limits of the first route that matches, charges all of them or none, and says what becomes of the request.
//
// A limit that is a queue is joined where it is busy: the outcome is Delay, and the request's place is held until Wait or Cancel. All
// other limits are charged when the request is accepted into the queue, not when it leaves it.
//
// Shadow limits are asked last, and only about what the others admit: so each counts what it would have counted alone beside them.
func (e *Engine) Decide(req Request) Verdict {
	r := request{Request: req}
	for i := range e.routes {
		if e.routes[i].pattern.matches(&r) {
			return e.decide(&r, i)
		}
	}
	e.noRoute.Add(1)
	return Verdict{Outcome: NoRoute, Route: -1}
}

func (e *Engine) decide(r *request, index int) Verdict {
	route := &e.routes[index]
	r.pattern = &route.pattern
	v := Verdict{Route: index, Decision: weir.Decision{Allowed: true}, asked: route.live}
	if len(route.live) > 0 && !v.one(r) {
		v.all(r, route)
	}
	if v.Outcome == Allow || v.Outcome == Delay {
		for _, l := range route.shadow {
			l.shadow(r)
		}
	}
	return v
}

// one decides by a single limit where nothing of its charge has to be held on to: there are no charges then. It reports false where all
// has to decide: for several limits, for a length that is not known yet, and for a queue that is busy.
func (v *Verdict) one(r *request) bool {
	if len(v.asked) != 1 || v.asked[0].cost.open(r) {
		return false
	}
	var buf [maxKey]byte
	l := v.asked[0]
	key, cost, q := l.question(buf[:0], r)
	switch q {
	case asks:
		d := keyed.TakeText(l.table, key, cost)
		switch {
		case d.Allowed:
			v.Decision = d
			l.counts.allowed.Add(1)
		case l.wait:
			return false
		default:
			v.deny(l, l.text(key), d)
			l.counts.limited.Add(1)
		}
	case skip:
		v.asked = nil
	default:
		v.settle(l, key, q)
	}
	return true
}

// all decides by the limits together.
func (v *Verdict) all(r *request, route *route) {
	v.charges = make([]keyed.Charge[string], len(route.live))
	if v.ask(r) {
		v.charge(route)
		v.count()
	}
}

// ask works out keys and costs. It reports false where that alone settles the matter.
func (v *Verdict) ask(r *request) bool {
	var buf [maxKey]byte
	for i, l := range v.asked {
		c := &v.charges[i]
		key, cost, q := l.question(buf[:0], r)
		switch q {
		case skip:
			c.Skip = true
		case asks:
			c.Key, c.Cost, c.Wait, c.Keep = string(key), cost, l.wait, l.cost.open(r)
		default:
			v.settle(l, key, q)
			return false
		}
	}
	return true
}

// question is what a limit is to be asked about a request, or why it is not asked.
type question uint8

const (
	asks  question = iota
	skip           // a part of the key is missing, and the limit does not apply then
	lacks          // a part of the key is missing, and the request is refused then
	cheat          // the header field that is to hold the cost holds none
)

// question works out a limit's key and cost for a request.
func (l *limit) question(buf []byte, r *request) (key []byte, cost int64, q question) {
	key, present := l.key(buf, r)
	if !present {
		switch l.OnMissing {
		case "skip":
			return key, 0, skip
		case "deny":
			return key, 0, lacks
		}
	}
	cost, ok := l.cost.of(r)
	if !ok {
		return key, 0, cheat
	}
	return key, cost, asks
}

// key makes a limit's key for a request. present is false where a part is missing.
func (l *limit) key(buf []byte, r *request) (key []byte, present bool) {
	present = true
	for _, p := range l.parts {
		value, ok := p.value(r)
		present = present && ok
		buf = appendKey(buf, value)
	}
	return seal(buf), present
}

// settle refuses a request of which a limit does not need to be asked.
func (v *Verdict) settle(l *limit, key []byte, q question) {
	v.deny(l, l.text(key), weir.Decision{RetryAfter: weir.Never, By: l.Name})
	if q == cheat {
		v.Outcome = Invalid
		return
	}
	l.counts.limited.Add(1)
}

// text is a key that outlives the request, where verdicts carry it.
func (l *limit) text(key []byte) string {
	if !l.tells {
		return ""
	}
	return string(key)
}

func (v *Verdict) deny(l *limit, key string, d weir.Decision) {
	v.Outcome, v.Limit, v.Key, v.Decision = Deny, l.Name, key, d
}

// charge asks the limits and sets the outcome.
func (v *Verdict) charge(r *route) {
	v.Decision, _ = r.group.Take(v.charges) // the error is for a number of charges that is not the group's
	for i, l := range v.asked {
		c := &v.charges[i]
		switch {
		case c.Skip:
		case !v.Decision.Allowed && l.Name == v.Decision.By:
			v.deny(l, c.Key, v.Decision)
		case c.Place != nil && c.Place.Delay() > v.Delay:
			v.Outcome, v.Limit, v.Key, v.Delay = Delay, l.Name, c.Key, c.Place.Delay()
		}
	}
}

// count counts the outcome: once for each limit asked, and for a refusal only where it was refused.
func (v *Verdict) count() {
	for i, l := range v.asked {
		c := &v.charges[i]
		switch {
		case c.Skip:
		case v.Outcome == Deny:
			if l.Name == v.Limit {
				l.counts.limited.Add(1)
			}
		case c.Place != nil:
			l.counts.delayed.Add(1)
		default:
			l.counts.allowed.Add(1)
		}
	}
}

// shadow decides in a limit's own state, which nothing else looks at.
func (l *limit) shadow(r *request) {
	var buf [maxKey]byte
	key, cost, q := l.question(buf[:0], r)
	switch q {
	case lacks:
		l.counts.limited.Add(1)
		return
	case skip, cheat:
		return
	}
	var d weir.Decision
	var delay time.Duration
	if _, queue := l.Limit.Limit.(weir.LeakyBucket); queue {
		// It would have waited: as nobody really waits, its charge is made ahead.
		res, _ := l.table.Reserve(string(key), cost, -1)
		d, delay = res.Decision(), res.Delay()
	} else {
		d = keyed.TakeText(l.table, key, cost)
	}
	switch {
	case !d.Allowed:
		l.counts.limited.Add(1)
	case delay > 0:
		l.counts.delayed.Add(1)
	default:
		l.counts.allowed.Add(1)
	}
}

// Wait holds the caller until a delayed request may go. When the context ends first it returns the context's error, and the request's
// places are given up and its charges given back as by Cancel.
func (v *Verdict) Wait(ctx context.Context) error {
	for i := range v.charges {
		place := v.charges[i].Place
		if place == nil {
			continue
		}
		select {
		case <-place.Ready():
			if err := place.Err(); err != nil { // the limit was changed, and it does not fit any more
				v.Cancel()
				return err
			}
		case <-ctx.Done():
			if place.Leave() {
				v.Cancel()
				return ctx.Err()
			}
		}
	}
	return nil
}

// Cancel gives back what was charged for a request that will not be served: exactly where it still waits, as far as it never admits
// too much where it was charged ahead of the wait. Of a request that could go at once nothing is given back.
func (v *Verdict) Cancel() {
	for i := range v.charges {
		v.charges[i].Cancel()
	}
}

// SettleBytes tells the limits whose cost is in bytes how long a body was whose length was not known, once it has been read.
func (v *Verdict) SettleBytes(n int64) {
	for i := range v.charges {
		if v.charges[i].Keep {
			v.charges[i].Settle(n)
		}
	}
}

// CountsBytes reports whether SettleBytes has somebody to tell.
func (v *Verdict) CountsBytes() bool {
	for i := range v.charges {
		if v.charges[i].Keep {
			return true
		}
	}
	return false
}

// Asked is one limit that was asked about a request, for header fields.
type Asked struct {
	Name     string
	Quota    int64         // its capacity
	Window   time.Duration // the time that the capacity takes to come back
	Decision weir.Decision
}

// Asked returns the limits that were asked, in the order of the route. Shadow limits are not among them.
func (v *Verdict) Asked() []Asked {
	all := make([]Asked, 0, len(v.asked))
	for i, l := range v.asked {
		d := v.Decision // of the only one, where there are no charges
		if v.charges != nil {
			if v.charges[i].Skip {
				continue
			}
			d = v.charges[i].Decision
		}
		if d.Limit > 0 {
			all = append(all, Asked{l.Name, d.Limit, l.window, d})
		}
	}
	return all
}
