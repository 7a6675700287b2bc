package policy_test

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// TestStateNames: a state's name contains the parts of the key, in one form however they are
// written. No two lists of parts have the same name.
func TestStateNames(t *testing.T) {
	names := map[string]bool{}
	for _, c := range []struct {
		key  string
		want string // empty: it begins with ~
	}{
		{"", "api"},
		{"client.ip", "api@client.ip"},
		{"client.ip|header.x-user", "api@client.ip,header.X-User"},
		{"const.a|const.b", "api@const.a,const.b"},
		{"const.a,const.b", ""},
		{"query.}:", ""},
		{"query." + strings.Repeat("x", 42), "api@query." + strings.Repeat("x", 42)},
		{"query." + strings.Repeat("x", 43), ""},
		{"query." + strings.Repeat("x", 44), ""},
	} {
		l := policy.Limit{Name: "api"}
		if c.key != "" {
			l.Key = strings.Split(c.key, "|")
		}
		name := l.StateName()
		if c.want != "" && name != c.want || c.want == "" && (!strings.HasPrefix(name, "api@~") || len(name) != 37) || names[name] {
			t.Errorf("%q: %q", c.key, name)
		}
		names[name] = true
	}
	a, b := policy.Limit{Name: "api", Key: []string{"header.x-user"}}, policy.Limit{Name: "api", Key: []string{"header.X-USER"}, Shadow: true}
	if a.StateName()+"/shadow" != b.StateName() {
		t.Errorf("%q, %q", a.StateName(), b.StateName())
	}
}

// TestAnotherKeyIsAnotherState: changing a limit's key resets it, in memory and in a store. A
// header field of one client does not count as the address of another with the same text. Changing
// the key back finds the counts in the store.
func TestAnotherKeyIsAnotherState(t *testing.T) {
	for _, store := range []string{"", "shared"} {
		p := func(key string) policy.Policy {
			return policy.Policy{
				Stores: []policy.Store{{Name: "shared", URL: "redis://127.0.0.1"}},
				Limits: []policy.Limit{{Name: "api", Key: []string{key}, Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 2}, Store: store}},
				Routes: []policy.Route{{Match: "/", Limits: []string{"api"}}},
			}
		}
		shared := weirtest.NewStore(new(weirtest.Clock).Now)
		e, err := policy.New(p("client.ip"), policy.Options{Stores: map[string]weir.Store{"shared": shared}})
		if err != nil {
			t.Fatal(err)
		}
		left := func(key, user string) int64 {
			next, err := e.Next(p(key))
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Retire(next); err != nil {
				t.Error(err)
			}
			e = next
			v := e.DecideContext(context.Background(), policy.Request{Method: "GET", Path: "/", Client: "10.0.0.1", Header: http.Header{"X-User": {user}}})
			return v.Decision.Remaining
		}
		got := []int64{left("client.ip", ""), left("client.ip", ""), left("header.x-user", "10.0.0.1"), left("header.X-User", "10.0.0.1"), left("header.x-user", "ann"), left("client.ip", "")}
		want := []int64{1, 0, 1, 0, 1, 0}
		if store == "" {
			want[5] = 1 // in memory, unused tables are dropped
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("store %q: %v, want %v", store, got, want)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSamePlace: which changes of a store's settings keep its limits where they are.
func TestSamePlace(t *testing.T) {
	at := func(hosts, rest string) policy.Place { return policy.Place{Hosts: hosts, Rest: rest} }
	for _, c := range []struct {
		from, to policy.Place
		same     bool
	}{
		{at("a", "db"), at("a", "db"), true},
		{at("a,b", "db"), at("b,c", "db"), true},
		{at("a,b", "db"), at("c", "db"), false},
		{at("a", "db"), at("a", "other"), false},
		{policy.Place{}, policy.Place{}, true}, // then the URLs are compared; they are equal here
		{policy.Place{}, at("a", ""), false},
	} {
		p, next := tagged("", "", ""), tagged("", "", "")
		p.Stores[0].Place, next.Stores[0].Place = c.from, c.to
		if got := len(p.Restarts(&next)) == 0; got != c.same {
			t.Errorf("%v to %v: the same place is %v", c.from, c.to, got)
		}
	}
}

// TestCalls: the calls that a store will get: each limit, and those of a route together.
func TestCalls(t *testing.T) {
	p := tagged("", "", "")
	p.Limits[1].Limit, p.Limits[2].Shadow = weir.SlidingLog{Limit: 1, Window: 1e9}, true
	p.Routes = append(p.Routes, policy.Route{Match: "/", Limits: []string{"client", "all"}}, policy.Route{Match: "/"})
	a, b := p.Limits[0].Limit, p.Limits[1].Limit
	if got, want := p.Calls("shared"), [][]weir.Limit{{a}, {b}, {a}, {a, b}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := p.Calls("other"); got != nil {
		t.Errorf("%v", got)
	}
}

// TestRestarts: which changes reset a limit.
func TestRestarts(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*policy.Policy)
		want   string // which of the limits "client" (in the store) and "local" is reset; empty: none
	}{
		"nothing":             {func(*policy.Policy) {}, ""},
		"its numbers":         {func(p *policy.Policy) { p.Limits[0].Limit = weir.TokenBucket{Rate: weir.PerHour(2), Burst: 9} }, ""},
		"another kind":        {func(p *policy.Policy) { p.Limits[0].Limit = weir.FixedWindow{Limit: 5, Window: 1e9} }, ""},
		"its header's case":   {func(p *policy.Policy) { p.Limits[0].Key[0] = "header.X-USER" }, ""},
		"its key":             {func(p *policy.Policy) { p.Limits[0].Key[0] = "client.ip" }, "client: its key is made of other parts"},
		"its tag":             {func(p *policy.Policy) { p.Limits[0].Tag = "const.x" }, "client: its tag is another one"},
		"its store":           {func(p *policy.Policy) { p.Limits[0].Store = "" }, "client: it is kept in a store, and was in memory, or the other way round"},
		"the store's name":    {func(p *policy.Policy) { p.Stores[0].Name, p.Limits[0].Store = "other", "other" }, ""},
		"the store's address": {func(p *policy.Policy) { p.Stores[0].Place.Hosts += "0" }, "client: its store is at another address"},
		"a node more": {func(p *policy.Policy) {
			p.Stores[0].Place.Hosts = "10.0.0.1," + p.Stores[0].Place.Hosts
		}, ""},
		"the store's prefix":  {func(p *policy.Policy) { p.Stores[0].Prefix = "x:" }, "client: its store has another prefix"},
		"the prefix, written": {func(p *policy.Policy) { p.Stores[0].Prefix = "weir:" }, ""},
		"a shadow":            {func(p *policy.Policy) { p.Limits[0].Shadow = true }, "client: shadow states and others are apart"},
		"when_full":           {func(p *policy.Policy) { p.Limits[1].WhenFull = "share" }, "local: its keys are kept in a new table, for another max_keys or when_full"},
		"a limit more":        {func(p *policy.Policy) { p.Limits = append(p.Limits, policy.Limit{Name: "new"}) }, ""},
		"places":              {func(p *policy.Policy) { p.Limits[1].Limit = weir.Concurrency{Limit: 1} }, "local: places and charges are not the same"},
	} {
		p := func() policy.Policy {
			p := tagged("", "", "")
			p.Limits = []policy.Limit{p.Limits[0], p.Limits[0]}
			p.Limits[1].Name, p.Limits[1].Store, p.Limits[1].Key = "local", "", []string{"client.ip"}
			return p
		}
		before, after := p(), p()
		c.change(&after)
		var got []string
		for _, r := range before.Restarts(&after) {
			got = append(got, r.Limit+": "+r.Why)
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
