// Package active owns the policy that is being served: its file, its engine and its stores. It
// replaces all three together, and knows none of the faces that serve requests: they are given a
// *Policy, and join it to be updated with it.
package active

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/decisions"
	"github.com/weirflow/weir/server/policyfile"
)

// Options are what a Policy is made with.
type Options struct {
	Log *slog.Logger // required

	// Path is the policy file, for Reload, Changed and saving; empty for a policy that comes from
	// no file.
	Path string

	// Grace is how long after an update the stores that it replaced stay open, for the requests
	// that began before it. Default: 30 s.
	Grace time.Duration

	// Node says which of the nodes in a store's URL this process is, for stores that need to know it.
	// Default: the URL has to say so.
	Node string

	// Accept refuses a valid policy that cannot be served, or that cannot replace the active one
	// while it is served. Default: every valid policy is accepted. A candidate whose Untrusted is
	// set is only planned, for a caller who may not learn about files of this machine.
	Accept func(now, candidate *policyfile.File) error

	// Succeeds says that TakeOver follows New, before anything is served: the counts of quotas in memory
	// come from the process before, and not from the snapshot file.
	Succeeds bool

	// Complete adds to an acceptable policy what other files have that it names. Default: nothing is
	// added. It may be given a file that it has completed before.
	Complete func(file *policyfile.File) (*policyfile.File, error)

	// ConnectLater has New and Update not wait for stores, for a caller whose requests may come before
	// they return. Until a store is connected, a request waits for its deadline at most, and then its
	// fallback decides. Settle waits.
	ConnectLater bool

	// Candidate is the file of a policy on trial beside the active one; empty for none.
	Candidate string

	// Top is how many counters each limit has for its heaviest and its most refused keys. Default: none.
	Top int

	settling time.Duration // in place of the default; for tests
	backoff  time.Duration // before the first retry of a webhook; for tests
}

// A Snapshot is a policy with all that decides by it. It is never changed: an update makes another
// one.
type Snapshot struct {
	File   *policyfile.File
	Engine *policy.Engine
	Stores map[string]weir.Store // by name
	Direct map[string]weir.Store // the same without failover, for clients that decide themselves

	customers *customers
}

// A Part is whatever else is made of the policy: a face has listeners, certificates and routes to
// replace. Parts are updated in the order in which they joined, one update after the other.
type Part interface {
	// Prepare readies the part for the next policy, and does all that can fail. What is in force
	// stays as it is. now is nil when the part joins.
	Prepare(ctx context.Context, now *Snapshot, next Candidate) (Change, error)
}

// A Candidate is the policy that becomes active if every part can be prepared for it.
type Candidate struct {
	File   *policyfile.File
	Stores map[string]weir.Store // by name
}

// A Change is a prepared part. Either Commit or Discard is called, once.
type Change interface {
	Commit(next *Snapshot) // puts the change in force; it cannot fail
	Discard()              // gives back what Prepare opened
}

// A Policy is the active policy. It is safe for concurrent use.
type Policy struct {
	log     *slog.Logger
	path    string
	options Options
	stores  *storeSet
	current atomic.Pointer[Snapshot]
	status  atomic.Pointer[Status]
	trial   atomic.Pointer[Trial] // of the candidate policy; nil for none
	recent  recent

	reloaded, failed atomic.Uint64
	customerCounts   customerCounts
	snapshots        snapshots // guarded by mu
	hook             *webhook
	decisions        *decisions.Observers
	machine          machine

	mu    sync.Mutex // held by an update from its first step to its last, and for what follows
	parts []Part
	since time.Time // of the last update
	read  version   // of the policy file, when it was last read or written
	kept  []byte    // what the state file holds

	candidate candidate
}

const defaultGrace = 30 * time.Second

// New makes a policy file the active policy. A store that cannot be reached is logged, and the
// limits start without it; a store that cannot even be tried is an error.
func New(ctx context.Context, file *policyfile.File, o Options) (*Policy, error) {
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.Accept == nil {
		o.Accept = func(_, _ *policyfile.File) error { return nil }
	}
	if o.Complete == nil {
		o.Complete = func(file *policyfile.File) (*policyfile.File, error) { return file, nil }
	}
	seen := decisions.New()
	p := &Policy{decisions: seen, log: o.Log, path: o.Path, options: o, stores: newStores(o, seen.Called), since: time.Now(), read: versionOf(file.Data)}
	file, err := p.completed(nil, file)
	if err != nil {
		return nil, err
	}
	logged, err := decisionLog(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Path, err)
	}
	if err := p.machine.open(&file.Policy); err != nil {
		return nil, fmt.Errorf("%s: %w", file.Path, err)
	}
	begun := false
	defer func() {
		if !begun {
			p.machine.closeUnless(nil)
		}
	}()
	open, err := p.stores.next(ctx, file.Policy)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Path, err)
	}
	p.stores.use(open)
	first := &Snapshot{File: file, Stores: given(open), Direct: direct(open)}
	if first.customers, err = newCustomers(ctx, file, open, o.Log, &p.customerCounts, nil); err != nil {
		p.stores.close()
		return nil, fmt.Errorf("%s: %w", file.Path, err)
	}
	p.hook = newWebhook(o.Log, p.webhookURL, p.webhookSecret, cmp.Or(o.backoff, webhookBackoff))
	if first.Engine, err = policy.New(file.Policy, policy.Options{Stores: first.Stores, Customers: first.customers, Values: file.Values, Warn: p.hook.warn, Undecidable: logUndecidable(o.Log), Observer: p.decisions, Top: o.Top, Signals: &p.machine}); err != nil {
		p.hook.close()
		first.customers.close(nil)
		p.stores.close()
		return nil, err
	}
	p.current.Store(first)
	p.publish(false)
	p.decisions.LogTo(p.log, logged)
	p.recent.set(&file.Policy)
	err = p.restore(file)
	if p.snapshots.passed = o.Succeeds; !o.Succeeds {
		err = errors.Join(err, p.restoreQuotas(file))
	}
	if err == nil {
		p.candidate.path = o.Candidate
		err = p.startCandidate()
	}
	if err != nil {
		p.snapshots.passed = true // what was not restored is not overwritten
		return nil, errors.Join(err, p.Close())
	}
	begun = true
	return p, nil
}

// Settle waits until the stores are connected and prepared that ConnectLater did not wait for: for a
// second at most until they are connected, and as long until they are prepared.
func (p *Policy) Settle(ctx context.Context) { p.stores.settle(ctx, p.File().Policy) }

// Now returns the active policy.
func (p *Policy) Now() *Snapshot { return p.current.Load() }

// webhookURL returns where warnings of limits are sent; empty for nowhere.
func (p *Policy) webhookURL() string { return p.File().Policy.Warnings.Webhook }

// webhookSecret returns the file that calls of the webhook are signed with; empty for none.
func (p *Policy) webhookSecret() string {
	file := p.File()
	if file.Policy.Warnings.SecretFile == "" {
		return ""
	}
	return file.Beside(file.Policy.Warnings.SecretFile)
}

// File returns the file of the active policy.
func (p *Policy) File() *policyfile.File { return p.Now().File }

// Engine returns the engine of the active policy.
func (p *Policy) Engine() *policy.Engine { return p.Now().Engine }

// Decisions returns what shows the decisions as they are made.
func (p *Policy) Decisions() *decisions.Observers { return p.decisions }

// Join prepares a part for the active policy, and updates it with the policy from then on.
func (p *Policy) Join(ctx context.Context, part Part) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Now()
	change, err := part.Prepare(ctx, nil, Candidate{now.File, now.Stores})
	if err != nil {
		return err
	}
	change.Commit(now)
	p.parts = append(p.parts, part)
	return nil
}

// Update makes another file the active policy, all or nothing: after an error the old policy is
// served as before. Limits that keep their name and their key keep their counts. Requests in flight
// end under the policy that they began with.
func (p *Policy) Update(ctx context.Context, file *policyfile.File) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replace(ctx, file)
}

// Refresh updates the active policy with what other files have now that it names.
func (p *Policy) Refresh(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replace(ctx, p.File())
}

// replace is Update while the lock is held.
func (p *Policy) replace(ctx context.Context, file *policyfile.File) error {
	file, err := p.completed(p.File(), file)
	if err != nil {
		return err
	}
	if err := p.update(ctx, file); err != nil {
		return err
	}
	p.publish(p.Status().FromAPI)
	return nil
}

// completed refuses a policy that cannot be served, and returns another with what other files add to it.
// A candidate whose Untrusted is set has what they have added to the active policy.
func (p *Policy) completed(now, candidate *policyfile.File) (*policyfile.File, error) {
	if err := p.options.Accept(now, candidate); err != nil {
		return nil, err
	}
	if now != nil && candidate.Untrusted {
		return candidate.KeepElsewhere(now), nil
	}
	return p.options.Complete(candidate)
}

// update makes a file the active policy that was completed. The lock is held.
func (p *Policy) update(ctx context.Context, file *policyfile.File) (err error) {
	old := p.Now()
	logged, err := decisionLog(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file.Path, err)
	}
	if err := p.machine.open(&file.Policy); err != nil {
		return fmt.Errorf("%s: %w", file.Path, err)
	}
	defer func() { p.machine.closeUnless(&p.File().Policy) }()
	open, err := p.stores.next(ctx, file.Policy)
	if err != nil {
		return fmt.Errorf("%s: %w", file.Path, err)
	}
	next := &Snapshot{File: file, Stores: given(open), Direct: direct(open)}
	var changes []Change
	defer func() {
		if err != nil {
			for _, c := range changes {
				c.Discard()
			}
			p.stores.discard(open)
			next.customers.close(old.customers)
		}
	}()
	if next.customers, err = newCustomers(ctx, file, open, p.log, &p.customerCounts, old.customers); err != nil {
		return fmt.Errorf("%s: %w", file.Path, err)
	}
	for _, part := range p.parts {
		c, err := part.Prepare(ctx, old, Candidate{file, next.Stores})
		if err != nil {
			return err
		}
		changes = append(changes, c)
	}
	// The engine is last: it fails without a change, or changes the limits that both engines share.
	// Nothing after it fails.
	if next.Engine, err = old.Engine.NextWith(file.Policy, next.Stores, next.customers); err != nil {
		return err
	}
	p.current.Store(next)
	old.customers.close(next.customers)
	p.stores.use(open)
	for _, c := range changes {
		c.Commit(next)
	}
	p.decisions.LogTo(p.log, logged)
	p.since = time.Now()
	p.recent.set(&file.Policy)
	if err := old.Engine.Retire(next.Engine); err != nil {
		p.log.Warn("limits of the old policy were not closed", "error", err)
	}
	for _, r := range old.File.Policy.Restarts(&file.Policy) {
		p.log.Warn("limit starts over", "limit", r.Limit, "why", r.Why)
	}
	return nil
}

// Close closes the engine and the stores. Nothing may be served any more.
func (p *Policy) Close() error {
	err := errors.Join(p.SaveQuotas(), p.endTrial(p.trial.Swap(nil)), p.Engine().Close())
	p.decisions.LogTo(nil, nil)
	p.Now().customers.close(nil)
	p.hook.close()
	p.stores.close()
	p.machine.closeUnless(nil)
	return err
}
