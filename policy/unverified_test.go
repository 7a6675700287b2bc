package policy_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
)

// TestUnverifiedCustomers: a key that cannot be looked up is neither valid nor invalid. Its requests are
// refused where a limit needs the customer, also where unknown requests have the default plan, and
// nothing is charged. Requests without a key, with a token, or that are exempt, are as always.
func TestUnverifiedCustomers(t *testing.T) {
	for _, unknown := range []string{policy.UnknownDeny, policy.UnknownDefault} {
		p := withPlans()
		p.Plans.Unknown = unknown
		p.Limits[0].Exempt = []string{"preflight"}
		down := known()
		down.down = errors.New("unavailable")
		e := planned(t, p, policy.Options{Customers: down})
		without := policy.UnknownCustomer
		if unknown == policy.UnknownDefault {
			without = policy.Allow
		}
		preflight := request("/", "X-Api-Key", "k-pro", "Origin", "https://o", "Access-Control-Request-Method", "GET")
		preflight.Method = "OPTIONS"
		for name, c := range map[string]struct {
			request policy.Request
			want    policy.Outcome
		}{
			"a key":             {request("/", "X-Api-Key", "k-pro"), policy.UnverifiedCustomer},
			"no key":            {request("/"), without},
			"a token":           {request("/", "Authorization", "Bearer "+token), policy.Allow},
			"an open route":     {request("/open", "X-Api-Key", "k-pro"), policy.Allow},
			"a preflight":       {preflight, policy.Allow},
			"two keys":          {request("/", "X-Api-Key", "k-pro", "Authorization", "Bearer other"), without},
			"a key, identified": {request("/", "X-Api-Key", "k-free"), policy.UnverifiedCustomer},
		} {
			m := e.Match(c.request)
			if name == "a key, identified" && e.Identify(t.Context(), &m) {
				t.Errorf("%s: a request that will be refused is identified", unknown)
			}
			if v := e.DecideMatch(t.Context(), &m); v.Outcome != c.want {
				t.Errorf("%s, %s: %v, want %v", unknown, name, v.Outcome, c.want)
			}
		}
		if n := e.Counts()[0]; n.Limited != 0 {
			t.Errorf("%s: %d were refused by the limit", unknown, n.Limited)
		}
	}
}

// TestChecksOfKeyStores: what cannot work is an error, at its place.
func TestChecksOfKeyStores(t *testing.T) {
	for at, c := range map[string]policy.APIKeys{
		"plans api_keys store":      {Store: "sharde"},
		"plans api_keys refresh":    {Store: "s", Refresh: time.Millisecond},
		"plans api_keys stale":      {Store: "s", Refresh: time.Minute, Stale: time.Second},
		"plans api_keys on_failure": {Store: "s", OnFailure: "allow"},
		"":                          {Store: "s", Refresh: time.Second, Stale: time.Hour, OnFailure: policy.KeysUnknown},
	} {
		p := withPlans()
		p.Stores, p.Plans.APIKeys = []policy.Store{{Name: "s", URL: "memory://"}}, c
		if at == "" {
			if all := p.Check(); len(all) > 0 {
				t.Errorf("%v", all)
			}
			continue
		}
		if !slices.ContainsFunc(p.Check(), func(w policy.Problem) bool { return !w.Warning && strings.Join(w.Path, " ") == at }) {
			t.Errorf("no error at %s: %v", at, p.Check())
		}
	}
}
