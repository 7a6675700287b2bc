package active

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/weirjwt"
)

// customers look up the credentials of requests for one policy: it is its engine's
// policy.Customers.
type customers struct {
	log    *slog.Logger
	path   string // of the files with API keys; empty for none
	secret string // the file with the secret of their hashes
	keys   atomic.Pointer[policyfile.APIKeys]
	jwt    policy.JWT        // with the path of a file
	tokens *weirjwt.Verifier // nil for none

	mu     sync.Mutex // held while the files are read
	looked time.Time  // when they were last read
	// What the latest read found, if it differs from keys. A file that another process is writing can
	// be cut off at the end of a line, and is valid then: it is used once a second read finds the same.
	pending *policyfile.APIKeys
	failed  string // why the latest contents were not taken; empty if they were
	counts  *customerCounts
}

// customerCounts are counted across updates.
type customerCounts struct{ reloaded, failed atomic.Uint64 }

const (
	// With more keys than fit in one file, the files are looked at less often.
	manyKeys  = 8000
	manyEvery = 10 * time.Second
)

// newCustomers returns the customers of a policy file that was loaded. Tokens are verified by the
// same verifier as before if nothing differs for them.
func newCustomers(ctx context.Context, file *policyfile.File, log *slog.Logger, counts *customerCounts, before *customers) (*customers, error) {
	p := &file.Policy.Plans
	c := &customers{log: log, counts: counts, looked: time.Now()}
	if p.APIKeys != "" {
		c.path, c.secret = file.Beside(p.APIKeys), file.Beside(p.HashSecretFile)
	}
	c.keys.Store(file.APIKeys)
	if before != nil && before.keys.Load() != nil && before.path == c.path && before.secret == c.secret {
		c.keys.Store(before.keys.Load()) // tick looks whether the files that this reload found are complete
	}
	if !p.JWT.IsSet() {
		return c, nil
	}
	if c.jwt = p.JWT; !strings.Contains(c.jwt.JWKS, "://") {
		c.jwt.JWKS = file.Beside(c.jwt.JWKS)
	}
	if before != nil && before.jwt == c.jwt {
		c.tokens = before.tokens
		return c, nil
	}
	var err error
	c.tokens, err = weirjwt.New(ctx, weirjwt.Options{
		JWKS: c.jwt.JWKS, Issuer: c.jwt.Issuer, Audience: c.jwt.Audience, Refresh: c.jwt.Refresh, Leeway: c.jwt.Leeway,
		Failed: func(err error) {
			log.Warn("the keys for tokens were not read: those of before stay valid", "error", err)
		},
	})
	return c, err
}

// close ends what next does not go on with.
func (c *customers) close(next *customers) {
	if c != nil && c.tokens != nil && (next == nil || next.tokens != c.tokens) {
		c.tokens.Close()
	}
}

// APIKey implements policy.Customers.
func (c *customers) APIKey(key string) (policy.Customer, bool) { return c.keys.Load().Find(key) }

// PlanOf returns the plan of a customer with API keys.
func (c *customers) PlanOf(customer string) string { return c.keys.Load().PlanOf(customer) }

// Token implements policy.Customers.
func (c *customers) Token(ctx context.Context, token string) (policy.Claims, bool) {
	if c.tokens == nil {
		return nil, false
	}
	claims, err := c.tokens.Texts(ctx, token)
	return claims, err == nil
}

// tick reads the API keys again if their files have changed, all or nothing: after an error the keys
// of before stay valid. A change counts when two reads in a row find it.
func (c *customers) tick() {
	if c.path == "" || !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	now := c.keys.Load()
	if now.Len() > manyKeys && c.pending == nil && time.Since(c.looked) < manyEvery {
		return
	}
	c.looked = time.Now()
	next, problems, err := c.read(now)
	same := next.Same(c.pending)
	c.pending = next
	if next != nil && !same {
		return
	}
	switch {
	case err != nil || len(errorsOf(problems)) > 0:
		if err == nil {
			err = &policyfile.InvalidError{Problems: errorsOf(problems)}
		}
		if c.failed != err.Error() { // it is logged once
			c.failed = err.Error()
			c.counts.failed.Add(1)
			c.logFailure(err)
		}
	case next == nil:
		if c.failed != "" {
			c.log.Info("API keys are as they were before the invalid change", "path", c.path, "keys", now.Len())
		}
		c.failed = ""
	default:
		c.failed, c.pending = "", nil
		c.keys.Store(next)
		c.counts.reloaded.Add(1)
		c.log.Info("API keys reloaded", "path", c.path, "keys", next.Len())
	}
}

// read reads the keys; nil if they are the present ones.
func (c *customers) read(now *policyfile.APIKeys) (*policyfile.APIKeys, []policyfile.Problem, error) {
	secret, err := policyfile.ReadHashSecret(c.secret)
	if err != nil {
		return nil, nil, err
	}
	return policyfile.ReloadAPIKeys(c.path, secret, now)
}

// logFailure logs why the keys were not taken, with the position. Nothing of a key is in it.
func (c *customers) logFailure(err error) {
	var invalid *policyfile.InvalidError
	if !errors.As(err, &invalid) {
		c.log.Error("API keys not reloaded: the previous keys stay valid", "error", err)
		return
	}
	const most = 20
	c.log.Error("API keys not reloaded: the previous keys stay valid", "problems", len(invalid.Problems))
	for _, p := range invalid.Problems[:min(len(invalid.Problems), most)] {
		c.log.Error("API keys", "file", p.File, "line", p.Line, "column", p.Col, "message", p.Message, "fix", p.Fix)
	}
}

func errorsOf(problems []policyfile.Problem) (all []policyfile.Problem) {
	for _, p := range problems {
		if !p.Warning {
			all = append(all, p)
		}
	}
	return all
}

// Customers is what is known of the API keys of the active policy.
type Customers struct {
	Keys             int    // that are valid
	Reloaded, Failed uint64 // changes of their files
}

// Customers returns the state of the API keys.
func (p *Policy) Customers() Customers {
	return Customers{
		Keys: p.Now().customers.keys.Load().Len(), Reloaded: p.customerCounts.reloaded.Load(), Failed: p.customerCounts.failed.Load(),
	}
}

// Tick looks at what may have changed besides the policy file: the files with API keys. It also writes
// the snapshot of quotas. It is called about once a second.
func (p *Policy) Tick() {
	p.Now().customers.tick()
	p.tickQuotas()
}
