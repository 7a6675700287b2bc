package active

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
)

// A Trial is a candidate policy that decides about the same requests as the active one, in states of its
// own, without any effect on them. Both decisions are compared. It is safe for concurrent use.
type Trial struct {
	file    *policyfile.File
	engine  *policy.Engine
	left    []string // limits that no trial can decide
	since   time.Time
	counts  [outcomes][outcomes]atomic.Uint64 // by the outcomes of the active policy and of the candidate
	skipped atomic.Uint64                     // requests that would have waited, beyond maxTrialWaits
	waiting atomic.Int64
	context context.Context
	cancel  context.CancelFunc
	waits   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	differ []Disagreement // the latest, as a ring
	next   int
}

// outcomes is the number of policy.Outcomes.
const outcomes = int(policy.UnverifiedCustomer) + 1

// Bounds of a trial.
const (
	maxDisagreements = 200
	maxTrialWaits    = 10_000
)

// A Disagreement is a request about which the two policies decided differently.
type Disagreement struct {
	At                 time.Time
	Live, Candidate    policy.Outcome
	LiveBy, TrialBy    string // the limits that refused or delayed
	LiveAt, TrialRoute string // the matches of the routes
	Key                string // of the candidate's limit, see policy.DecodeKey; empty if it refused nothing
}

// TrialCount is how many requests had a pair of outcomes.
type TrialCount struct {
	Live, Candidate policy.Outcome
	Requests        uint64
}

// trialPolicy returns a policy for a trial, and the limits that it leaves out: all states are in memory,
// and what depends on how long requests take, or on their responses, cannot be decided.
func trialPolicy(p policy.Policy) (policy.Policy, []string) {
	var left []string
	limits := make([]policy.Limit, 0, len(p.Limits))
	for _, l := range p.Limits {
		_, places := rules.PlacesOf(l.Limit)
		if places || l.Costs.IsSet() || slices.ContainsFunc(l.Key, func(part string) bool { return strings.HasPrefix(part, "body.") }) {
			left = append(left, l.Name)
			continue
		}
		l.Store, l.OnFailure, l.Tag, l.WarnAt, l.Log = "", "", "", "", ""
		limits = append(limits, l)
	}
	routes := slices.Clone(p.Routes)
	for i := range routes {
		r := &routes[i]
		r.Limits = slices.DeleteFunc(slices.Clone(r.Limits), func(name string) bool { return slices.Contains(left, name) })
		r.Adaptive = policy.Adaptive{}
	}
	upstreams := slices.Clone(p.Upstreams)
	for i := range upstreams {
		upstreams[i].Adaptive = policy.Adaptive{}
	}
	p.Limits, p.Routes, p.Upstreams = limits, routes, upstreams
	return p, left
}

// newTrial starts a trial of a valid policy.
func newTrial(file *policyfile.File, customers policy.Customers) (*Trial, error) {
	p, left := trialPolicy(file.Policy)
	engine, err := policy.New(p, policy.Options{Customers: customers, Values: file.Values, Keys: true, Signals: noSignals})
	if err != nil {
		return nil, err
	}
	t := &Trial{file: file, engine: engine, left: left, since: time.Now()}
	t.context, t.cancel = context.WithCancel(context.Background())
	return t, nil
}

// close ends a trial, and the waits of its requests.
func (t *Trial) close() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	t.waits.Wait()
	return t.engine.Close()
}

// Decide lets the candidate decide about a request that the active policy has decided about. match is that
// of the active policy's route. Without a trial it does nothing.
func (t *Trial) Decide(r policy.Request, live *policy.Verdict, match string) {
	if t == nil || t.context.Err() != nil || live.Outcome == policy.Left {
		return
	}
	v := t.engine.DecideContext(t.context, r)
	t.counts[live.Outcome][v.Outcome].Add(1)
	if live.Outcome != v.Outcome {
		d := Disagreement{At: time.Now(), Live: live.Outcome, Candidate: v.Outcome, LiveBy: live.Limit, TrialBy: v.Limit, LiveAt: match, Key: v.Key}
		if routes := t.file.Policy.Routes; v.Route >= 0 && v.Route < len(routes) {
			d.TrialRoute = routes[v.Route].Match
		}
		t.note(d)
	}
	if v.Outcome == policy.Delay {
		t.wait(&v)
	}
}

// wait keeps a request in the candidate's queue for as long as it would have waited there.
func (t *Trial) wait(v *policy.Verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.waiting.Load() >= maxTrialWaits {
		t.skipped.Add(1)
		v.Cancel()
		return
	}
	t.waiting.Add(1)
	w := *v // the caller's ends before the wait does
	t.waits.Go(func() {
		defer t.waiting.Add(-1)
		_ = w.Wait(t.context) // at its end, the place is given back
	})
}

// note keeps a disagreement, unless another goroutine is just doing so: no request waits for the list.
func (t *Trial) note(d Disagreement) {
	if !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	if len(t.differ) < maxDisagreements {
		t.differ = append(t.differ, d)
		return
	}
	t.differ[t.next] = d
	t.next = (t.next + 1) % maxDisagreements
}

// Disagreements returns the latest requests about which the policies disagreed, the latest first.
func (t *Trial) Disagreements() []Disagreement {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := append(slices.Clone(t.differ[t.next:]), t.differ[:t.next]...)
	slices.Reverse(all)
	return all
}

// Counts returns how many requests had which outcomes, without pairs that no request had.
func (t *Trial) Counts() (all []TrialCount) {
	for live := range t.counts {
		for candidate := range t.counts[live] {
			if n := t.counts[live][candidate].Load(); n > 0 {
				all = append(all, TrialCount{policy.Outcome(live), policy.Outcome(candidate), n})
			}
		}
	}
	return all
}

// File returns the candidate's file.
func (t *Trial) File() *policyfile.File { return t.file }

// Engine returns the candidate's engine.
func (t *Trial) Engine() *policy.Engine { return t.engine }

// Since returns when the trial began.
func (t *Trial) Since() time.Time { return t.since }

// LeftOut returns the limits of the candidate that no trial can decide: those of requests in flight, those
// whose costs are known afterwards, and those by a field of the body.
func (t *Trial) LeftOut() []string { return t.left }

// Skipped returns how many requests were taken out of the candidate's queues, because too many waited there.
func (t *Trial) Skipped() uint64 { return t.skipped.Load() }
