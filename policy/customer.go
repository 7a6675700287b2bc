package policy

import (
	"context"
	"net/textproto"
	"slices"
	"strings"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// A Customer is the owner of an API key.
type Customer struct {
	Name string
	Plan string // empty for the default
}

// Claims are the claims of a verified token that are texts, numbers and booleans, as texts. A claim
// that is anything else is there, and empty.
type Claims map[string]string

// Customers looks up the credentials of requests. Its methods must be safe for concurrent use.
type Customers interface {
	// APIKey returns the customer of an API key, and reports whether the key is valid. An error says
	// that this is not known now: the request is refused as UnverifiedCustomer.
	APIKey(ctx context.Context, key string) (c Customer, valid bool, err error)
	// Token verifies the signature, the times, the issuer and the audience of a token.
	Token(ctx context.Context, token string) (Claims, bool)
}

// Bounds of credentials, in bytes. Longer ones are not valid, and are not looked at.
const (
	maxAPIKey = 512
	maxToken  = 16 << 10
)

// An identity is what the credentials of a request say.
type identity struct {
	customer string // empty if it is not known
	plan     string
	claims   Claims // nil without a valid token
}

// identify finds the customer and the plan of a request. It returns a limit that needs to know more:
// the request is then refused with 401. It returns nil if the request is evaluated.
//
// Credentials that are there and not valid end the search: a client must not be able to choose
// another source by spoiling the first one.
func (e *Engine) identify(ctx context.Context, r *request, route *route) *limit {
	r.who, r.unverified = identity{}, false
	c := e.credentials(r)
	known, err := e.search(ctx, r, &c)
	if l := route.needing(r); err != nil && l != nil {
		r.unverified = true
		return l
	}
	if route.readsClaims && r.who.claims == nil {
		r.who.claims = e.claims(ctx, &c)
	}
	if r.who.plan == "" {
		r.who.plan = e.policy.Plans.Default
	}
	if e.policy.Plans.Unknown == UnknownDefault {
		return nil
	}
	return route.lacking(r, known)
}

// search goes through the sources of plans. It reports whether one of them knows the request. The error
// is that of a source that could not be asked: the request may have any customer.
func (e *Engine) search(ctx context.Context, r *request, c *credentials) (known bool, err error) {
	who := &r.who
	for _, s := range e.sources {
		var found identity
		switch {
		case s.kind == planFromHeader && r.Trusted:
			found.plan, _, _ = HeaderValue(r.Header[s.name])
		case s.kind == planFromJWT && c.token != "":
			found.claims = e.claims(ctx, c)
			found.plan, found.customer = found.claims[s.name], found.claims[e.policy.Plans.JWT.CustomerClaim()]
		case s.kind == planFromKey && c.hasKey:
			if found, err = e.apiKey(ctx, c.key); err != nil {
				return false, err
			}
		default:
			continue
		}
		if who.plan == "" {
			who.plan = found.plan
		}
		if s.kind == planFromHeader {
			known = known || found.plan != ""
			continue
		}
		if found.customer == "" && found.plan == "" {
			*who = identity{}
			return false, nil
		}
		who.customer, who.claims = found.customer, found.claims
		return true, nil
	}
	return known, nil
}

// claims returns the claims of the request's token; nil without a valid one. The token is verified
// once: another time could take as long again.
func (e *Engine) claims(ctx context.Context, c *credentials) Claims {
	if c.verified || c.token == "" || e.opts.Customers == nil || len(c.token) > maxToken {
		return c.claims
	}
	c.verified = true
	if claims, ok := e.opts.Customers.Token(ctx, c.token); ok {
		c.claims = claims
	}
	return c.claims
}

func (e *Engine) apiKey(ctx context.Context, key string) (identity, error) {
	if e.opts.Customers == nil || key == "" || len(key) > maxAPIKey {
		return identity{}, nil
	}
	customer, valid, err := e.opts.Customers.APIKey(ctx, key)
	if err != nil || !valid {
		return identity{}, err
	}
	return identity{customer: customer.Name, plan: customer.Plan}, nil
}

// credentials are the credentials of a request, as it has them.
type credentials struct {
	token    string // a JSON Web Token
	verified bool   // the token was looked at
	claims   Claims // of the token, if it is valid
	key      string // empty if there are several, which differ
	hasKey   bool
}

// credentials finds the credentials of a request. Bearer has either a token or an API key. A header
// field that is sent more than once has an invalid key.
func (e *Engine) credentials(r *request) (c credentials) {
	add := func(key string) {
		if c.hasKey && c.key != key {
			key = ""
		}
		c.key, c.hasKey = key, true
	}
	value, present, repeated := HeaderValue(r.Header["Authorization"])
	scheme, bearer, _ := strings.Cut(value, " ")
	bearer = strings.Trim(bearer, " ")
	reads := e.keyHeader == "" || e.keyHeader == "Authorization"
	switch {
	case repeated && reads:
		add("")
	case !present || !strings.EqualFold(scheme, "Bearer"):
	case looksLikeJWT(bearer):
		c.token = bearer
	case reads:
		add(bearer)
	}
	field := e.keyHeader
	if field == "" {
		field = "X-Api-Key"
	}
	if value, present, _ := HeaderValue(r.Header[field]); present && field != "Authorization" {
		add(value)
	}
	return c
}

// looksLikeJWT reports whether a text has the form of a signed JSON Web Token: three parts, of which the
// first begins with {" in base64.
func looksLikeJWT(text string) bool {
	return strings.HasPrefix(text, "eyJ") && strings.Count(text, ".") == 2
}

// A planned is a limit with the parameters of a plan.
type planned map[string]*limit

// byPlan compiles the limits of a limit's plans. They count in the same counters, and in the same
// states.
func (l *limit) byPlan() error {
	for i := range l.Plans {
		p := &l.Plans[i]
		c := *l
		c.plan, c.unlimited = p.Plan, p.Unlimited
		if p.Unlimited {
			var err error
			if c.uncharged, err = l.compileCounting(p.Plan); err != nil {
				return err
			}
			l.addPlan(p.Plan, &c)
			continue
		}
		c.Limit.Limit, c.window, c.delayed = p.Limit, window(p.Limit), delayedOf(p.Limit)
		if of, ok := concurrencyOf(p.Limit); ok {
			if c.enterWait = of.Queue > 0; l.places != nil {
				c.spare = l.largestPlaces() - of.Limit
			}
			if l.holder != nil && of.MaxHold == 0 {
				of.MaxHold = DefaultMaxHold
				c.Limit.Limit = of
			}
		}
		if l.table != nil {
			var err error
			if c.parameters, err = l.table.Parameters(p.Limit); err != nil {
				return err
			}
		}
		if l.store != nil {
			if _, err := weir.NewShared(p.Limit, l.store, weir.Named(l.state)); err != nil {
				return err
			}
		}
		l.addPlan(p.Plan, &c)
	}
	if of, ok := concurrencyOf(l.Limit.Limit); ok && l.places != nil && len(l.Plans) > 0 {
		l.spare = l.largestPlaces() - of.Limit
	}
	return nil
}

func (l *limit) addPlan(name string, c *limit) {
	if l.plans == nil {
		l.plans = planned{}
	}
	l.plans[name] = c
}

// largestPlaces returns how many places the table of a Concurrency has: as many as the largest plan.
// Each plan leaves the rest unused.
func (l *Limit) largestPlaces() int64 {
	own, _ := concurrencyOf(l.Limit)
	most := own.Limit
	for i := range l.Plans {
		if of, ok := concurrencyOf(l.Plans[i].Limit); ok {
			most = max(most, of.Limit)
		}
	}
	return most
}

// of returns the limit as it is for a plan. A plan without parameters of its own has those of the
// limit.
func (l *limit) of(plan string) *limit {
	if p := l.plans[plan]; p != nil {
		return p
	}
	return l
}

// forPlan returns limits as they are for a plan. It returns the same slice if none of them differs.
func forPlan(limits []*limit, plan string) []*limit {
	i := slices.IndexFunc(limits, func(l *limit) bool { return l.of(plan) != l })
	if i < 0 {
		return limits
	}
	limits = slices.Clone(limits)
	for ; i < len(limits); i++ {
		limits[i] = limits[i].of(plan)
	}
	return limits
}

// lacking returns a limit that needs a plan or a customer that the request does not have; nil if there
// is none. A limit by customer needs the customer, also if the plan is known: otherwise all tokens
// without the claim would share one counter. A limit that exempts the request needs nothing: a CORS
// preflight has no credentials.
func (r *route) lacking(req *request, known bool) *limit {
	for _, l := range r.asks {
		lacks := !known || l.byCustomer() && req.who.customer == "" && !l.of(req.who.plan).unlimited
		if lacks && !l.exempt.has(nil, true, req) {
			return l
		}
	}
	return nil
}

// needing returns a limit that needs the plan or the customer of a request; nil if there is none.
func (r *route) needing(req *request) *limit {
	for _, l := range r.asks {
		if !l.exempt.has(nil, true, req) {
			return l
		}
	}
	return nil
}

// refuseUnknown refuses a request without the customer or the plan that a limit needs.
func (v *Verdict) refuseUnknown(l *limit, unverified bool) {
	v.Outcome, v.Limit = UnknownCustomer, l.Name
	if unverified {
		v.Outcome = UnverifiedCustomer
	}
	v.Decision, v.evaluated = weir.Decision{RetryAfter: weir.Never, By: l.Name}, nil
}

// compileSources compiles where plans are found; all of it was checked.
func (e *Engine) compileSources() {
	for _, text := range e.policy.Plans.From {
		s, _ := parsePlanSource(text)
		e.sources = append(e.sources, s)
	}
	e.keyHeader = textproto.CanonicalMIMEHeaderKey(e.policy.Plans.KeyHeader)
}

// identify records what a limit of the route needs to know of the customer.
func (r *route) identify(l *limit) {
	if l.needsCustomer() {
		r.asks = append(r.asks, l)
	}
	r.readsClaims = r.readsClaims || l.readsClaims()
	r.plans = r.plans || len(l.Plans) > 0
	r.warns = r.warns || l.warnAt > 0
}

// planHeaders adds the header fields with which requests say who they are.
func (p *Policy) planHeaders(add func(name string)) {
	for _, text := range p.Plans.From {
		switch s, err := parsePlanSource(text); {
		case err != nil:
		case s.kind == planFromHeader:
			add(s.name)
		case s.kind == planFromJWT:
			add("Authorization")
		case s.kind == planFromKey && p.Plans.KeyHeader != "":
			add(p.Plans.KeyHeader)
		case s.kind == planFromKey:
			add("Authorization")
			add("X-Api-Key")
		}
	}
	if slices.ContainsFunc(p.Limits, func(l Limit) bool { return l.readsClaims() }) {
		add("Authorization")
	}
}

// delayedOf returns an algorithm that fixes delays; nil for any other.
func delayedOf(l weir.Limit) rules.Delayed {
	d, _ := rules.ParamsOf(l).(rules.Delayed)
	return d
}
