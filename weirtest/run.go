package weirtest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/duration"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/policy"
)

// A Runner runs scripts. Each script has a virtual clock of its own, which jumps from time to time
// without waiting.
type Runner struct {
	// Policy loads the file of a policy line. It may be nil if no script has a policy.
	Policy func(file string) (policy.Policy, error)
	// Open creates the limits of limit lines; default: a keyed.Limiter on the script's clock.
	Open func(l weir.Limit, c *Clock) (Holder, error)
	// Customers returns the customers of the policy that Policy loaded last; nil for none.
	Customers func() policy.Customers
}

// A Holder keeps one limit for each key. Use Keyed to make one of a *keyed.Limiter[string].
type Holder interface {
	Take(key string, cost int64) weir.Decision
	Peek(key string, cost int64) weir.Decision
	Reserve(key string, cost int64, maxDelay time.Duration) (Reservation, bool)
	Join(key string, cost int64, maxDelay time.Duration) (*weir.Place, weir.Decision)
	SetLimit(weir.Limit) error
	Close() error
}

// A Reservation is what Holder.Reserve returns.
type Reservation interface {
	Delay() time.Duration
	Decision() weir.Decision
	Settle(actual int64)
	Cancel()
}

// Keyed makes a Holder of a keyed.Limiter.
func Keyed(k *keyed.Limiter[string]) Holder { return holder{k} }

type holder struct{ *keyed.Limiter[string] }

func (h holder) Reserve(key string, cost int64, maxDelay time.Duration) (Reservation, bool) {
	return h.Limiter.Reserve(key, cost, maxDelay)
}

// A Mismatch is a line of a script with an unexpected result.
type Mismatch struct {
	Name string // of the script
	Line int
	Text string // the line
	Want string // what was expected and did not happen
	Got  string // what happened
}

// String returns the mismatch in three lines.
func (m Mismatch) String() string {
	return fmt.Sprintf("%s:%d: %s\n\twant %s\n\tgot  %s", m.Name, m.Line, m.Text, m.Want, m.Got)
}

// Run parses and runs a script. It returns an error if the script cannot be run: because of its
// syntax, an invalid limit, or a policy that cannot be loaded.
func (r Runner) Run(name string, src io.Reader) ([]Mismatch, error) {
	s, err := ParseScript(name, src)
	if err != nil {
		return nil, err
	}
	x := &run{Runner: r, script: s}
	for i := range s.Steps {
		if err := x.step(&s.Steps[i]); err != nil {
			return x.mismatches, &SyntaxError{name, s.Steps[i].Line, err.Error()}
		}
	}
	x.close()
	slices.SortStableFunc(x.mismatches, func(a, b Mismatch) int { return cmp.Compare(a.Line, b.Line) })
	return x.mismatches, nil
}

// run is the state of a running script.
type run struct {
	Runner
	script     *Script
	clock      *Clock
	limit      weir.Limit
	holder     Holder
	engine     *policy.Engine
	upstreams  *policy.VirtualUpstreams
	open       map[string][]Reservation // not settled yet, by key
	waits      []*wait
	mismatches []Mismatch
}

// wait is a wait line without an outcome so far.
type wait struct {
	step   *Step
	place  *weir.Place
	since  time.Duration
	cancel time.Duration // when the wait is given up; negative: never
}

func (x *run) step(s *Step) error {
	switch s.Kind {
	case OpenLimit:
		return x.openLimit(s)
	case OpenPolicy:
		return x.openPolicy(s)
	}
	if x.clock == nil {
		return fmt.Errorf("nothing is open: begin with a limit or a policy line")
	}
	x.goTo(s.At)
	if s.Target != "" {
		if x.engine == nil {
			return fmt.Errorf("a request needs a policy: open one with policy FILE")
		}
		res, err := x.request(s)
		if err != nil {
			return err
		}
		x.check(s, res)
		return nil
	}
	if x.holder == nil {
		return fmt.Errorf("%s needs a limit: open one with limit ALGORITHM name=value", s.Op)
	}
	res, err := x.operate(s)
	if err != nil || res == nil {
		return err
	}
	x.check(s, *res)
	return nil
}

func (x *run) openLimit(s *Step) error {
	fields := map[string]any{}
	for name, value := range s.Fields {
		fields[name] = value
	}
	l, err := policy.ParseLimit(s.Name, fields)
	if err != nil {
		return err
	}
	x.close()
	x.clock, x.limit = new(Clock), l
	if x.Open != nil {
		x.holder, err = x.Open(l, x.clock)
		return err
	}
	k, err := keyed.New[string](l, keyed.Options{Name: s.Name, Clock: x.clock.Now, Timers: x.clock.AfterFunc})
	x.holder = Keyed(k)
	return err
}

func (x *run) openPolicy(s *Step) error {
	if x.Policy == nil {
		return fmt.Errorf("policies cannot be loaded here")
	}
	p, err := x.Policy(s.Name)
	if err != nil {
		return err
	}
	x.close()
	x.clock = new(Clock)
	x.engine, err = policy.New(p, policy.Options{Clock: x.clock.Now, Timers: x.clock.AfterFunc, Customers: x.customers()})
	if err == nil {
		x.upstreams, err = x.engine.VirtualUpstreams()
	}
	return err
}

// customers returns the customers of the policy that was loaded last.
func (x *run) customers() policy.Customers {
	if x.Customers == nil {
		return nil
	}
	return x.Customers()
}

// close ends the script: the clock runs on until every wait has an outcome.
func (x *run) close() {
	for range maxSteps { // a wait that takes more events than a script may have lines never ends
		if len(x.waits) == 0 {
			break
		}
		next, ok := x.nextEvent()
		if !ok || next-time.Duration(x.clock.Now()) > longestWait {
			for _, w := range x.waits {
				x.check(w.step, result{err: "waits for ever"})
			}
			x.waits = nil
			break
		}
		x.goTo(next)
	}
	if x.holder != nil {
		x.holder.Close()
	}
	if x.engine != nil {
		x.engine.Close()
	}
	x.holder, x.engine, x.open = nil, nil, map[string][]Reservation{}
}

// longestWait is how far the clock runs on at the end of a script.
const longestWait = 101 * 366 * 24 * time.Hour

// nextEvent returns when the next timer fires or the next wait is given up.
func (x *run) nextEvent() (time.Duration, bool) {
	at, ok := x.clock.Next()
	next := time.Duration(at)
	for _, w := range x.waits {
		if w.cancel >= 0 && (!ok || w.cancel < next) {
			next, ok = w.cancel, true
		}
	}
	return max(next, time.Duration(x.clock.Now())), ok
}

// goTo sets the clock. On the way forward, every event happens at its own time.
func (x *run) goTo(at time.Duration) {
	for at >= time.Duration(x.clock.Now()) {
		next, ok := x.nextEvent()
		if !ok || next > at {
			break
		}
		x.clock.Set(int64(next))
		x.settleWaits()
	}
	x.clock.Set(int64(at))
	x.settleWaits()
}

// settleWaits finds the waits that now have an outcome.
func (x *run) settleWaits() {
	now := time.Duration(x.clock.Now())
	x.waits = slices.DeleteFunc(x.waits, func(w *wait) bool {
		select {
		case <-w.place.Ready():
		default:
			if w.cancel < 0 || w.cancel > now {
				return false
			}
			if w.place.Leave() {
				x.check(w.step, result{err: "canceled"})
				return true
			}
		}
		if w.place.Err() != nil {
			x.check(w.step, result{err: "limited"})
			return true
		}
		x.check(w.step, result{word: "allow", delay: now - w.since, delayed: true})
		return true
	})
}

// operate runs one operation on the limit. A nil result comes later.
func (x *run) operate(s *Step) (*result, error) {
	switch s.Op {
	case "take":
		return decided(x.holder.Take(s.Key, s.Cost)), nil
	case "peek":
		return decided(x.holder.Peek(s.Key, s.Cost)), nil
	case "reserve":
		return x.reserve(s)
	case "cancel", "settle":
		open := x.open[s.Key]
		if len(open) == 0 {
			return &result{err: "reservation"}, nil
		}
		last := open[len(open)-1]
		if s.Op == "cancel" {
			last.Cancel()
		} else {
			last.Settle(s.Cost)
		}
		x.open[s.Key] = open[:len(open)-1]
		return &result{word: "ok"}, nil
	case "set":
		fields := map[string]any{}
		for name, value := range s.Fields {
			fields[name] = value
		}
		next, err := policy.WithFields(x.limit, fields)
		if err != nil {
			return nil, err
		}
		if err := x.holder.SetLimit(next); err != nil {
			return nil, err
		}
		x.limit = next
		x.settleWaits()
		return &result{word: "ok"}, nil
	}
	return x.wait(s)
}

func (x *run) reserve(s *Step) (*result, error) {
	within := time.Duration(-1)
	if text, ok := s.Fields["max"]; ok {
		d, err := duration.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("max: %w", err)
		}
		within = d
	}
	r, ok := x.holder.Reserve(s.Key, s.Cost, within)
	res := decided(r.Decision())
	if ok {
		res.delay, res.delayed = r.Delay(), true
		x.open[s.Key] = append(x.open[s.Key], r)
	}
	return res, nil
}

func (x *run) wait(s *Step) (*result, error) {
	within := time.Duration(-1)
	if text, ok := s.Fields["deadline"]; ok {
		t, err := parseTime(text)
		if err != nil {
			return nil, err
		}
		within = max(t-s.At, 0)
	}
	cancel := time.Duration(-1)
	if text, ok := s.Fields["cancel"]; ok {
		t, err := parseTime(text)
		if err != nil {
			return nil, err
		}
		cancel = max(t, s.At)
	}
	if s.Cost < 0 {
		return &result{err: "cost"}, nil
	}
	place, d := x.holder.Join(s.Key, s.Cost, within)
	switch {
	case !d.Allowed && within >= 0 && d.RetryAfter != weir.Never:
		res := &result{err: "limited", decision: &d}
		// it could wait, but not within the given time
		if p, _ := x.holder.Join(s.Key, s.Cost, -1); p != nil {
			p.Leave()
			res.err = "deadline"
		}
		return res, nil
	case !d.Allowed:
		return &result{err: "limited", decision: &d}, nil
	case place == nil:
		return &result{word: "allow", delayed: true, decision: &d}, nil
	}
	x.waits = append(x.waits, &wait{s, place, s.At, cancel})
	x.settleWaits()
	return nil, nil
}

// request decides about an HTTP request. Its upstream responds with 200, or what the line says.
func (x *run) request(s *Step) (result, error) {
	path, query, _ := strings.Cut(s.Target, "?")
	req := policy.Request{Method: s.Op, Host: "localhost", Path: path, Query: query, Header: http.Header{}, Trusted: len(x.engine.Policy().TrustedProxies) > 0}
	takes, status := time.Duration(0), http.StatusOK
	for name, value := range s.Fields {
		switch source, what, _ := strings.Cut(name, "."); source {
		case "from":
			req.Client = policy.ClientKeyOf(value)
			req.Addr, _ = netip.ParseAddr(value) // a test may name its clients by other texts
		case "host":
			req.Host = value
		case "length":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return result{}, fmt.Errorf("length %q is not a whole number", value)
			}
			req.Length = n
		case "takes":
			d, err := duration.Parse(value)
			if err != nil || d <= 0 {
				return result{}, fmt.Errorf("takes %q is not a duration above 0", value)
			}
			takes = d
		case "status":
			n, err := strconv.Atoi(value)
			if err != nil || n < 200 || n > 599 {
				return result{}, fmt.Errorf("status %q is not one of a response: write 200 to 599", value)
			}
			status = n
		case "header":
			req.Header.Add(what, value)
		case "cookie":
			req.Header.Add("Cookie", what+"="+value)
		}
	}
	m := x.engine.Match(req)
	m.AskUpstreams(x.upstreams)
	v := x.engine.DecideMatch(context.Background(), &m)
	if leave, err := v.EnterVirtual(x.upstreams); err == nil && leave != nil { // an error is in the verdict
		if takes > 0 {
			x.clock.AfterFunc(takes, func() { leave(policy.OutcomeOf(status)) })
		} else {
			leave(weir.Ignore)
		}
	}
	v.KeepEstimates()
	res := result{status: status, decision: &v.Decision, delay: v.Delay, delayed: true}
	if v.Route >= 0 {
		if own := x.engine.Policy().Routes[v.Route].Respond; own.IsSet() {
			res.status = own.StatusCode()
		}
	}
	switch v.Outcome {
	case policy.NoRoute:
		res = result{status: http.StatusNotFound}
	case policy.Invalid:
		res = result{status: http.StatusBadRequest, decision: &v.Decision}
	case policy.UnknownCustomer:
		res = result{status: http.StatusUnauthorized, note: "no valid credentials"} // no limit was charged
	case policy.UnverifiedCustomer:
		res = result{status: http.StatusServiceUnavailable, note: "the API key could not be looked up"}
	case policy.Deny:
		refused := x.engine.Policy().Routes[v.Route].Refused
		res = result{status: refused.StatusCode(), decision: &v.Decision}
		if v.Overloaded() {
			res.status = http.StatusServiceUnavailable
		}
	}
	return res, nil
}
