package policy_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

func shared() policy.Policy {
	bucket := weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}
	return policy.Policy{
		Listen: policy.Listen{Gateway: []policy.Listener{{Address: "127.0.0.1:8080"}}},
		Stores: []policy.Store{{Name: "main", URL: "redis://app:secret@10.0.0.9:6379/0?client_name=x", Place: policy.Place{Hosts: "10.0.0.9:6379"}, Deadline: 20 * time.Millisecond}},
		Limits: []policy.Limit{
			{Name: "a", Key: []string{"client.ip"}, Limit: bucket},
			{Name: "b", Key: []string{"client.ip"}, Limit: bucket, Store: "main"},
		},
		Upstreams: []policy.Upstream{{Name: "shop", URL: "http://127.0.0.1:9000"}},
		Routes:    []policy.Route{{Match: "/a", Upstream: "shop", Limits: []string{"a"}}, {Match: "/", Upstream: "shop", Limits: []string{"b"}}},
	}
}

func TestDiff(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *policy.Policy)
		want   string
	}{
		"nothing": {func(*policy.Policy) {}, ""},
		"numbers": {func(p *policy.Policy) { p.Limits[0].Limit = weir.TokenBucket{Rate: weir.PerMinute(6), Burst: 20} },
			"limit a: token_bucket.rate from 10/s to 6/m; its counts are kept"},
		"algorithm": {func(p *policy.Policy) { p.Limits[0].Limit = weir.FixedWindow{Limit: 5, Window: 36 * time.Hour} },
			"limit a: algorithm from token_bucket: { rate: 10/s, burst: 20 } to fixed_window: { limit: 5, window: 1d12h }; its counts are kept"},
		"roll_out": {func(p *policy.Policy) { p.Limits[0].RollOut = "0.5%" }, "limit a: roll_out is set to 0.5%; its counts are kept"},
		"key": {func(p *policy.Policy) { p.Limits[0].Key = []string{"client.ip", "host"} },
			"limit a: key from [client.ip] to [client.ip, host]; its counts are reset: its key is made of other parts"},
		"shadow":              {func(p *policy.Policy) { p.Limits[0].Shadow = true }, "limit a: shadow is set to true; its counts are reset: shadow states and others are apart"},
		"max_keys":            {func(p *policy.Policy) { p.Limits[0].MaxKeys = 5 }, "limit a: max_keys is set to 5; its counts are reset: its keys are kept in a new table, for another max_keys or when_full"},
		"max_keys in a store": {func(p *policy.Policy) { p.Limits[1].MaxKeys = 5 }, "limit b: max_keys is set to 5; its counts are kept"},
		"into a store": {func(p *policy.Policy) { p.Limits[0].Store = "main" },
			"limit a: store is set to main; its counts are reset: it is kept in a store, and was in memory, or the other way round"},
		"concurrency": {func(p *policy.Policy) { p.Limits[0].Limit = weir.Concurrency{Limit: 5} },
			"limit a: algorithm from token_bucket: { rate: 10/s, burst: 20 } to concurrency: { limit: 5 }; its counts are reset: places and charges are not the same"},
		"a place of the store": {func(p *policy.Policy) {
			p.Stores[0].URL, p.Stores[0].Place.Hosts = "redis://app:secret@10.0.0.8:6379/0?client_name=x", "10.0.0.8:6379"
			p.Limits[1].Status = 503
		}, "store main: url from redis://10.0.0.9:6379/0 to redis://10.0.0.8:6379/0; its counts are reset: what its limits have counted stays where it was\nlimit b: status is set to 503; its counts are reset: its store is at another address"},
		"a password": {func(p *policy.Policy) { p.Stores[0].URL = "redis://app:secret2@10.0.0.9:6379/0?client_name=x" },
			"store main: url from (as it was) to (other users, passwords or parameters)"},
		"added": {func(p *policy.Policy) { p.Limits = append(p.Limits, policy.Limit{Name: "c", Limit: p.Limits[0].Limit}) },
			"limit c is added"},
		"removed": {func(p *policy.Policy) { p.Limits, p.Routes = p.Limits[1:], p.Routes[1:] },
			"limit a is removed; its counts go with it\nroute \"/a\" is removed"},
		"removed from a store": {func(p *policy.Policy) { p.Limits = p.Limits[:1] },
			"limit b is removed; its counts go with it: they stay in the store until they are idle"},
		"settings": {func(p *policy.Policy) {
			p.Listen.Admin = "127.0.0.1:9090"
			p.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
			p.Admin.TokenFile = "token"
		}, "setting listen: listen.admin is set to 127.0.0.1:9090\nsetting admin: admin.token_file is set to token\nsetting trusted_proxies: trusted_proxies is set to [10.0.0.0/8]"},
		"a room":   {func(p *policy.Policy) { p.Rooms = append(p.Rooms, policy.WaitingRoom{Name: "sale", Inside: 5}) }, "waiting room sale is added"},
		"upstream": {func(p *policy.Policy) { p.Upstreams[0].URL = "http://127.0.0.1:9001" }, "upstream shop: url from http://127.0.0.1:9000 to http://127.0.0.1:9001"},
		"route": {func(p *policy.Policy) { p.Routes[0].Refused.Status = 503; p.Routes[0].Limits = []string{"a", "b"} },
			"route \"/a\": limits from [a] to [a, b], refused.status is set to 503"},
		"a long body": {func(p *policy.Policy) { p.Routes[0].Refused.Body = strings.Repeat("é", 500) },
			"route \"/a\": refused.body is set to " + strings.Repeat("é", 100) + "... (1000 bytes)"},
		"order": {func(p *policy.Policy) { p.Routes[0], p.Routes[1] = p.Routes[1], p.Routes[0] },
			"route \"/\" is moved: the first route that matches wins"},
		"the same match twice": {func(p *policy.Policy) { p.Routes = append(p.Routes, p.Routes[0]) }, "route \"/a (number 2)\" is added"},
	} {
		from, to := shared(), shared()
		c.change(&to)
		var got []string
		for _, change := range policy.Diff(&from, &to) {
			got = append(got, change.String())
			if word := change.Counts; word != "" && word != "gone" && !strings.Contains(change.String(), "its counts are "+word) || word != "" && change.How == policy.Added {
				t.Errorf("%s: counts %q of %s", name, word, change)
			}
		}
		text := strings.Join(got, "\n")
		if text != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, text, c.want)
		}
		if strings.Contains(text, "secret") {
			t.Errorf("%s: a password", name)
		}
	}
}

// TestDiffSaysWhatNextDoes: Next keeps the counts that Diff says are kept, and resets those that it
// says are reset.
func TestDiffSaysWhatNextDoes(t *testing.T) {
	for name, change := range map[string]func(l *policy.Limit){
		"numbers":   func(l *policy.Limit) { l.Limit = weir.TokenBucket{Rate: weir.PerDay(1), Burst: 2} },
		"algorithm": func(l *policy.Limit) { l.Limit = weir.FixedWindow{Limit: 2, Window: time.Hour} },
		"roll_out":  func(l *policy.Limit) { l.RollOut = "100%" },
		"status":    func(l *policy.Limit) { l.Status, l.Log = 503, "info" },
		"key":       func(l *policy.Limit) { l.Key = []string{"header.user-id"} },
		"max_keys":  func(l *policy.Limit) { l.MaxKeys = 77 },
		"when_full": func(l *policy.Limit) { l.WhenFull = "refuse" },
	} {
		clock := new(weirtest.Clock)
		clock.Set(minute)
		p := guarded()
		e := newEngine(t, p, policy.Options{Clock: clock.Now})
		for range 2 {
			e.Decide(from("/one", "10.0.0.1", ""))
		}
		to := guarded(func(p *policy.Policy) { change(&p.Limits[0]) })
		diff := policy.Diff(&p, &to)
		if len(diff) != 1 {
			t.Fatalf("%s: %v", name, diff)
		}
		next, err := e.Next(to)
		if err != nil {
			t.Fatal(err)
		}
		kept := next.Decide(from("/one", "10.0.0.1", "")).Outcome == policy.Deny
		if kept != (diff[0].Counts == policy.CountsKept) {
			t.Errorf("%s: kept is %v, and it says %s", name, kept, diff[0])
		}
		if err := next.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestDiffOfPlans: each plan is compared by itself, and written as in a policy file.
func TestDiffOfPlans(t *testing.T) {
	from, to := shared(), shared()
	bucket := func(rate weir.Rate, burst int64) weir.Limit { return weir.TokenBucket{Rate: rate, Burst: burst} }
	from.Limits[0].Plans = []policy.PlanLimit{{Plan: "pro", Unlimited: true}, {Plan: "same", Unlimited: true}, {Plan: "old", Limit: bucket(weir.PerSecond(10), 20)}}
	to.Limits[0].Plans = []policy.PlanLimit{{Plan: "same", Unlimited: true}, {Plan: "pro", Limit: bucket(weir.PerMinute(1000), 100)}, {Plan: "big", Unlimited: true}}
	to.Limits[1].Costs.Before = []policy.CostTerm{{Of: "prompt/4", Weight: 3}}
	to.Upstreams[0].Targets = []policy.Target{{URL: "http://10.0.0.1", Weight: 2}}
	var got []string
	for _, change := range policy.Diff(&from, &to) {
		got = append(got, change.String())
	}
	want := []string{
		"limit a: plans.pro from unlimited to { rate: 1000/m, burst: 100 }, plans.old { rate: 10/s, burst: 20 } is taken out, plans.big is set to unlimited; its counts are kept",
		"limit b: cost.before is set to [3 * prompt/4]; its counts are kept",
		"upstream shop: targets is set to [{ url: http://10.0.0.1, weight: 2 }]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
