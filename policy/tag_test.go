package policy_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// tagged returns a policy on a cluster whose limits have the given tags.
func tagged(client, item, all string) policy.Policy {
	bucket := weir.TokenBucket{Rate: weir.PerHour(1), Burst: 5}
	return policy.Policy{
		Stores: []policy.Store{{Name: "shared", Place: policy.Place{Hosts: "127.0.0.1", Slots: true}}},
		Limits: []policy.Limit{
			{Name: "client", Key: []string{"header.x-user"}, OnMissing: "key", Limit: bucket, Store: "shared", Tag: client},
			{Name: "item", Key: []string{"query.sku", "header.X-User"}, OnMissing: "key", Limit: bucket, Store: "shared", Tag: item},
			{Name: "all", Limit: bucket, Store: "shared", Tag: all},
		},
		Routes: []policy.Route{{Match: "/", Limits: []string{"client", "item", "all"}}},
	}
}

// TestTags: a store finds the tag in each key of a charge, however long the key is.
func TestTags(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, user := range []string{"ann", "", long, long[:64], long[:65], strings.Repeat("\xff", 40)} {
		for _, sku := range []string{"7", long} {
			p := tagged("header.X-USER", "header.x-user", "const.all")
			s := &agreeing{}
			e, err := policy.New(p, policy.Options{Stores: map[string]weir.Store{"shared": s}})
			if err != nil {
				t.Fatal(err)
			}
			e.Decide(policy.Request{Method: "GET", Path: "/", Query: "sku=" + sku, Header: http.Header{"X-User": {user}}})
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			tag := p.Tags("shared")
			at := map[string]string{}
			for _, c := range s.charges {
				at[strings.SplitN(c.Name, "@", 2)[0]] = tag(c.Name, c.Key)
			}
			if len(at) != 3 || at["client"] != at["item"] || at["all"] != "all" {
				t.Errorf("%.20q, %.20q: %q", user, sku, at)
			}
			if len(user) <= 64 && at["client"] != user || len(at["client"]) > 64 {
				t.Errorf("%.20q is kept under the tag %q", user, at["client"])
			}
		}
	}
}

// TestTagsOfOtherKeys: a store without tags finds none. Shadows, limits without a tag, and keys of
// other programs have none.
func TestTagsOfOtherKeys(t *testing.T) {
	p := tagged("", "", "")
	if p.Tags("shared") != nil || p.Tags("other") != nil {
		t.Error("there are tags")
	}
	p = tagged("header.x-user", "", "")
	p.Limits[1].Tag, p.Limits[1].Shadow = "query.sku", true
	tag := p.Tags("shared")
	for i, l := range p.Limits[1:] {
		if got := tag(l.StateName(), "key"); got != "key" {
			t.Errorf("%d: %q", i, got)
		}
	}
	name := p.Limits[0].StateName()
	for _, key := range []string{"", "\xff", "\x09a", strings.Repeat("\xff", 33)} {
		if got := tag(name, key); len(key) < 33 && got != key {
			t.Errorf("%q has the tag %q", key, got)
		}
	}
	if got := tag(name, policy.EncodeKey("ann")); got != "ann" {
		t.Errorf("%q", got)
	}
}

// agreeing is a store that admits everything, and records its charges.
type agreeing struct {
	weir.Store
	charges []weir.Charge
}

func (r *agreeing) Do(_ context.Context, batch []weir.Charge, out []weir.Decision) error {
	r.charges = append(r.charges, batch...)
	for i := range out {
		out[i].Allowed = true
	}
	return nil
}

// TestCheckTags: which tags are invalid, and which limits of a route are in different slots of a
// cluster.
func TestCheckTags(t *testing.T) {
	for name, c := range map[string]struct {
		p                  policy.Policy
		path, message, fix string
		warning            bool
	}{
		"no part of the key": {tagged("client.ip", "", ""), "limits.client.tag", "once for each client.ip", "write header.x-user, which the key has, or const.TEXT", false},
		"no key at all":      {tagged("", "", "client.ip"), "limits.all.tag", "one for all", "const.TEXT", false},
		"no part":            {tagged("heder.x-user", "", ""), "limits.client.tag", "not a part of a key", `did you mean "header.x-user"?`, false},
		"two keys":           {tagged("", "", ""), "routes.0.limits.1", `"client" and "item" are charged one after the other`, "give both tag: header.x-user", true},
		"nothing in common":  {tagged("header.x-user", "header.x-user", ""), "routes.0.limits.2", `"client" and "all" are charged one after the other`, "tag: const.TEXT", true},
		"different tags":     {tagged("header.x-user", "query.sku", ""), "routes.0.limits.1", "in different slots", "give both tag: header.x-user", true},
	} {
		t.Run(name, func(t *testing.T) {
			found := false
			for _, p := range c.p.Check() {
				if strings.Join(p.Path, ".") == c.path && p.Warning == c.warning {
					found = found || strings.Contains(p.Message, c.message) && strings.Contains(p.Fix, c.fix)
				}
			}
			if !found {
				t.Errorf("%v", c.p.Check())
			}
		})
	}
	together := tagged("const.one", "const.one", "const.one")
	single := tagged("", "", "")
	single.Stores[0].Place.Slots = false
	shadow := tagged("header.x-user", "header.x-user", "")
	shadow.Limits[2].Shadow = true
	queue := tagged("header.x-user", "header.x-user", "")
	queue.Limits[2].Limit = weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 5}
	for name, p := range map[string]policy.Policy{"together": together, "one server": single, "a shadow": shadow, "a queue": queue} {
		if problems := p.Check(); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
	memory := tagged("const.one", "const.one", "const.one")
	memory.Limits[0].Store = ""
	if problems := memory.Check(); len(problems) != 1 || !strings.Contains(problems[0].String(), "no store that a tag could be for") {
		t.Errorf("%v", problems)
	}
}

func TestCheckPrefix(t *testing.T) {
	for prefix, want := range map[string]string{
		"":                      "",
		"weir:shop:":            "",
		"weir:{shop}:":          "letters, digits",
		"weir shop":             "letters, digits",
		strings.Repeat("x", 65): "up to 64",
	} {
		p := tagged("const.one", "const.one", "const.one")
		p.Stores[0].Prefix = prefix
		var got string
		for _, problem := range p.Check() {
			got += problem.String()
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %s", prefix, got)
		}
	}
}
