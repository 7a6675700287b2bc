package policy_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// fallback is a store whose fallback has decided.
type fallback struct{ decision weir.Decision }

func (s fallback) Do(_ context.Context, _ []weir.Charge, out []weir.Decision) error {
	out[0] = s.decision
	return nil
}

func (fallback) Close() error { return nil }

// TestExplainAnOutage: where a fallback has decided, an explanation says so, and derives nothing from the limit's numbers.
func TestExplainAnOutage(t *testing.T) {
	for want, d := range map[string]weir.Decision{
		`refused: the store "s" is unavailable, and on_failure of the limit is deny`:        {Limit: 100, RetryAfter: 250 * time.Millisecond, ResetAfter: 250 * time.Millisecond, Source: weir.SourceDeny},
		`allowed: the store "s" is unavailable, and on_failure of the limit is allow`:       {Allowed: true, Limit: 100, Remaining: 100, Source: weir.SourceAllow},
		`allowed: 7 of 25 left (token_bucket burst=100 rate=100/h); by this node's share, `: {Allowed: true, Limit: 25, Remaining: 7, Source: weir.SourceShare},
	} {
		e, err := policy.New(policy.Policy{Stores: []policy.Store{{Name: "s", URL: "redis://127.0.0.1"}}, Limits: []policy.Limit{
			{Name: "l", Limit: weir.TokenBucket{Rate: weir.PerHour(100), Burst: 100}, Key: []string{"header.k"}, Store: "s"},
		}}, policy.Options{Stores: map[string]weir.Store{"s": fallback{d}}})
		if err != nil {
			t.Fatal(err)
		}
		x, err := e.Explain(t.Context(), policy.Ask{Limit: "l", Key: []string{"ann"}, OwnCost: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := x.String(); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
		if math := x.Arithmetic(); (math == "") != (d.Source != weir.SourceShare) {
			t.Errorf("%s: %q", want, math)
		}
		e.Close()
	}
}
