package active

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
)

// candidate is the candidate policy of a server. Its methods are called one after the other: by New, by
// Tick and Promote with the lock held.
type candidate struct {
	path string
	read version // of the file, when it was last read
}

// ErrNoCandidate says that there is no candidate policy.
var ErrNoCandidate = fmt.Errorf("%w: there is no candidate policy: start weir serve with --candidate FILE", ErrConflict)

// Candidate returns the trial of the candidate policy; nil without one.
func (p *Policy) Candidate() *Trial { return p.trial.Load() }

// openCandidate reads the candidate's file, and starts its trial. A trial that runs ends if the file is
// valid; otherwise it goes on.
func (p *Policy) openCandidate() error {
	p.candidate.read = readVersion(p.candidate.path)
	file, err := policyfile.LoadRegular(p.candidate.path)
	if err != nil {
		return err
	}
	if file, err = p.completed(p.File(), file); err != nil {
		return err
	}
	next, err := newTrial(file, p.customersFor(file))
	if err != nil {
		return err
	}
	return p.endTrial(p.trial.Swap(next))
}

// customersFor returns what looks up customers for a policy on trial, without an effect on requests: no store is
// called, and nothing is waited for. API keys are those of its own files if they are others than those of the
// active policy; of a store, those that the active policy has looked up. Tokens are verified as the active policy
// verifies them.
func (p *Policy) customersFor(file *policyfile.File) policy.Customers {
	c := customersOnTrial{p: p}
	if plans, now := &file.Policy.Plans, p.File(); plans.APIKeys.Path != "" &&
		(now.Policy.Plans.APIKeys.Path == "" || file.Beside(plans.APIKeys.Path) != now.Beside(now.Policy.Plans.APIKeys.Path) ||
			file.Beside(plans.HashSecretFile) != now.Beside(now.Policy.Plans.HashSecretFile)) {
		c.own = file.APIKeys
	}
	return c
}

type customersOnTrial struct {
	p   *Policy
	own *policyfile.APIKeys // nil for those of the active policy
}

func (c customersOnTrial) APIKey(ctx context.Context, key string) (policy.Customer, bool, error) {
	if c.own != nil {
		return c.own.APIKey(ctx, key)
	}
	now := c.p.Now().customers
	if k := now.stored.Load(); k != nil {
		return k.peek(key)
	}
	return now.APIKey(ctx, key)
}

func (c customersOnTrial) Token(ctx context.Context, token string) (policy.Claims, bool) {
	return c.p.Now().customers.Token(ended(ctx), token)
}

// ended returns a context that has ended: what has to wait for it fails at once.
func ended(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// endTrial ends a trial, if there was one. Requests that still decide by it find that it has ended.
func (p *Policy) endTrial(t *Trial) error {
	if t == nil {
		return nil
	}
	return t.close()
}

// tickCandidate reads the candidate's file again if it has changed.
func (p *Policy) tickCandidate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.candidate.path == "" || p.trial.Load() == nil || readVersion(p.candidate.path) == p.candidate.read {
		return
	}
	if err := p.openCandidate(); err != nil {
		p.log.Error("candidate policy not read again: the one before stays on trial", "file", p.candidate.path, "error", err)
		return
	}
	p.log.Info("candidate policy read again: a new trial has begun", "file", p.candidate.path)
}

// Promote makes the candidate policy the active one, as Apply does, and ends its trial. check is given the data of
// the candidate on trial, and may refuse to promote it. Of several calls at once, one promotes it.
func (p *Policy) Promote(ctx context.Context, save bool, check func(candidate []byte) error) (Plan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.trial.Load()
	if t == nil {
		return Plan{}, ErrNoCandidate
	}
	if err := check(t.file.Data); err != nil {
		return Plan{}, err
	}
	plan, err := p.apply(ctx, t.file.Data, save)
	if err != nil {
		return plan, err
	}
	p.trial.Store(nil)
	return plan, p.endTrial(t)
}

// CandidatePlan is what promoting the candidate changes.
func (p *Policy) CandidatePlan() (Plan, error) {
	t := p.trial.Load()
	if t == nil {
		return Plan{}, ErrNoCandidate
	}
	return p.plan(t.file), nil
}

// startCandidate begins the trial of Options.Candidate.
func (p *Policy) startCandidate() error {
	if p.candidate.path == "" {
		return nil
	}
	err := p.openCandidate()
	var invalid *policyfile.InvalidError
	if err != nil && !errors.As(err, &invalid) {
		err = fmt.Errorf("--candidate: %w", err)
	}
	return err
}
