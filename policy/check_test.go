package policy_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/policy"
)

func bucket(rate string, burst int64) weir.TokenBucket {
	r, err := weir.ParseRate(rate)
	if err != nil {
		panic(err)
	}
	return weir.TokenBucket{Rate: r, Burst: burst}
}

// good is a policy without a problem.
func good() policy.Policy {
	return policy.Policy{
		Limits: []policy.Limit{
			{Name: "per-user", Key: []string{"client.ip", "header.user-id"}, Limit: bucket("100/s", 200)},
			{Name: "per-sku", Key: []string{"query.sku_id"}, OnMissing: "key", Limit: bucket("500/s", 500), Cost: "header.x-cost"},
		},
		Upstreams: []policy.Upstream{{Name: "shop", URL: "http://127.0.0.1:9000"}},
		Routes: []policy.Route{
			{Match: "GET /ratelimit/sku", Upstream: "shop", Limits: []string{"per-user", "per-sku"}, Refused: policy.Refused{Status: 503, Body: "Degraded content"}},
		},
	}
}

func TestCheck(t *testing.T) {
	p := good()
	if problems := p.Check(); len(problems) != 0 {
		t.Errorf("a good policy: %v", problems)
	}
	for name, c := range map[string]struct {
		spoil   func(*policy.Policy)
		path    string
		message string
		fix     string
		warning bool
	}{
		"rate 0": {func(p *policy.Policy) {
			p.Limits[0].Limit = weir.TokenBucket{Rate: weir.Rate{Per: time.Second}, Burst: 1}
		}, "limits.per-user.token_bucket.rate", "lets nothing pass", "", false},
		"recent below 0":     {func(p *policy.Policy) { p.Admin.Recent = -1 }, "admin.recent", "-1 is not a number of requests", "50000", false},
		"recent too large":   {func(p *policy.Policy) { p.Admin.Recent = policy.MaxRecent + 1 }, "admin.recent", "from 0 to 1000000", "50000", false},
		"burst 0":            {func(p *policy.Policy) { p.Limits[0].Limit = bucket("1/s", 0) }, "limits.per-user.token_bucket.burst", "lets nothing pass", "", false},
		"burst below cost":   {func(p *policy.Policy) { p.Limits[0].Cost = "201" }, "limits.per-user.cost", "never fits a burst of 200", "raise the burst", false},
		"no algorithm":       {func(p *policy.Policy) { p.Limits[0].Limit = nil }, "limits.per-user", "no algorithm", "token_bucket", false},
		"cost 0":             {func(p *policy.Policy) { p.Limits[0].Cost = "0" }, "limits.per-user.cost", "not a cost", "at least 1", false},
		"cost":               {func(p *policy.Policy) { p.Limits[0].Cost = "header.a b" }, "limits.per-user.cost", "header field", "", false},
		"unknown limit":      {func(p *policy.Policy) { p.Routes[0].Limits[1] = "per-skew" }, "routes.0.limits.1", `no limit "per-skew"`, `did you mean "per-sku"?`, false},
		"unknown upstream":   {func(p *policy.Policy) { p.Routes[0].Upstream = "shp" }, "routes.0.upstream", `no upstream "shp"`, `did you mean "shop"?`, false},
		"no upstreams":       {func(p *policy.Policy) { p.Upstreams = nil }, "routes.0.upstream", "no upstream", "there are no upstreams", false},
		"unknown store":      {func(p *policy.Policy) { p.Limits[0].Store = "shared" }, "limits.per-user.store", `no store "shared"`, "add one under stores", false},
		"twice":              {func(p *policy.Policy) { p.Limits[1].Name = "per-user" }, "limits.per-user", "two limits named", "a name of its own", false},
		"twice upstream":     {func(p *policy.Policy) { p.Upstreams = append(p.Upstreams, p.Upstreams[0]) }, "upstreams.shop", "two upstreams named", "", false},
		"bad name":           {func(p *policy.Policy) { p.Limits[1].Name = "Per SKU" }, "limits.Per SKU", "not a name", "small letter", false},
		"limit twice":        {func(p *policy.Policy) { p.Routes[0].Limits[1] = "per-user" }, "routes.0.limits.1", "there twice", "", false},
		"unused":             {func(p *policy.Policy) { p.Routes[0].Limits = p.Routes[0].Limits[:1] }, "limits.per-sku", "no route uses", "", true},
		"key":                {func(p *policy.Policy) { p.Limits[0].Key[1] = "heder.user-id" }, "limits.per-user.key.1", "not a part of a key", `did you mean "header.user-id"?`, false},
		"key too":            {func(p *policy.Policy) { p.Limits[0].Key[0] = "client.i" }, "limits.per-user.key.0", "not a part of a key", `did you mean "client.ip"?`, false},
		"variable":           {func(p *policy.Policy) { p.Limits[0].Key[0] = "path.item" }, "routes.0.limits.0", "has no {item}", "put {item}", false},
		"when_full":          {func(p *policy.Policy) { p.Limits[0].WhenFull = "refus" }, "limits.per-user.when_full", "not a value of when_full", `did you mean "refuse"?`, false},
		"on_missing":         {func(p *policy.Policy) { p.Limits[0].OnMissing = "skp" }, "limits.per-user.on_missing", "not a value of on_missing", `did you mean "skip"?`, false},
		"max_keys":           {func(p *policy.Policy) { p.Limits[0].MaxKeys = -1 }, "limits.per-user.max_keys", "not a number of keys", "", false},
		"match":              {func(p *policy.Policy) { p.Routes[0].Match = "GET shop" }, "routes.0.match", "no path", "", false},
		"never reached":      {func(p *policy.Policy) { p.Routes = append(p.Routes, p.Routes[0]) }, "routes.1.match", "never reached", "", true},
		"url":                {func(p *policy.Policy) { p.Upstreams[0].URL = "127.0.0.1:9000" }, "upstreams.shop.url", "", "http://127.0.0.1:9000", false},
		"url with a path":    {func(p *policy.Policy) { p.Upstreams[0].URL += "/base" }, "upstreams.shop.url", "more than a host", "", false},
		"url with a secret":  {func(p *policy.Policy) { p.Upstreams[0].URL = "http://me:secret@host" }, "upstreams.shop.url", "would show", "", false},
		"status":             {func(p *policy.Policy) { p.Routes[0].Refused.Status = 99 }, "routes.0.refused.status", "not a status", "200 and 599", false},
		"status to redirect": {func(p *policy.Policy) { p.Routes[0].Refused = policy.Refused{Status: 503, Redirect: "/sorry"} }, "routes.0.refused.status", "not a status", "300 and 399", false},
		"redirect":           {func(p *policy.Policy) { p.Routes[0].Refused = policy.Refused{Redirect: "javascript:x"} }, "routes.0.refused.redirect", "browser", "", false},
		"body and file":      {func(p *policy.Policy) { p.Routes[0].Refused.File = "x.html" }, "routes.0.refused", "exclude", "", false},
		"headers":            {func(p *policy.Policy) { p.Headers = []string{"rate-limit"} }, "headers.0", "header fields about limits", `did you mean "ratelimit"?`, false},
		"on_failure":         {func(p *policy.Policy) { p.Stores = []policy.Store{{Name: "s", OnFailure: "alow"}} }, "stores.s.on_failure", "not what to do", `did you mean "allow"?`, false},
		"deadline":           {func(p *policy.Policy) { p.Stores = []policy.Store{{Name: "s", Deadline: -1}} }, "stores.s.deadline", "not a valid deadline", "20ms", false},
		"nodes":              {func(p *policy.Policy) { p.Stores = []policy.Store{{Name: "s", Nodes: -1}} }, "stores.s.nodes", "not a number of nodes", "at least 1", false},
		"lease lifetime": {func(p *policy.Policy) {
			p.Stores = []policy.Store{{Name: "s", Lease: policy.Lease{Lifetime: time.Hour}}}
		}, "stores.s.lease.lifetime", "too long", "1ms to 1m", false},
		"lease max": {func(p *policy.Policy) { p.Stores = []policy.Store{{Name: "s", Lease: policy.Lease{Max: -1}}} }, "stores.s.lease.max", "a node may hold", "from 1", false},
		"on_failure of a limit": {func(p *policy.Policy) {
			p.Stores, p.Limits[0].Store, p.Limits[0].OnFailure = []policy.Store{{Name: "s"}}, "s", "dney"
		}, "limits.per-user.on_failure", "not what to do", `did you mean "deny"?`, false},
		"on_failure without a store": {func(p *policy.Policy) { p.Limits[0].OnFailure = "deny" }, "limits.per-user.on_failure", "in no store", "name a store", false},
	} {
		p := good()
		c.spoil(&p)
		problems := p.Check()
		i := slices.IndexFunc(problems, func(q policy.Problem) bool { return strings.Join(q.Path, ".") == c.path })
		if i < 0 {
			t.Errorf("%s: nothing at %s among %v", name, c.path, problems)
			continue
		}
		q := problems[i]
		if !strings.Contains(q.Message, c.message) || !strings.Contains(q.Fix, c.fix) || q.Warning != c.warning {
			t.Errorf("%s: %+v", name, q)
		}
		_, err := policy.New(p, policy.Options{})
		var wrong *policy.Error
		if errors.As(err, &wrong) == c.warning {
			t.Errorf("%s: New gives %v", name, err)
		}
	}
}

func TestCheckFindsEverything(t *testing.T) {
	p := good()
	p.Limits[0].Limit = weir.LeakyBucket{}
	p.Limits[1].Key[0] = "nothing"
	p.Upstreams[0].URL = "x"
	p.Routes[0].Match = ""
	p.Routes[0].Limits = []string{"a", "b"}
	_, err := policy.New(p, policy.Options{})
	var wrong *policy.Error
	if !errors.As(err, &wrong) || len(wrong.Problems) != 6 || !strings.Contains(err.Error(), "and 3 more") {
		t.Errorf("%v", err)
	}
}

func TestParseLimit(t *testing.T) {
	l, err := policy.ParseLimit("token_bucket", map[string]any{"rate": "6/m", "burst": 5, "initial": "empty"})
	if want := (weir.TokenBucket{Rate: weir.PerMinute(6), Burst: 5, Initial: weir.InitialEmpty}); err != nil || l != want {
		t.Errorf("%+v, %v", l, err)
	}
	l, err = policy.ParseLimit("leaky_bucket", map[string]any{"rate": "10/s", "queue": "4", "delay_after": 2.0})
	if want := (weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 4, DelayAfter: 2}); err != nil || l != want {
		t.Errorf("%+v, %v", l, err)
	}
	for kind, fields := range map[string]map[string]any{
		"did you mean \"token_bucket\"?":          nil,
		"token_bucket has no \"brust\"":           {"rate": "1/s", "brust": 1},
		"did you mean \"burst\"?":                 {"rate": "1/s", "brust": 1},
		"rate: 100 is not a rate":                 {"rate": 100, "burst": 1},
		"rate: rate \"x\"":                        {"rate": "x", "burst": 1},
		"burst: 1.5 is not a whole number":        {"rate": "1/s", "burst": 1.5},
		"burst: 1e+30 is not a whole number":      {"rate": "1/s", "burst": 1e30},
		"burst: empty is not a whole number":      {"rate": "1/s", "burst": "empty"},
		"burst: it is missing (How many requests": {"rate": "1/s"},
		"initial: 9 is not within":                {"rate": "1/s", "burst": 5, "initial": 9},
		"burst: 18446744073709551615 is not a":    {"rate": "1/s", "burst": uint64(1<<64 - 1)},
	} {
		name := "token_bucket"
		if fields == nil {
			name = "tokenbucket"
		}
		_, err := policy.ParseLimit(name, fields)
		var wrong *policy.FieldError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), kind) {
			t.Errorf("%v: %v, want one with %q", fields, err, kind)
		}
	}
	var names []string
	for _, k := range rules.Kinds() {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	if got := policy.Algorithms(); !slices.Equal(got, names) || !slices.Contains(got, "token_bucket") {
		t.Errorf("%q, want %q", got, names)
	}
	if fields := policy.Fields("leaky_bucket"); !slices.Equal(fields, []string{"rate", "queue", "delay_after"}) || policy.Fields("x") != nil {
		t.Errorf("%v", fields)
	}
}

// TestHooksWithoutProxies: routes without trusted_proxies are for /v1/enter where they count what is in flight, and
// otherwise probably a mistake.
func TestHooksWithoutProxies(t *testing.T) {
	concurrent := policy.Limit{Name: "busy", Key: []string{"client.ip"}, Limit: weir.Concurrency{Limit: 1}}
	for name, c := range map[string]struct {
		spoil func(*policy.Policy)
		warns bool
	}{
		"rates":       {func(*policy.Policy) {}, true},
		"proxies":     {func(p *policy.Policy) { p.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} }, false},
		"adaptive":    {func(p *policy.Policy) { p.Routes[0].Adaptive.On = true }, false},
		"unused":      {func(p *policy.Policy) { p.Limits = append(p.Limits, concurrent) }, true},
		"concurrency": {func(p *policy.Policy) { p.Limits, p.Routes[0].Limits = append(p.Limits, concurrent), []string{"busy"} }, false},
	} {
		p := good()
		p.Listen = policy.Listen{Others: []policy.Endpoint{{Face: "http", Address: "127.0.0.1:8082"}}}
		c.spoil(&p)
		warns := slices.ContainsFunc(p.Check(), func(q policy.Problem) bool { return q.Warning && strings.Contains(q.Message, "/v1/enter") })
		if warns != c.warns {
			t.Errorf("%s: %v", name, p.Check())
		}
	}
}
