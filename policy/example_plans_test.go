package policy_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// accounts looks customers up where the program keeps them: in its database, say.
type accounts map[string]policy.Customer

func (a accounts) APIKey(_ context.Context, key string) (c policy.Customer, valid bool, err error) {
	c, valid = a[key]
	return c, valid, nil
}

// Token is for JSON Web Tokens: a weirjwt.Verifier verifies them. This program has none.
func (a accounts) Token(context.Context, string) (policy.Claims, bool) { return nil, false }

// Plans of a Go program: it looks up API keys itself, so the policy names no files.
func ExamplePlans() {
	perMinute := weir.TokenBucket{Rate: weir.PerMinute(10), Burst: 2}
	pro, err := policy.WithPlan(perMinute, "pro", map[string]any{"rate": "100/m", "burst": 4})
	if err != nil {
		panic(err)
	}
	engine, err := policy.New(policy.Policy{
		Plans: policy.Plans{From: []string{"api_key"}, Default: "free"},
		Limits: []policy.Limit{{
			Name: "requests", Key: []string{"customer"}, Limit: perMinute,
			Plans: []policy.PlanLimit{pro, {Plan: "enterprise", Unlimited: true}},
		}},
		Routes: []policy.Route{{Match: "/api/", Limits: []string{"requests"}}},
	}, policy.Options{Customers: accounts{
		"anna-key": {Name: "anna"},
		"acme-key": {Name: "acme", Plan: "pro"},
	}})
	if err != nil {
		panic(err)
	}
	defer engine.Close()
	for _, key := range []string{"anna-key", "acme-key", "a-guess"} {
		v := engine.Decide(policy.Request{Method: "GET", Path: "/api/", Header: http.Header{"X-Api-Key": {key}}})
		fmt.Println(key, v.Outcome, v.Decision.Remaining)
	}
	// Output:
	// anna-key allow 1
	// acme-key allow 3
	// a-guess unknown customer 0
}
