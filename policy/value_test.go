package policy_test

import (
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// texts are Values for tests.
type texts map[string]string

func (t texts) Value(name string) (string, bool) {
	value, present := t[name]
	return value, present
}

// Keys and costs may be made of what the program knows: values that differ have counters of their
// own, a value that is missing is the empty one, and a cost that is no number is invalid.
func TestValues(t *testing.T) {
	p := policy.Policy{
		Limits: []policy.Limit{{Name: "user", Key: []string{"value.user", "value.group"}, Cost: "value.cost", Limit: weir.FixedWindow{Limit: 3, Window: 1e15}}},
		Routes: []policy.Route{{Match: "/never", Limits: []string{"user"}}, {Match: "/never/again"}},
	}
	e, err := policy.New(p, policy.Options{Values: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for i, c := range []struct {
		values policy.Values
		want   policy.Outcome
	}{
		{texts{"user": "a", "group": "bc"}, policy.Allow},
		{texts{"user": "a", "group": "bc", "cost": "2"}, policy.Allow},
		{texts{"user": "a", "group": "bc"}, policy.Deny},
		{texts{"user": "ab", "group": "c", "cost": "3"}, policy.Allow}, // the same text, if parts were only joined
		{texts{"user": "ab", "group": "c"}, policy.Deny},
		{texts(nil), policy.Allow},
		{texts{"cost": "2"}, policy.Allow},
		{texts{}, policy.Deny},
		{texts{"user": "z", "cost": "many"}, policy.Invalid},
		{texts{"user": "z", "cost": "0"}, policy.Invalid},
	} {
		m := e.MatchRoute(0, policy.Request{Method: "GET", Path: "/elsewhere", Values: c.values})
		if v := e.DecideMatch(t.Context(), &m); v.Outcome != c.want || v.Route != 0 {
			t.Errorf("request %d with %v: %v by route %d, want %v", i, c.values, v.Outcome, v.Route, c.want)
		}
	}
}

// Where no program gives values, such as in the gateway, a policy with them is not valid.
func TestValuesWithoutAProgram(t *testing.T) {
	for name, l := range map[string]policy.Limit{
		"key":  {Name: "user", Key: []string{"client.ip", "value.user"}, Limit: weir.FixedWindow{Limit: 3, Window: 1e9}},
		"cost": {Name: "user", Key: []string{"client.ip"}, Cost: "value.cost", Limit: weir.FixedWindow{Limit: 3, Window: 1e9}},
	} {
		p := policy.Policy{Limits: []policy.Limit{l}}
		if _, err := policy.New(p, policy.Options{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
