package policy

import (
	"cmp"
	"fmt"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/httpsyntax"
	"github.com/weirflow/weir/internal/nearest"
	"github.com/weirflow/weir/internal/rules"
)

// Plans says how the engine finds the customer of a request, and the customer's plan. This package
// reads none of the files: Options.Customers looks up keys and tokens. New needs no file and no JWT
// if it is given.
type Plans struct {
	// where the plan is, in order; the first that a request has counts: "jwt.CLAIM", "api_key" or
	// "header.NAME"
	From    []string
	APIKeys APIKeys
	// the header field with the API key; default: Authorization: Bearer, and X-Api-Key
	KeyHeader      string
	HashSecretFile string // holds the secret that API keys are hashed with
	JWT            JWT
	Unknown        string // for requests without a known customer or plan: "deny" (401) or "default"; default: deny
	Default        string // the plan of customers without one, and with Unknown "default" of all others
}

// APIKeys says where the hashes of API keys are: in files, or in a store.
type APIKeys struct {
	Path  string // a file with the hashes of API keys, or a directory of such files
	Store string // the name of a store in place of Path

	// For keys in a store: how long a key that was looked up counts, so that changes count after this
	// time. Default: 5 s
	Refresh time.Duration
	// how long a key that was valid stays valid while the store is unavailable. Default: 10 m
	Stale time.Duration
	// what the requests of other keys get meanwhile: "unavailable" (503) or "unknown" (as an unknown
	// key). Default: unavailable
	OnFailure string
}

// IsSet reports whether there are API keys at all.
func (k APIKeys) IsSet() bool { return k.Path != "" || k.Store != "" }

// The defaults of APIKeys, and the values of OnFailure.
const (
	DefaultKeyRefresh = 5 * time.Second
	DefaultKeyStale   = 10 * time.Minute

	KeysUnavailable = "unavailable"
	KeysUnknown     = "unknown"
)

var keysOnFailure = []string{KeysUnavailable, KeysUnknown}

// Bearer reports whether some credentials are read from "Authorization: Bearer".
func (p *Plans) Bearer() bool {
	return slices.ContainsFunc(p.From, func(source string) bool {
		return source == "api_key" && p.KeyHeader == "" || strings.HasPrefix(source, "jwt.")
	}) || p.JWT.IsSet()
}

// JWT says which tokens are believed: those in "Authorization: Bearer".
type JWT struct {
	JWKS     string // a file or an https URL with the keys of the issuer
	Issuer   string // the iss of every token
	Audience string // is among the aud of every token
	Customer string // the claim with the customer; default: sub
	// how often a JWKS from a URL is read again, and an unknown key may cause that; default: 5 m
	Refresh time.Duration
	Leeway  time.Duration // for the clocks of issuer and gateway; default: none
}

// IsSet reports whether tokens are verified at all.
func (j JWT) IsSet() bool { return j.JWKS != "" }

// CustomerClaim returns Customer, or its default.
func (j JWT) CustomerClaim() string {
	if j.Customer == "" {
		return "sub"
	}
	return j.Customer
}

// A PlanLimit is what a limit is for the customers of a plan.
type PlanLimit struct {
	Plan      string
	Unlimited bool       // the limit does not apply
	Limit     weir.Limit // of the same algorithm; nil if Unlimited
}

// The values of Plans.Unknown.
const (
	UnknownDeny    = "deny"
	UnknownDefault = "default"
)

var unknowns = []string{UnknownDeny, UnknownDefault}

// planSource is a compiled source of plans.
type planSource struct {
	kind planSourceKind
	name string // of the claim or the header field
}

type planSourceKind uint8

const (
	planFromJWT planSourceKind = iota
	planFromKey
	planFromHeader
)

// parsePlanSource parses a source as a policy file has it.
func parsePlanSource(text string) (planSource, error) {
	source, name, _ := strings.Cut(text, ".")
	switch {
	case text == "api_key":
		return planSource{kind: planFromKey}, nil
	case source == "jwt" && name != "":
		return planSource{planFromJWT, name}, nil
	case source == "header" && httpsyntax.IsToken(name):
		return planSource{planFromHeader, textproto.CanonicalMIMEHeaderKey(name)}, nil
	}
	return planSource{}, fmt.Errorf("%q is not where a plan is found: write jwt.CLAIM, api_key or header.NAME", text)
}

// needsCustomer reports whether a limit can be evaluated only if the customer or the plan is known.
func (l *Limit) needsCustomer() bool { return len(l.Plans) > 0 || l.byCustomer() }

// byCustomer reports whether a limit counts by customer.
func (l *Limit) byCustomer() bool { return slices.Contains(l.Key, "customer") }

// readsClaims reports whether a key has parts from tokens.
func (l *Limit) readsClaims() bool {
	return slices.ContainsFunc(l.Key, func(part string) bool { return strings.HasPrefix(part, "jwt.") })
}

// knowsAll reports whether the customer of every request that limits are evaluated for is known.
func (p *Plans) knowsAll() bool { return p.Unknown != UnknownDefault }

// plans checks how plans are found.
func (c *checker) plans() {
	p := &c.Plans
	sources := map[planSourceKind]bool{}
	for i, text := range p.From {
		s, err := parsePlanSource(text)
		if err != nil {
			c.wrong(err.Error(), nearest.To(text, []string{"api_key", "jwt.plan", "header.x-plan"}), "plans", "from", fmt.Sprint(i))
			continue
		}
		sources[s.kind] = true
	}
	if p.Unknown != "" && !slices.Contains(unknowns, p.Unknown) {
		c.wrong(fmt.Sprintf("%q is not what to do with requests of unknown customers", p.Unknown), suggest(p.Unknown, unknowns), "plans", "unknown")
	}
	if p.KeyHeader != "" && !httpsyntax.IsToken(p.KeyHeader) {
		c.wrong(fmt.Sprintf("%q is not the name of a header field", p.KeyHeader), "key_header: x-api-key", "plans", "key_header")
	}
	switch {
	case c.customersGiven:
	case sources[planFromKey] && !p.APIKeys.IsSet():
		c.wrong("from has api_key, and there are no keys", "api_keys: keys.yaml; in Go, set Options.Customers", "plans", "from")
	case p.APIKeys.IsSet() && !sources[planFromKey]:
		c.warn("no request is looked up in api_keys: from has no api_key", "from: [api_key]", "plans", "api_keys")
	}
	if p.APIKeys.IsSet() && p.HashSecretFile == "" && !c.customersGiven {
		c.wrong("API keys are kept as hashes with a secret, and there is none",
			"hash_secret_file: plans.secret; create the file with: head -c 32 /dev/urandom | base64 > plans.secret", "plans", "api_keys")
	}
	c.keyStore()
	if sources[planFromHeader] && len(c.TrustedProxies) == 0 {
		c.warn("no request has its plan from a header: it is believed only from trusted_proxies, and there are none",
			"add trusted_proxies with the proxies in front that set or remove the header", "plans", "from")
	}
	if len(sources) == 1 && sources[planFromHeader] && p.Unknown == "" {
		c.warn("requests of which no trusted proxy sends the plan get 401, also with a default plan", "write unknown: default (they have the default plan), or unknown: deny (401, as now)", "plans")
	}
	if !c.customersGiven {
		c.tokens(sources[planFromJWT])
	}
	for i := range c.Limits {
		c.planLimits(&c.Limits[i], sources)
	}
}

// keyStore checks where API keys are that are not in files.
func (c *checker) keyStore() {
	k := &c.Plans.APIKeys
	at := func(field string) []string { return []string{"plans", "api_keys", field} }
	if k.Store == "" {
		return
	}
	if !slices.ContainsFunc(c.Stores, func(s Store) bool { return s.Name == k.Store }) {
		c.unknown("store", k.Store, names(c.Stores, func(s Store) string { return s.Name }), at("store")...)
	}
	if k.Refresh != 0 && (k.Refresh < 100*time.Millisecond || k.Refresh > time.Hour) {
		c.wrong(fmt.Sprintf("a refresh of %v is not within 100ms and 1h", k.Refresh), "refresh: 5s", at("refresh")...)
	}
	if k.Stale != 0 && k.Stale < cmp.Or(k.Refresh, DefaultKeyRefresh) {
		c.wrong(fmt.Sprintf("a stale of %v is shorter than refresh: keys would become invalid between two lookups", k.Stale), "stale: 10m", at("stale")...)
	}
	if k.OnFailure != "" && !slices.Contains(keysOnFailure, k.OnFailure) {
		c.wrong(fmt.Sprintf("%q is not what to do with keys that cannot be looked up", k.OnFailure), suggest(k.OnFailure, keysOnFailure), at("on_failure")...)
	}
}

// tokens checks which tokens are believed.
func (c *checker) tokens(asked bool) {
	j := &c.Plans.JWT
	switch {
	case j.JWKS != "" && j.Issuer == "":
		c.wrong("tokens of every issuer would be believed", `issuer: "https://id.example"`, "plans", "jwt")
	case j.JWKS != "" && j.Audience == "":
		c.wrong("tokens that the issuer made for other services would be believed", "audience: api", "plans", "jwt")
	case j.JWKS == "" && (asked || *j != JWT{}):
		c.wrong("tokens cannot be verified without the keys of their issuer", `jwt: { jwks: "https://id.example/jwks.json", issuer: "https://id.example", audience: api }`, "plans")
	case strings.HasPrefix(j.JWKS, "http://"):
		c.wrong("jwks must be https: over http, the keys can be replaced on the way", "jwks: "+strconv.Quote("https"+strings.TrimPrefix(j.JWKS, "http")), "plans", "jwt", "jwks")
	}
	if j.Refresh != 0 && j.Refresh < time.Second {
		c.wrong(fmt.Sprintf("%v between two reads of the keys is too short", j.Refresh), "write at least 1s, like 5m", "plans", "jwt", "refresh")
	}
	if j.Leeway > 10*time.Minute {
		c.wrong(fmt.Sprintf("a leeway of %v believes tokens long after their end", j.Leeway), "write one up to 10m", "plans", "jwt", "leeway")
	}
}

// plansLine is what a policy without plans needs at its top level.
const plansLine = "at the top level, plans: { from: api_key, api_keys: keys.yaml, hash_secret_file: plans.secret }"

// planLimits checks what a limit has by plan, and the parts of its key that come from plans.
func (c *checker) planLimits(l *Limit, sources map[planSourceKind]bool) {
	if l.readsClaims() && !c.Plans.JWT.IsSet() && !c.customersGiven {
		c.wrong("the key has a claim of a token, and no tokens are verified",
			`plans: { jwt: { jwks: "https://id.example/jwks.json", issuer: "https://id.example", audience: api } }`, "limits", l.Name, "key")
	}
	if l.byCustomer() && !sources[planFromKey] && !sources[planFromJWT] {
		c.wrong("no customer is ever known: customers are found by api_key or jwt.CLAIM", plansLine, "limits", l.Name, "key")
	}
	if len(l.Plans) == 0 {
		return
	}
	at := []string{"limits", l.Name, "plans"}
	switch {
	case len(sources) == 0:
		c.wrong("the limit has parameters by plan, and no plan is ever known", plansLine, at...)
	case l.Zone != "":
		c.wrong("limits of a zone have the same parameters", "take zone or plans out", at...)
	}
	seen := map[string]bool{}
	for i := range l.Plans {
		p := &l.Plans[i]
		c.name("a plan", p.Plan, seen, append(slices.Clone(at), p.Plan)...)
		if p.Limit != nil && l.Limit != nil {
			c.planLimit(l, p, append(slices.Clone(at), p.Plan))
		}
	}
}

// planLimit checks the parameters of a limit for one plan.
func (c *checker) planLimit(l *Limit, p *PlanLimit, at []string) {
	base, is := rules.ParamsOf(l.Limit), rules.ParamsOf(p.Limit)
	switch {
	case weir.Algorithm(p.Limit) != weir.Algorithm(l.Limit):
		c.wrong(fmt.Sprintf("the plan %q has another algorithm than the limit", p.Plan), "write its parameters alone, like { rate: 100/s, burst: 200 }", at...)
		return
	case p.Limit.Validate() != nil:
		c.wrong(strings.TrimPrefix(p.Limit.Validate().Error(), "weir: "), "", at...)
		return
	}
	if base != nil && is != nil && readsWallTime(base) != readsWallTime(is) {
		c.wrong(fmt.Sprintf("the plan %q counts by another clock than the limit: align: first goes with no other align", p.Plan), "use align: epoch, or a calendar, for both", at...)
	}
	if of, ok := concurrencyOf(p.Limit); ok && l.Store == "" {
		if own, _ := concurrencyOf(l.Limit); of.Queue > 0 || own.Queue > 0 {
			c.wrong("a concurrency in memory with plans has no queue", "take queue out, or keep the limit in a store", at...)
		} else if of.MaxHold != own.MaxHold {
			c.wrong("max_hold is the same for all plans", "take max_hold out of the plan", at...)
		}
	}
	cost, err := parseCost(l.Cost)
	if size, field := capacityOf(p.Limit); err == nil && cost.kind == costFixed && cost.n > size {
		c.wrong(fmt.Sprintf("a cost of %d never fits a %s of %d: every request of this plan would be refused", cost.n, field, size),
			fmt.Sprintf("lower the cost, or raise the %s", field), at...)
	} else if least, ok := l.Costs.fits(size); !ok {
		c.wrong(fmt.Sprintf("a cost of %d never fits a %s of %d: every request of this plan would be refused", least, field, size),
			fmt.Sprintf("lower before, or raise the %s", field), at...)
	} else if l.Costs.Default > size {
		c.wrong(fmt.Sprintf("a cost of %d never fits a %s of %d: every request of this plan without an estimate of its own would be refused", l.Costs.Default, field, size),
			fmt.Sprintf("lower default, or raise the %s", field), at...)
	}
}

// readsWallTime reports whether an algorithm with these parameters counts by wall time.
func readsWallTime(p rules.Params) bool {
	r, err := p.Compile(time.Nanosecond)
	return err == nil && r.ReadsWallTime()
}

// WithPlan returns a limit with the parameters of a plan, for Limit.Plans. fields are as for
// WithFields.
func WithPlan(l weir.Limit, plan string, fields map[string]any) (PlanLimit, error) {
	of, err := WithFields(l, fields)
	return PlanLimit{Plan: plan, Limit: of}, err
}
