package policy_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// directory is a policy.Customers for tests.
type directory struct {
	keys   map[string]policy.Customer
	tokens map[string]policy.Claims
	down   error // of every lookup of a key
}

func (d directory) APIKey(_ context.Context, key string) (policy.Customer, bool, error) {
	c, ok := d.keys[key]
	return c, ok, d.down
}

func (d directory) Token(_ context.Context, token string) (policy.Claims, bool) {
	c, ok := d.tokens[token]
	return c, ok
}

const token = "eyJhbGciOiJFUzI1NiJ9.e30.c2ln"

func known() directory {
	return directory{
		keys:   map[string]policy.Customer{"k-free": {Name: "fred"}, "k-pro": {Name: "acme", Plan: "pro"}, "k-big": {Name: "mega", Plan: "enterprise"}},
		tokens: map[string]policy.Claims{token: {"sub": "tina", "plan": "pro", "roles": ""}},
	}
}

func withPlans() policy.Policy {
	return policy.Policy{
		Plans: policy.Plans{
			From: []string{"jwt.plan", "api_key"}, APIKeys: policy.APIKeys{Path: "keys.yaml"}, HashSecretFile: "s",
			JWT: policy.JWT{JWKS: "jwks.json", Issuer: "i", Audience: "a"},
		},
		Limits: []policy.Limit{{
			Name: "requests", Key: []string{"customer"}, Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 2},
			Plans: []policy.PlanLimit{
				{Plan: "pro", Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 5}},
				{Plan: "enterprise", Unlimited: true},
			},
		}},
		Routes: []policy.Route{{Match: "/open"}, {Match: "/", Limits: []string{"requests"}}},
	}
}

func planned(t *testing.T, p policy.Policy, o policy.Options) *policy.Engine {
	t.Helper()
	if o.Customers == nil {
		o.Customers = known()
	}
	c := new(weirtest.Clock)
	o.Clock, o.Timers = c.Now, c.AfterFunc
	e, err := policy.New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// request is a request with header fields, as NAME, VALUE pairs.
func request(path string, fields ...string) policy.Request {
	h := http.Header{}
	for i := 0; i < len(fields); i += 2 {
		h.Add(fields[i], fields[i+1])
	}
	return policy.Request{Method: "GET", Path: path, Client: "192.0.2.1", Header: h}
}

// admitted returns how many of n requests are admitted.
func admitted(e *policy.Engine, n int, r policy.Request) (admitted int) {
	for range n {
		if v := e.Decide(r); v.Outcome == policy.Allow {
			admitted++
		}
	}
	return admitted
}

// TestPlans: each plan has its own parameters, in memory and in a store, and a customer's keys and
// tokens count together.
func TestPlans(t *testing.T) {
	for name, stored := range map[string]bool{"memory": false, "store": true} {
		t.Run(name, func(t *testing.T) {
			p := withPlans()
			o := policy.Options{}
			if stored {
				p.Stores = []policy.Store{{Name: "s", URL: "memory://"}}
				p.Limits[0].Store = "s"
				o.Stores = map[string]weir.Store{"s": weirtest.NewStore(nil)}
			}
			e := planned(t, p, o)
			for _, c := range []struct {
				request policy.Request
				want    int
			}{
				{request("/", "Authorization", "Bearer k-free"), 2},
				{request("/", "X-Api-Key", "k-free"), 0}, // the same customer
				{request("/", "X-Api-Key", "k-pro"), 5},
				{request("/", "Authorization", "bearer "+token), 5},
				{request("/", "X-Api-Key", "k-big"), 9},
				{request("/open"), 9},
			} {
				if got := admitted(e, 9, c.request); got != c.want {
					t.Errorf("%v: %d, want %d", c.request.Header, got, c.want)
				}
			}
			v := e.Decide(request("/", "X-Api-Key", "k-pro"))
			if all := v.Evaluated(); v.Outcome != policy.Deny || len(all) != 1 || all[0].Limit != 5 || all[0].Window != 5*time.Hour {
				t.Errorf("%v %+v", v.Outcome, all)
			}
		})
	}
}

// TestChangedPlanKeepsWhatWasUsed: a customer who goes from one plan to another and back gains
// nothing, in memory and in a store.
func TestChangedPlanKeepsWhatWasUsed(t *testing.T) {
	for name, stored := range map[string]bool{"memory": false, "store": true} {
		t.Run(name, func(t *testing.T) {
			p := withPlans()
			d := known()
			o := policy.Options{Customers: d}
			if stored {
				p.Stores = []policy.Store{{Name: "s", URL: "memory://"}}
				p.Limits[0].Store = "s"
				o.Stores = map[string]weir.Store{"s": weirtest.NewStore(nil)}
			}
			e := planned(t, p, o)
			r := request("/", "X-Api-Key", "k-free")
			for _, step := range []struct {
				plan string
				want int
			}{{"", 2}, {"pro", 3}, {"", 0}, {"pro", 0}, {"nobody-knows", 0}, {"enterprise", 9}, {"pro", 0}} {
				d.keys["k-free"] = policy.Customer{Name: "fred", Plan: step.plan}
				if got := admitted(e, 9, r); got != step.want {
					t.Errorf("plan %q: %d, want %d", step.plan, got, step.want)
				}
			}
		})
	}
}

// TestUnknownCustomers: requests without valid credentials are refused with 401, charge nothing and
// leave no state, whatever they send.
func TestUnknownCustomers(t *testing.T) {
	e := planned(t, withPlans(), policy.Options{})
	for name, r := range map[string]policy.Request{
		"none":                       request("/"),
		"a wrong key":                request("/", "X-Api-Key", "guess"),
		"an empty key":               request("/", "X-Api-Key", ""),
		"a long key":                 request("/", "X-Api-Key", strings.Repeat("k", 513)),
		"two keys":                   request("/", "X-Api-Key", "k-pro", "X-Api-Key", "k-free"),
		"one key twice":              request("/", "X-Api-Key", "k-pro", "X-Api-Key", "k-pro"),
		"another key beside it":      request("/", "X-Api-Key", "k-pro", "Authorization", "Bearer k-free"),
		"a wrong key beside it":      request("/", "X-Api-Key", "k-pro", "Authorization", "Bearer guess"),
		"two Authorization":          request("/", "Authorization", "Bearer k-pro", "Authorization", "Bearer k-pro"),
		"another scheme":             request("/", "Authorization", "Basic k-pro"),
		"a wrong token":              request("/", "Authorization", "Bearer eyJhbGciOiJub25lIn0.e30."),
		"a wrong token beside a key": request("/", "Authorization", "Bearer eyJhbGciOiJub25lIn0.e30.", "X-Api-Key", "k-pro"),
		"a long token":               request("/", "Authorization", "Bearer eyJ"+strings.Repeat("x", 1<<20)+".e30.x"),
		"the name of a customer":     request("/", "X-Api-Key", "acme"),
	} {
		if v := e.Decide(r); v.Outcome != policy.UnknownCustomer || v.Limit != "requests" || v.Decision.Allowed || len(v.Evaluated()) != 0 {
			t.Errorf("%s: %v, %+v", name, v.Outcome, v)
		}
	}
	if n := e.Counts()[0]; n.Keys.Keys != 0 || n.Allowed+n.Limited != 0 {
		t.Errorf("%+v", n)
	}
	if got := admitted(e, 9, request("/", "Authorization", "Bearer "+token, "X-Api-Key", "k-pro")); got != 5 {
		t.Errorf("a token, and a key that is not looked at: %d", got)
	}
}

// TestUnknownHaveTheDefaultPlan: with unknown: default they have the parameters of the default plan,
// one key for all of them, and no table grows by guesses.
func TestUnknownHaveTheDefaultPlan(t *testing.T) {
	p := withPlans()
	p.Plans.Unknown, p.Plans.Default = policy.UnknownDefault, "pro"
	e := planned(t, p, policy.Options{})
	if got := admitted(e, 3, request("/")) + admitted(e, 9, request("/", "X-Api-Key", "guess")); got != 5 {
		t.Errorf("%d, want the 5 of pro for all of them together", got)
	}
	if got := admitted(e, 9, request("/", "X-Api-Key", "k-free")); got != 5 {
		t.Errorf("a customer without a plan: %d, want the default's", got)
	}
	if n := e.Counts()[0].Keys.Keys; n != 2 {
		t.Errorf("%d keys", n)
	}
	p.Limits[0].OnMissing = "deny"
	if v := planned(t, p, policy.Options{}).Decide(request("/")); v.Outcome != policy.Deny {
		t.Errorf("on_missing: deny: %v", v.Outcome)
	}
}

// TestPlanFromAHeader: a plan from a header counts only from a trusted proxy, and does not replace
// the customer.
func TestPlanFromAHeader(t *testing.T) {
	p := withPlans()
	p.Plans.From = []string{"header.x-plan", "api_key"}
	p.Limits = append(p.Limits, policy.Limit{Name: "by-address", Key: []string{"client.ip"}, Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1},
		Plans: []policy.PlanLimit{{Plan: "pro", Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 3}}}})
	p.Routes = append([]policy.Route{{Match: "/address", Limits: []string{"by-address"}}}, p.Routes...)
	e := planned(t, p, policy.Options{})
	if !p.AsksHop() || !slices.Contains(p.ReadsHeaders(), "X-Plan") || !slices.Contains(p.ReadsHeaders(), "X-Api-Key") {
		t.Errorf("%v, %v", p.AsksHop(), p.ReadsHeaders())
	}
	forged := request("/address", "X-Plan", "pro")
	if v := e.Decide(forged); v.Outcome != policy.UnknownCustomer {
		t.Errorf("a header from a client: %v", v.Outcome)
	}
	if got := admitted(e, 9, request("/", "X-Plan", "enterprise", "X-Api-Key", "k-free")); got != 2 {
		t.Errorf("a header from a client with a key: %d", got)
	}
	trusted := forged
	if trusted.Trusted = true; admitted(e, 9, trusted) != 3 {
		t.Error("a header from the proxy")
	}
	twice := request("/address", "X-Plan", "pro", "X-Plan", "pro")
	if twice.Trusted = true; e.Decide(twice).Outcome != policy.UnknownCustomer {
		t.Error("a header that is there twice")
	}
	both := request("/", "X-Plan", "pro", "X-Api-Key", "k-free")
	if both.Trusted = true; admitted(e, 9, both) != 3 {
		t.Error("the plan of the proxy for the customer of the key, who has used 2")
	}
	wrong := request("/", "X-Plan", "pro", "X-Api-Key", "guess")
	if wrong.Trusted = true; e.Decide(wrong).Outcome != policy.UnknownCustomer {
		t.Error("a wrong key with the header of the proxy")
	}
}

// TestKeyHeader: with key_header, the key is read from that field alone.
func TestKeyHeader(t *testing.T) {
	p := withPlans()
	p.Plans.KeyHeader = "x-token"
	e := planned(t, p, policy.Options{})
	for _, c := range []struct {
		want    policy.Outcome
		request policy.Request
	}{
		{policy.Allow, request("/", "X-Token", "k-pro")},
		{policy.Allow, request("/", "X-Token", "k-pro", "Authorization", "Bearer upstreams-own")},
		{policy.UnknownCustomer, request("/", "X-Api-Key", "k-pro")},
		{policy.UnknownCustomer, request("/", "Authorization", "Bearer k-pro")},
	} {
		if got := e.Decide(c.request).Outcome; got != c.want {
			t.Errorf("%v: %v, want %v", c.request.Header, got, c.want)
		}
	}
}

// TestClaimsInKeys: a claim is a part of the key only if its token is valid. A claim that is no
// single value counts as present and empty, so that on_missing: skip does not free it.
func TestClaimsInKeys(t *testing.T) {
	p := withPlans()
	p.Plans.From = nil
	p.Limits = []policy.Limit{{Name: "by-sub", Key: []string{"jwt.sub"}, OnMissing: "skip", Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1}},
		{Name: "by-role", Key: []string{"jwt.roles"}, OnMissing: "skip_empty", Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 3}}}
	p.Routes = []policy.Route{{Match: "/sub", Limits: []string{"by-sub"}}, {Match: "/roles", Limits: []string{"by-role"}}}
	e := planned(t, p, policy.Options{})
	valid := []string{"Authorization", "Bearer " + token}
	for _, c := range []struct {
		request policy.Request
		want    int
	}{
		{request("/sub", valid...), 1}, {request("/roles", valid...), 3}, {request("/sub"), 9},
		{request("/sub", "Authorization", "Bearer eyJhbGciOiJub25lIn0.e30."), 9},
	} {
		if got := admitted(e, 9, c.request); got != c.want {
			t.Errorf("%s %v: %d, want %d", c.request.Path, c.request.Header, got, c.want)
		}
	}
}

// TestPlansOfEveryKindOfLimit: shadow limits, places, queues and roll-outs decide by plan, too.
func TestPlansOfEveryKindOfLimit(t *testing.T) {
	p := withPlans()
	p.Limits = []policy.Limit{
		{Name: "dry", Key: []string{"customer"}, Shadow: true, Limit: weir.FixedWindow{Limit: 1, Window: time.Hour},
			Plans: []policy.PlanLimit{{Plan: "pro", Limit: weir.FixedWindow{Limit: 4, Window: time.Hour}}}},
		{Name: "inside", Key: []string{"customer"}, Limit: weir.Concurrency{Limit: 2},
			Plans: []policy.PlanLimit{{Plan: "pro", Limit: weir.Concurrency{Limit: 6}}, {Plan: "enterprise", Unlimited: true}}},
		{Name: "line", Key: []string{"customer"}, Shadow: true, Limit: weir.LeakyBucket{Rate: weir.PerHour(1), Queue: 1},
			Plans: []policy.PlanLimit{{Plan: "pro", Limit: weir.LeakyBucket{Rate: weir.PerHour(1), Queue: 5}}}},
	}
	p.Routes = []policy.Route{{Match: "/", Limits: []string{"dry", "inside", "line"}}}
	e := planned(t, p, policy.Options{})
	for key, want := range map[string]int{"k-free": 2, "k-pro": 6, "k-big": 9} {
		inside := 0
		for range 9 {
			v := e.Decide(request("/", "X-Api-Key", key))
			if v.Outcome == policy.Allow && v.Enter(context.Background()) == nil {
				inside++
			}
		}
		if inside != want {
			t.Errorf("%s: %d inside, want %d", key, inside, want)
		}
	}
	counts := e.Counts()
	if dry := counts[0]; dry.Allowed != 1+4+1 || dry.Limited != 8+5+8 {
		t.Errorf("dry: %+v", dry)
	}
	if line := counts[2]; line.Allowed != 3 || line.Delayed != 1+5+1 {
		t.Errorf("line: %+v", line)
	}
}

// TestChecksOfPlans: what cannot work is an error, at its place.
func TestChecksOfPlans(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*policy.Policy)
		at     string
	}{
		"a source":       {func(p *policy.Policy) { p.Plans.From = []string{"cookie.plan"} }, "plans from 0"},
		"no keys":        {func(p *policy.Policy) { p.Plans.APIKeys = policy.APIKeys{} }, "plans from"},
		"no secret":      {func(p *policy.Policy) { p.Plans.HashSecretFile = "" }, "plans api_keys"},
		"unknown":        {func(p *policy.Policy) { p.Plans.Unknown = "allow" }, "plans unknown"},
		"no issuer":      {func(p *policy.Policy) { p.Plans.JWT.Issuer = "" }, "plans jwt"},
		"no audience":    {func(p *policy.Policy) { p.Plans.JWT.Audience = "" }, "plans jwt"},
		"http":           {func(p *policy.Policy) { p.Plans.JWT.JWKS = "http://id.example/jwks" }, "plans jwt jwks"},
		"no jwks":        {func(p *policy.Policy) { p.Plans.JWT = policy.JWT{} }, "plans"},
		"no source":      {func(p *policy.Policy) { p.Plans = policy.Plans{} }, "limits requests key"},
		"a header alone": {func(p *policy.Policy) { p.Plans.From = []string{"header.x-plan"} }, "limits requests key"},
		"claims": {func(p *policy.Policy) {
			p.Plans.From, p.Plans.JWT, p.Limits[0].Key = []string{"api_key"}, policy.JWT{}, []string{"jwt.sub"}
		}, "limits requests key"},
		"an algorithm": {func(p *policy.Policy) { p.Limits[0].Plans[0].Limit = weir.FixedWindow{Limit: 1, Window: time.Hour} }, "limits requests plans pro"},
		"parameters":   {func(p *policy.Policy) { p.Limits[0].Plans[0].Limit = weir.TokenBucket{} }, "limits requests plans pro"},
		"a plan twice": {func(p *policy.Policy) { p.Limits[0].Plans[1].Plan = "pro" }, "limits requests plans pro"},
		"a name":       {func(p *policy.Policy) { p.Limits[0].Plans[1].Plan = "Pro Plan" }, "limits requests plans Pro Plan"},
		"a zone":       {func(p *policy.Policy) { p.Limits[0].Zone = "z" }, "limits requests plans"},
		"a cost": {func(p *policy.Policy) {
			p.Limits[0].Cost, p.Limits[0].Limit = "6", weir.TokenBucket{Rate: weir.PerHour(1), Burst: 9}
		}, "limits requests plans pro"},
		"clocks": {func(p *policy.Policy) {
			p.Limits[0].Limit = weir.FixedWindow{Limit: 1, Window: time.Hour}
			p.Limits[0].Plans = []policy.PlanLimit{{Plan: "pro", Limit: weir.FixedWindow{Limit: 1, Window: time.Hour, Align: "first"}}}
		}, "limits requests plans pro"},
		"a queue for places": {func(p *policy.Policy) {
			p.Limits[0].Limit = weir.Concurrency{Limit: 1, Queue: 3}
			p.Limits[0].Plans = []policy.PlanLimit{{Plan: "pro", Limit: weir.Concurrency{Limit: 2, Queue: 3}}}
		}, "limits requests plans pro"},
	} {
		p := withPlans()
		c.change(&p)
		found := slices.ContainsFunc(p.Check(), func(w policy.Problem) bool { return !w.Warning && strings.Join(w.Path, " ") == c.at })
		if !found {
			t.Errorf("%s: no error at %s: %v", name, c.at, p.Check())
		}
	}
	p := withPlans()
	for _, w := range p.Check() {
		t.Errorf("%v", w)
	}
}

// TestExemptWithoutCredentials: a request that is exempt needs no credentials: a CORS preflight has
// none. All other limits of its route still apply, and an exemption by key needs the customer.
func TestExemptWithoutCredentials(t *testing.T) {
	p := withPlans()
	p.Limits[0].Exempt = []string{"preflight", "10.0.0.0/8", "key.acme"}
	p.Limits = append(p.Limits, policy.Limit{Name: "all", Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 3}})
	p.Routes = []policy.Route{{Match: "/", Limits: []string{"requests", "all"}}}
	e := planned(t, p, policy.Options{})
	preflight := request("/", "Origin", "https://a", "Access-Control-Request-Method", "PUT")
	preflight.Method = "OPTIONS"
	inside := request("/")
	inside.Client = "10.0.0.1"
	plain := request("/")
	plain.Method = "OPTIONS"
	for i, c := range []struct {
		request policy.Request
		want    policy.Outcome
	}{
		{preflight, policy.Allow}, {inside, policy.Allow}, {plain, policy.UnknownCustomer}, {request("/", "X-Api-Key", "acme"), policy.UnknownCustomer},
		{request("/", "X-Api-Key", "k-pro"), policy.Allow}, {preflight, policy.Deny},
	} {
		if v := e.Decide(c.request); v.Outcome != c.want {
			t.Errorf("%d: %v, want %v", i, v.Outcome, c.want)
		}
	}
}

// TestCredentialsWithoutACustomer: a valid token without the claim of the customer, and a plan from a
// header alone, are not enough for a limit by customer: all of them would share one counter.
func TestCredentialsWithoutACustomer(t *testing.T) {
	p := withPlans()
	p.Plans.From = append([]string{"header.x-plan"}, p.Plans.From...)
	p.Limits = append(p.Limits, policy.Limit{Name: "by-org", Key: []string{"jwt.org"}, Limit: p.Limits[0].Limit, Plans: p.Limits[0].Plans})
	p.Routes = append([]policy.Route{{Match: "/org", Limits: []string{"by-org"}}}, p.Routes...)
	d := known()
	d.tokens[token] = policy.Claims{"sub": "", "plan": "pro", "org": "o"}
	d.keys["k-nameless"] = policy.Customer{Plan: "pro"}
	bearer := []string{"Authorization", "Bearer " + token}
	header := request("/", "X-Plan", "pro")
	header.Trusted = true
	unlimited := request("/", "X-Plan", "enterprise")
	unlimited.Trusted = true
	for name, c := range map[string]struct {
		request policy.Request
		want    policy.Outcome
	}{
		"a token":                         {request("/", bearer...), policy.UnknownCustomer},
		"a key":                           {request("/", "X-Api-Key", "k-nameless"), policy.UnknownCustomer},
		"a header":                        {header, policy.UnknownCustomer},
		"a plan that nothing counts":      {unlimited, policy.Allow},
		"a limit that needs the plan":     {request("/org", bearer...), policy.Allow},
		"a route that needs none of them": {request("/open", bearer...), policy.Allow},
	} {
		if v := planned(t, p, policy.Options{Customers: d}).Decide(c.request); v.Outcome != c.want {
			t.Errorf("%s: %v, want %v", name, v.Outcome, c.want)
		}
	}
	p.Plans.Unknown = policy.UnknownDefault
	if got := admitted(planned(t, p, policy.Options{Customers: d}), 9, request("/", bearer...)); got != 5 {
		t.Errorf("unknown: default: %d, want the 5 of the token's plan", got)
	}
}

// counting counts how often tokens are verified.
type counting struct {
	directory
	verified *int
}

func (c counting) Token(ctx context.Context, token string) (policy.Claims, bool) {
	*c.verified++
	return c.directory.Token(ctx, token)
}

// TestATokenIsVerifiedOnce: also an invalid one, and one that names no plan, on a route whose limits
// read claims.
func TestATokenIsVerifiedOnce(t *testing.T) {
	p := withPlans()
	p.Limits = append(p.Limits, policy.Limit{Name: "by-org", Key: []string{"jwt.org"}, Limit: p.Limits[0].Limit, Plans: p.Limits[0].Plans})
	p.Routes = append([]policy.Route{{Match: "/org", Limits: []string{"by-org"}}}, p.Routes...)
	p.Plans.Unknown = policy.UnknownDefault
	for name, claims := range map[string]policy.Claims{"invalid": nil, "no plan": {"org": "o"}, "a plan": {"plan": "pro", "org": "o", "sub": "s"}} {
		d, n := known(), 0
		if delete(d.tokens, token); claims != nil {
			d.tokens[token] = claims
		}
		v := planned(t, p, policy.Options{Customers: counting{d, &n}}).Decide(request("/org", "Authorization", "Bearer "+token))
		if n != 1 || claims != nil && v.Key != "" && v.Key != "o" {
			t.Errorf("%s: verified %d times, %+v", name, n, v)
		}
	}
}

// TestCustomersNeedNoFiles: a program that looks up credentials itself names neither files nor an
// issuer. Without Customers, the error says what a program sets.
func TestCustomersNeedNoFiles(t *testing.T) {
	p := withPlans()
	p.Plans = policy.Plans{From: []string{"jwt.plan", "api_key"}}
	p.Limits = append(p.Limits, policy.Limit{Name: "by-org", Key: []string{"jwt.org"}, Limit: p.Limits[0].Limit})
	if got := admitted(planned(t, p, policy.Options{}), 9, request("/", "X-Api-Key", "k-pro")); got != 5 {
		t.Errorf("%d, want 5", got)
	}
	if !slices.Contains(p.ReadsHeaders(), "Authorization") {
		t.Errorf("%v lacks Authorization", p.ReadsHeaders())
	}
	if _, err := policy.New(p, policy.Options{}); err == nil || !strings.Contains(err.Error(), "Options.Customers") {
		t.Errorf("without Customers: %v", err)
	}
}

// TestBearer: a 401 names Bearer only where credentials are read from it.
func TestBearer(t *testing.T) {
	for _, c := range []struct {
		plans policy.Plans
		want  bool
	}{
		{policy.Plans{From: []string{"api_key"}}, true},
		{policy.Plans{From: []string{"api_key"}, KeyHeader: "x-token"}, false},
		{policy.Plans{From: []string{"header.x-plan"}}, false},
		{policy.Plans{From: []string{"header.x-plan", "jwt.plan"}}, true},
		{policy.Plans{From: []string{"header.x-plan"}, JWT: policy.JWT{JWKS: "keys.json"}}, true},
	} {
		if got := c.plans.Bearer(); got != c.want {
			t.Errorf("%+v: %v", c.plans, got)
		}
	}
}
