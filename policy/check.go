package policy

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/httpsyntax"
	"github.com/weirflow/weir/internal/rules"
)

// A Problem is an error in a policy, or a warning about something that was probably not intended.
type Problem struct {
	Path    []string // the keys and indexes that lead to it in a policy file
	Message string   // what is wrong
	Fix     string   // what to write instead; may be empty
	FixAt   []string // the keys and indexes that lead to what Fix replaces or adds; nil: to Path
	Lacks   []string // a section that has no entries, such as stores, and the name of one that it lacks
	Warning bool     // the policy works nevertheless
	Follows bool     // a warning that may only follow from an error elsewhere, such as a misspelt name
}

// String returns the problem in one line.
func (p Problem) String() string {
	text := strings.Join(p.Path, ".") + ": " + p.Message
	if p.Fix != "" {
		text += " (" + p.Fix + ")"
	}
	return text
}

// Check returns all errors and warnings of a policy, in the order of a policy file.
func (p *Policy) Check() []Problem { return p.CheckFor(Options{}) }

// CheckFor is Check for an engine with these options. With Customers, the caller looks up keys and
// tokens itself, so that no file with them is needed. With Values, keys and costs may have value.NAME.
func (p *Policy) CheckFor(o Options) []Problem {
	c := checker{Policy: p, used: map[string]bool{}, customersGiven: o.Customers != nil, valuesGiven: o.Values}
	c.headers()
	c.admin()
	c.stores()
	c.limits()
	c.plans()
	c.longWindows()
	c.webhook()
	c.zones()
	c.upstreams()
	c.priorities()
	c.routes()
	c.rooms()
	c.unused()
	return c.problems
}

// checker collects problems.
type checker struct {
	*Policy
	problems []Problem
	used     map[string]bool // limits that a route uses
	samples  [][]*request    // of each route, for alikeOrNot; nil until they are needed

	customersGiven bool // Options.Customers looks up keys and tokens
	valuesGiven    bool // requests have Values
}

func (c *checker) wrong(message, fix string, path ...string) {
	c.problems = append(c.problems, Problem{Path: path, Message: message, Fix: fix})
}

func (c *checker) warn(message, fix string, path ...string) {
	c.problems = append(c.problems, Problem{Path: path, Message: message, Fix: fix, Warning: true})
}

// name checks a name that others refer to.
func (c *checker) name(what, name string, seen map[string]bool, path ...string) {
	switch {
	case !isName(name):
		c.wrong(fmt.Sprintf("%q is not a name for %s", name, what),
			"begin with a small letter or a digit, and go on with those and . _ -", path...)
	case seen[name]:
		c.wrong(fmt.Sprintf("there are two %ss named %q", strings.TrimPrefix(strings.TrimPrefix(what, "a "), "an "), name),
			"give each a name of its own", path...)
	}
	seen[name] = true
}

// isName reports whether a name is of the form [a-z0-9][a-z0-9._-]*.
func isName(name string) bool {
	for i := range len(name) {
		c := name[i]
		plain := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !plain && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return name != "" && len(name) <= 100
}

// admin checks what is kept for the admin address.
func (c *checker) admin() {
	if n := c.Admin.Recent; n < 0 || n > MaxRecent {
		c.wrong(fmt.Sprintf("%d is not a number of requests from 0 to %d", n, MaxRecent), "write one like 50000, or 0 to keep none", "admin", "recent")
	}
}

func (c *checker) headers() {
	if c.ClientHeader != "" && !httpsyntax.IsToken(c.ClientHeader) {
		c.wrong(fmt.Sprintf("%q is not the name of a header field", c.ClientHeader), "write it like X-Real-IP", "client_header")
	}
	for i, h := range c.Headers {
		if h != HeaderRateLimit && h != HeaderXRateLimit {
			c.wrong(fmt.Sprintf("%q is not a set of header fields about limits", h),
				suggest(h, []string{HeaderRateLimit, HeaderXRateLimit}), "headers", strconv.Itoa(i))
		}
	}
}

func (c *checker) stores() {
	seen := map[string]bool{}
	for _, s := range c.Stores {
		c.name("a store", s.Name, seen, "stores", s.Name)
		if s.OnFailure != "" && !slices.Contains(onFailure, s.OnFailure) {
			c.wrong(fmt.Sprintf("%q is not what to do without the store", s.OnFailure), suggest(s.OnFailure, onFailure), "stores", s.Name, "on_failure")
		}
		if s.Deadline < 0 {
			c.wrong(fmt.Sprintf("%v is not a valid deadline", s.Deadline), "write one like 20ms", "stores", s.Name, "deadline")
		}
		if s.Nodes < 0 {
			c.wrong(fmt.Sprintf("%d is not a number of nodes", s.Nodes), "write how many processes share the store, at least 1", "stores", s.Name, "nodes")
		}
		c.lease(s)
		c.prefix(s)
		c.regions(s)
	}
}

// lease checks a store's lease settings. The bounds are those of package lease.
func (c *checker) lease(s Store) {
	if d := s.Lease.Lifetime; d != 0 && (d < time.Millisecond || d > time.Minute) {
		c.wrong(fmt.Sprintf("a lease of %v is too short or too long", d), "write one from 1ms to 1m", "stores", s.Name, "lease", "lifetime")
	}
	if n := s.Lease.Max; n < 0 || n > 1<<40 {
		c.wrong(fmt.Sprintf("%d is not how many tokens a node may hold", n), "write one from 1 to 1099511627776", "stores", s.Name, "lease", "max")
	}
}

var (
	onFailure = []string{"allow", "deny", "local"}
	onMissing = []string{"key", "skip", "skip_empty", "deny"}
	logLevels = []string{"error", "warn", "notice", "info"}
	whenFull  = []string{"evict", "refuse", "share"} // as keyed.Full counts them
)

func (c *checker) limits() {
	seen := map[string]bool{}
	for i := range c.Limits {
		l := &c.Limits[i]
		if !l.InEnvoy || !strings.HasPrefix(l.Name, EnvoyPrefix) || seen[l.Name] {
			c.name("a limit", l.Name, seen, "limits", l.Name)
		}
		seen[l.Name] = true
		c.algorithm(l)
		for j, text := range l.Key {
			if _, err := parsePart(text); err != nil {
				c.wrong(err.Error(), nearestPart(text), "limits", l.Name, "key", strconv.Itoa(j))
			}
		}
		c.values(l)
		c.missing(l)
		if l.OnMissing != "" && !slices.Contains(onMissing, l.OnMissing) {
			c.wrong(fmt.Sprintf("%q is not a value of on_missing", l.OnMissing),
				suggest(l.OnMissing, onMissing), "limits", l.Name, "on_missing")
		}
		if l.WhenFull != "" && !slices.Contains(whenFull, l.WhenFull) {
			c.wrong(fmt.Sprintf("%q is not a value of when_full", l.WhenFull),
				suggest(l.WhenFull, whenFull), "limits", l.Name, "when_full")
		}
		if l.Log != "" && !slices.Contains(logLevels, l.Log) {
			c.wrong(fmt.Sprintf("%q is not a level of the log", l.Log), suggest(l.Log, logLevels), "limits", l.Name, "log")
		}
		if l.Status != 0 && (l.Status < 400 || l.Status > 599) {
			c.wrong(fmt.Sprintf("%d is not a status to refuse with", l.Status), "write one within 400 and 599", "limits", l.Name, "status")
		}
		c.places(l)
		c.costs(l)
		c.exempt(l)
		c.proxyHeaders(l)
		c.rollOut(l)
		c.warnings(l)
		c.tag(l)
		if l.MaxKeys < 0 {
			c.wrong(fmt.Sprintf("%d is not a number of keys", l.MaxKeys), "write at least 1", "limits", l.Name, "max_keys")
		}
		switch {
		case l.OnFailure == "":
		case !slices.Contains(onFailure, l.OnFailure):
			c.wrong(fmt.Sprintf("%q is not what to do without the store", l.OnFailure), suggest(l.OnFailure, onFailure), "limits", l.Name, "on_failure")
		case l.Store == "":
			c.wrong("the limit is in no store that could fail", "take on_failure out, or name a store", "limits", l.Name, "on_failure")
		}
		if l.Store != "" && c.store(l.Store) == nil {
			c.unknown("store", l.Store, names(c.Stores, func(s Store) string { return s.Name }), "limits", l.Name, "store")
		}
		c.leased(l)
		c.inRegions(l)
	}
}

// places checks what a Concurrency cannot have. A request enters it at a cost that is known
// beforehand.
func (c *checker) places(l *Limit) {
	if l.isConcurrency() && l.Cost == "bytes" {
		c.wrong("a place has to be taken before the length of a body is known", "take the cost out", "limits", l.Name, "cost")
	}
}

// algorithm checks a limit's parameters, and that its cost fits them.
func (c *checker) algorithm(l *Limit) {
	cost, err := parseCost(l.Cost)
	if err != nil {
		c.wrong(err.Error(), costFix(l), "limits", l.Name, "cost")
	}
	if l.Limit == nil {
		c.wrong("the limit has no algorithm: add one of "+strings.Join(Algorithms(), ", "), "token_bucket: { rate: 10/s, burst: 20 }", "limits", l.Name)
		return
	}
	algorithm := weir.Algorithm(l.Limit)
	if _, err := WithFields(l.Limit, nil); err != nil {
		wrong := err.(*FieldError)
		c.wrong(wrong.Err.Error(), wrong.Fix, "limits", l.Name, algorithm, wrong.Field)
		return
	}
	if size, field := capacityOf(l.Limit); cost.kind == costFixed && cost.n > size {
		c.wrong(fmt.Sprintf("a cost of %d never fits a %s of %d: every request would be refused", cost.n, field, size),
			fmt.Sprintf("lower the cost, or raise the %s", field), "limits", l.Name, "cost")
	}
}

// unknown reports a reference to a name that does not exist.
func (c *checker) unknown(what, name string, known []string, path ...string) {
	p := Problem{Path: path, Message: fmt.Sprintf("there is no %s %q", what, name)}
	if p.Fix = suggest(name, known); len(known) == 0 {
		p.Fix, p.Lacks = fmt.Sprintf("there are no %ss: add one under %ss", what, what), []string{what + "s", name}
	}
	c.problems = append(c.problems, p)
}

func names[T any](list []T, name func(T) string) (all []string) {
	for _, v := range list {
		all = append(all, name(v))
	}
	return all
}

func (c *checker) routes() {
	var before []pattern
	c.pathSettings(c.Paths)
	for i := range c.Routes {
		r, at := &c.Routes[i], strconv.Itoa(i)
		p, err := parsePattern(r.Match)
		p.addresses, p.paths, p.guards = r.Address, c.paths(r), r.guards()
		c.pathSettings(r.Paths, "routes", at)
		if err != nil {
			c.wrong(err.Error(), matchFix(r.Match), "routes", at, "match")
		} else {
			if fix := withSlash(r.Match); fix != "" {
				c.warn(fmt.Sprintf("%q matches requests for the host %s: a path begins with /", r.Match, p.host), fix, "routes", at, "match")
			}
			for j := range before {
				if before[j].covers(&p) {
					c.warn(fmt.Sprintf("the route is never reached: route %d takes all of its requests", j+1),
						"put it before that one", "routes", at, "match")
					break
				}
			}
		}
		before = append(before, p)
		if r.Upstream != "" && !slices.ContainsFunc(c.Upstreams, func(u Upstream) bool { return u.Name == r.Upstream }) {
			c.unknown("upstream", r.Upstream, names(c.Upstreams, func(u Upstream) string { return u.Name }), "routes", at, "upstream")
		}
		c.routeLimits(r, &p, err == nil, at)
		c.respondSettings(r, &p, err == nil, at)
		c.unleased(r, at)
		c.slotsOfRoute(r, at)
		c.refused(r.Refused, at, "refused")
		c.refused(r.Failed, at, "failed")
		c.fallbackUpstream(r.Refused, r.Upstream, "routes", at, "refused")
		c.fallbackUpstream(r.Failed, r.Upstream, "routes", at, "failed")
		c.waiting(r.Waiting, at)
		c.fields(r, at)
		c.parameters(r, at)
		c.hold(r, at)
		c.adaptive(r.Adaptive, "routes", at, "adaptive")
		c.priority(r.Priority, "routes", at, "priority")
	}
	c.variants(c.patterns())
}

// routeLimits checks the limits of a route.
func (c *checker) routeLimits(r *Route, p *pattern, parsed bool, at string) {
	for j, name := range r.Limits {
		path := []string{"routes", at, "limits", strconv.Itoa(j)}
		c.used[name] = true
		l := c.limit(name)
		switch {
		case l == nil:
			c.unknown("limit", name, names(c.Limits, func(l Limit) string { return l.Name }), path...)
			continue
		case slices.Contains(r.Limits[:j], name):
			c.wrong(fmt.Sprintf("the limit %q is there twice", name), "name it once", path...)
		case l.Zone != "":
			for _, other := range r.Limits[:j] {
				if o := c.limit(other); o != nil && o.Zone == l.Zone {
					c.wrong(fmt.Sprintf("the limits %q and %q share the zone %q: each request would be charged twice", other, name, l.Zone),
						"name one of them", path...)
				}
			}
		}
		for _, text := range l.Key {
			if part, err := parsePart(text); err == nil && parsed && part.kind == partVariable && !slices.Contains(p.variables(), part.name) {
				c.wrong(fmt.Sprintf("the key of %q has path.%s, and this route's match has no {%s}", name, part.name, part.name),
					fmt.Sprintf("put {%s} into the match", part.name), path...)
			}
		}
	}
}

// refused checks the response to refused requests, or to requests whose upstream failed.
func (c *checker) refused(r Refused, at, word string) {
	set := 0
	for _, v := range []string{r.Body, r.File, r.Redirect} {
		if v != "" {
			set++
		}
	}
	if set > 1 {
		c.wrong("body, file and redirect exclude each other", "keep one of them", "routes", at, word)
	}
	low, high := 200, 599
	if r.Redirect != "" {
		low, high = 300, 399
		if u, err := url.Parse(r.Redirect); err != nil || strings.ContainsAny(r.Redirect, "\r\n") || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" {
			c.wrong(fmt.Sprintf("%q is not where a browser can go", r.Redirect), "write a path, or an http or https URL", "routes", at, word, "redirect")
		}
	}
	if r.Status != 0 && (r.Status < low || r.Status > high) {
		c.wrong(fmt.Sprintf("%d is not a status to refuse with here", r.Status), fmt.Sprintf("write one within %d and %d", low, high),
			"routes", at, word, "status")
	}
}

// unused warns of limits that no route uses, of routes and hooks that no request gets to, and of a service without limits. Clients of the other services name limits themselves.
func (c *checker) unused() {
	for i := range c.Limits {
		if name := c.Limits[i].Name; !c.used[name] && len(c.Listen.Others) == 0 {
			c.warn(fmt.Sprintf("no route uses the limit %q: take it out, or add it to a route", name), fmt.Sprintf("limits: [%s]", name), "limits", name)
			c.problems[len(c.problems)-1].Follows = true
		}
	}
	if len(c.Routes) == 0 && len(c.Listen.Gateway) > 0 {
		c.warn("the gateway has no routes: every request gets 404", "routes: [{ match: /, respond: { status: 200 } }]", "listen", "gateway")
		c.problems[len(c.problems)-1].Follows = true
	}
	_, hooks := c.Listen.Endpoint("http")
	if hooks && len(c.Routes) > 0 && len(c.Listen.Gateway) == 0 && len(c.TrustedProxies) == 0 && !slices.ContainsFunc(c.Routes, c.counts) {
		c.warn("the routes decide only about requests of /v1/enter: without trusted_proxies, the hooks of listen.http refuse every request", "trusted_proxies: [127.0.0.1], with the addresses of your proxies", "listen", "http")
		c.problems[len(c.problems)-1].Follows = true
	}
	rls, _ := c.Listen.Endpoint("rls")
	if o, ok := c.Listen.Endpoint("http"); ok && len(c.Limits) == 0 && len(c.Routes) == 0 && !o.HTTP.ClientLimits.On && rls.RLS.Envoy == "" { // Envoy's files may have limits
		c.warn("listen.http has nothing to limit: the policy has no limits, and takes none from clients", "limits: { per-client: { key: client.ip, token_bucket: { rate: 10/s, burst: 20 } } }; or client_limits: {} below listen.http", "listen", "http")
		c.problems[len(c.problems)-1].Follows = true
	}
}

// counts reports whether a limit of a route counts requests in flight. The hooks of proxies do not say when a request
// ends, so such a route is for /v1/enter.
func (c *checker) counts(r Route) bool {
	return r.Adaptive.On || slices.ContainsFunc(c.Limits, func(l Limit) bool {
		_, places := rules.PlacesOf(l.Limit)
		return places && slices.Contains(r.Limits, l.Name)
	})
}
