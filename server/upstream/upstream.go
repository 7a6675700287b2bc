// Package upstream forwards requests to the targets of an upstream. It balances load, takes failing
// targets out of use, retries requests where that is safe, and ends exchanges that stall.
//
// An Upstream is an http.RoundTripper. Its load balancing also works without net/http: Pick chooses
// a target and counts a request there, and the caller reports to the Exchange that it returns how
// the request went.
package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/adaptive/signals"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/plain"
)

// The reasons why Pick returns no target.
var (
	ErrOut  = errors.New("all targets of the upstream are down")
	ErrFull = errors.New("all targets of the upstream have max_requests in flight")
)

// A Spec is an upstream as a policy describes it.
type Spec struct {
	policy.Upstream
	TLS    *tls.Config // nil for the default
	Digest [32]byte    // of the files and settings that TLS is made of
}

// Options are shared by all upstreams of a Set.
type Options struct {
	Log *slog.Logger // required
	Now func() time.Time
	// Dial opens connections; default: a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	Signals signals.Source // for adaptive limits with BBR; nil if no policy has one

	space *space // of all request buffers
}

// A Set holds the upstreams of a policy by name. Prepare and Commit replace them, and keep the
// state of targets that remain. A Set is safe for concurrent use.
type Set struct {
	opts Options
	mu   sync.Mutex
	all  map[string]*Upstream
}

// NewSet returns an empty Set.
func NewSet(o Options) *Set {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.space = &space{maxMemory: maxBuffered, forUndecided: maxMemory - maxBuffered, maxFiles: maxFiles}
	return &Set{opts: o, all: map[string]*Upstream{}}
}

// An Upstream is a group of targets that serve the same requests. It stays the same object, and its
// targets keep their state, when the policy changes.
type Upstream struct {
	name     string
	opts     *Options
	settings atomic.Pointer[settings]
	retried  atomic.Uint64
	spared   atomic.Uint64 // retries that the budget did not allow

	mu      sync.Mutex
	targets []*Target
	queue   queue
	checks  sync.WaitGroup
}

// settings are an upstream's settings in a policy. They are replaced as a whole.
type settings struct {
	spec      Spec
	retries   int
	budget    *budget
	failures  int // 0 means never down
	out       time.Duration
	refuse    bool // refuse requests while all targets are down
	transport *http.Transport
	strays    *strayGuard   // of the transport
	client    *plain.Client // nil if only the transport can be used
}

// A Change is the upstreams of a new policy, ready to Commit, which cannot fail.
type Change struct {
	set  *Set
	next map[string]*prepared
}

type prepared struct {
	settings *settings
	urls     []*url.URL
	weights  []int64
	limits   []*adaptive.Limiter // for targets that have none with these settings; nil for none
}

// Prepare readies the upstreams of a policy. It changes nothing that is in use.
func (s *Set) Prepare(specs []Spec) (*Change, error) {
	c := &Change{s, map[string]*prepared{}}
	for _, spec := range specs {
		p := &prepared{}
		for _, t := range spec.All() {
			u, err := url.Parse(t.URL)
			if err != nil {
				return nil, fmt.Errorf("the upstream %q: %w", spec.Name, err)
			}
			p.urls, p.weights = append(p.urls, u), append(p.weights, int64(t.Weight))
			limit, err := spec.Adaptive.Limiter(policy.AdaptiveName(spec.Name), s.opts.Signals)
			if err != nil {
				return nil, fmt.Errorf("the upstream %q: %w", spec.Name, err)
			}
			p.limits = append(p.limits, limit)
		}
		if len(p.urls) == 0 {
			return nil, fmt.Errorf("the upstream %q has no targets", spec.Name)
		}
		var err error
		if p.settings, err = s.newSettings(spec, len(p.urls)); err != nil {
			return nil, fmt.Errorf("the upstream %q: %w", spec.Name, err)
		}
		var schemes []string
		for _, at := range p.urls {
			schemes = append(schemes, at.Scheme)
		}
		p.settings.client = newClient(p.settings, schemes, s.opts.Dial)
		c.next[spec.Name] = p
	}
	return c, nil
}

func (s *Set) newSettings(spec Spec, targets int) (*settings, error) {
	b, err := newBudget(either(spec.Retries.Budget, 20))
	if err != nil {
		return nil, err
	}
	retries := spec.Retries.Max
	if retries == 0 && targets > 1 {
		retries = 1
	}
	spec.Timeouts = policy.Timeouts{
		Connect:  either(spec.Timeouts.Connect, 5*time.Second),
		Response: either(spec.Timeouts.Response, time.Minute),
		Idle:     either(spec.Timeouts.Idle, 5*time.Minute),
		Upgraded: either(spec.Timeouts.Upgraded, time.Hour),
	}
	spec.MaxIdle = either(spec.MaxIdle, 1024)
	return &settings{
		spec:      spec,
		retries:   max(retries, 0),
		budget:    b,
		failures:  max(either(spec.Health.Failures, 5), 0),
		out:       either(spec.Health.DownFor, 10*time.Second),
		refuse:    spec.Health.AllDown == "refuse",
		transport: newTransport(&spec, s.opts.Dial),
		strays:    new(strayGuard),
	}, nil
}

// either returns v, or the default if v is zero.
func either[T comparable](v, usual T) T {
	var zero T
	if v == zero {
		return usual
	}
	return v
}

// Commit replaces the upstreams. Requests in flight finish at the targets that they have.
func (c *Change) Commit() {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	for name, p := range c.next {
		u := c.set.all[name]
		if u == nil {
			u = &Upstream{name: name, opts: &c.set.opts}
			c.set.all[name] = u
		}
		u.change(p)
	}
	for name, u := range c.set.all {
		if c.next[name] == nil {
			u.retire()
			delete(c.set.all, name)
		}
	}
}

// Get returns the upstream with that name, or nil.
func (s *Set) Get(name string) *Upstream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[name]
}

// Close stops the health checks and closes idle connections. Call it when no request is in flight.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.all {
		u.retire()
	}
	for _, u := range s.all {
		u.checks.Wait()
	}
}

// change replaces settings and targets. A target that stays keeps its state; a new one is up.
func (u *Upstream) change(p *prepared) {
	old := u.settings.Load()
	if old != nil && sameTransport(&old.spec, &p.settings.spec) {
		p.settings.transport, p.settings.strays = old.transport, old.strays
		if old.client != nil && p.settings.client != nil && old.spec.Timeouts == p.settings.spec.Timeouts {
			p.settings.client = old.client
		}
	}
	if old != nil && old.spec.Retries == p.settings.spec.Retries {
		p.settings.budget = old.budget
	}
	u.settings.Store(p.settings)
	if old != nil && old.transport != p.settings.transport {
		// connections in use are closed later, after they have become idle
		old.transport.CloseIdleConnections()
	}
	if old != nil && old.client != nil && old.client != p.settings.client {
		old.client.Close()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	before := map[string]*Target{}
	for _, t := range u.targets {
		before[t.url.String()] = t
	}
	next := make([]*Target, 0, len(p.urls))
	for i, at := range p.urls {
		t := before[at.String()]
		if t == nil {
			t = &Target{url: at, addr: address(at), up: true}
		}
		delete(before, at.String())
		t.weight = p.weights[i]
		t.adapt(p.settings.spec.Adaptive, p.limits[i])
		next = append(next, t)
	}
	for _, t := range before {
		t.stopChecks()
	}
	u.targets = next
	for _, t := range next {
		u.check(t, old)
	}
}

// retire stops the health checks and closes idle connections.
func (u *Upstream) retire() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, t := range u.targets {
		t.stopChecks()
	}
	s := u.settings.Load()
	s.transport.CloseIdleConnections()
	if s.client != nil {
		s.client.Close()
	}
}

// address returns the HOST:PORT to connect to.
func address(at *url.URL) string {
	if at.Port() != "" {
		return at.Host
	}
	return at.Host + ":80" // only targets with http use it: https goes through the transport
}

// Upgrades reports whether connections to the targets can switch to another protocol: HTTP/2 has no
// upgrades.
func (u *Upstream) Upgrades() bool {
	p := u.settings.Load().spec.Protocol
	return p != "h2" && p != "h2c"
}

// Name returns the upstream's name in the policy.
func (u *Upstream) Name() string { return u.name }

// MayRetry asks the budget whether a request may be sent to one more target, and counts the retry
// as sent or as spared.
func (u *Upstream) MayRetry() bool {
	if !u.settings.Load().budget.spend() {
		u.spared.Add(1)
		return false
	}
	u.retried.Add(1)
	return true
}

// Stats are the counters of an upstream.
type Stats struct {
	Name    string
	Retries uint64 // requests that were sent again
	Spared  uint64 // requests that were not sent again because the budget was spent
	Targets []TargetStats
}

// TargetStats are the counters of a target.
type TargetStats struct {
	Target             string // the host and port of its URL
	Requests, Failures uint64
	InFlight           int
	Up                 bool // may get requests
	Adaptive           AdaptiveStats
}

// Stats returns the counters of all upstreams, in no particular order.
func (s *Set) Stats() (all []Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.all {
		all = append(all, u.stats())
	}
	return all
}

func (u *Upstream) stats() Stats {
	u.mu.Lock()
	defer u.mu.Unlock()
	st := Stats{Name: u.name, Retries: u.retried.Load(), Spared: u.spared.Load()}
	now := u.opts.Now()
	for _, t := range u.targets {
		st.Targets = append(st.Targets, TargetStats{t.url.Host, t.requests, t.failed, int(t.inFlight), t.up && !now.Before(t.until), t.adaptiveStats()})
	}
	return st
}
