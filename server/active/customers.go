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
	path   string                   // of the files with API keys; empty for none
	stored atomic.Pointer[keyStore] // API keys in a store; nil for none
	secret string                   // the file with the secret of their hashes
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
type customerCounts struct {
	reloaded, failed atomic.Uint64
	lookups          keyCounts
}

const (
	// With more keys than fit in one file, the files are looked at less often.
	manyKeys  = 8000
	manyEvery = 10 * time.Second
)

// newCustomers returns the customers of a policy file that was loaded, whose stores are open. Tokens are
// verified by the same verifier as before if nothing differs for them, and so are API keys in a store.
func newCustomers(ctx context.Context, file *policyfile.File, open map[string]*store, log *slog.Logger, counts *customerCounts, before *customers) (*customers, error) {
	p := &file.Policy.Plans
	c := &customers{log: log, counts: counts, looked: time.Now()}
	if p.APIKeys.IsSet() {
		c.secret = file.Beside(p.HashSecretFile)
	}
	if p.APIKeys.Path != "" {
		c.path = file.Beside(p.APIKeys.Path)
	}
	if err := c.openKeys(open[p.APIKeys.Store], p.APIKeys, before); err != nil {
		return nil, err
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
			log.Warn("the keys for tokens were not read: the previous keys stay valid", "error", err)
		},
	})
	return c, err
}

// openKeys prepares the lookup of API keys in a store; nil for none. What was found before stays known.
func (c *customers) openKeys(s *store, settings policy.APIKeys, before *customers) error {
	if s == nil {
		return nil
	}
	secret, err := policyfile.ReadHashSecret(c.secret)
	if err != nil {
		return err
	}
	next, err := newKeyStore(s, secret, settings, c.log, &c.counts.lookups, time.Now)
	if err != nil {
		return err
	}
	if before != nil {
		if old := before.stored.Load(); old.sameAs(next) {
			next = old
		}
	}
	c.stored.Store(next)
	return nil
}

// close ends what next does not go on with.
func (c *customers) close(next *customers) {
	if c != nil && c.tokens != nil && (next == nil || next.tokens != c.tokens) {
		c.tokens.Close()
	}
}

// APIKey implements policy.Customers.
func (c *customers) APIKey(ctx context.Context, key string) (policy.Customer, bool, error) {
	if k := c.stored.Load(); k != nil {
		return k.find(ctx, key)
	}
	customer, valid := c.keys.Load().Find(key)
	return customer, valid, nil
}

// PlanOf returns the plan of a customer with API keys; of keys in a store, only of those that were looked
// up lately.
func (c *customers) PlanOf(customer string) string {
	if k := c.stored.Load(); k != nil {
		return k.planOf(customer)
	}
	return c.keys.Load().PlanOf(customer)
}

// HasPlan reports whether an API key has a plan; of keys in a store, one that was looked up.
func (c *customers) HasPlan(plan string) bool {
	if k := c.stored.Load(); k != nil {
		return k.hasPlan(plan)
	}
	return c.keys.Load().HasPlan(plan)
}

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
	if c.stored.Load() != nil {
		c.tickSecret()
	}
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
			c.log.Info("the invalid change of the API keys was undone", "path", c.path, "keys", now.Len())
		}
		c.failed = ""
	default:
		c.failed, c.pending = "", nil
		c.keys.Store(next)
		c.counts.reloaded.Add(1)
		c.log.Info("API keys reloaded", "path", c.path, "keys", next.Len())
	}
}

// tickSecret reads the secret of keys in a store again. With another one, nothing that was known is valid.
func (c *customers) tickSecret() {
	if !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	secret, err := policyfile.ReadHashSecret(c.secret)
	k := c.stored.Load()
	if err != nil || string(secret) == k.secret {
		if err != nil && c.failed != err.Error() {
			c.failed = err.Error()
			c.log.Error("the secret of API keys was not read: the previous one stays in use", "error", err)
		}
		return
	}
	c.failed = ""
	if next, err := newKeyStore(k.store, secret, k.settings, c.log, k.counts, k.now); err == nil {
		c.stored.Store(next)
		c.log.Info("API keys are looked up with another secret", "store", k.store.def.Name)
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
	Keys             int    // that are valid; of a store, those that are remembered
	Reloaded, Failed uint64 // changes of their files

	Stored  bool // the keys are in a store
	Lookups Lookups
}

// Lookups are how often keys were looked up in a store: found there, unknown there, failed, and refused
// as there were too many.
type Lookups struct{ Found, Unknown, Failed, Refused uint64 }

// Customers returns the state of the API keys.
func (p *Policy) Customers() Customers {
	c, n := p.Now().customers, &p.customerCounts
	of := Customers{Keys: c.keys.Load().Len(), Reloaded: n.reloaded.Load(), Failed: n.failed.Load()}
	if k := c.stored.Load(); k != nil {
		of.Stored, of.Keys = true, k.len()
		of.Lookups = Lookups{n.lookups.found.Load(), n.lookups.unknown.Load(), n.lookups.failed.Load(), n.lookups.refused.Load()}
	}
	return of
}

// Tick looks at what may have changed besides the policy file: the files with API keys. It also writes
// the snapshot of quotas. It is called about once a second.
func (p *Policy) Tick() {
	p.Now().customers.tick()
	p.tickQuotas()
	p.tickCandidate()
}
