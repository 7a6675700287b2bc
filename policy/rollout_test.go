package policy_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

func rolledOut(share string, change ...func(*policy.Policy)) policy.Policy {
	p := policy.Policy{
		Limits: []policy.Limit{{Name: "per-user", Key: []string{"header.user-id"}, OnMissing: "key", RollOut: share, Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1}}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"per-user"}}},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func user(id int) policy.Request {
	return policy.Request{Method: "GET", Path: "/", Header: map[string][]string{"User-Id": {fmt.Sprint(id)}}}
}

func newEngine(t *testing.T, p policy.Policy, o policy.Options) *policy.Engine {
	t.Helper()
	e, err := policy.New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// enforced returns the users whose second request is refused.
func enforced(t *testing.T, share string, users int) []bool {
	clock := new(weirtest.Clock)
	e := newEngine(t, rolledOut(share), policy.Options{Clock: clock.Now})
	in := make([]bool, users)
	for i := range in {
		e.Decide(user(i))
		in[i] = e.Decide(user(i)).Outcome == policy.Deny
	}
	return in
}

// TestRollOutOnlyAddsKeys: a key in a share is also in every larger share, in each engine alike,
// and the number of keys follows the share.
func TestRollOutOnlyAddsKeys(t *testing.T) {
	raced.Skip(t)
	const users = 20_000
	var before []bool
	for _, share := range []string{"0%", "0.5%", "10%", "10.000001%", "50%", "100%", ""} {
		in := enforced(t, share, users)
		if again := enforced(t, share, users); !slices.Equal(in, again) {
			t.Errorf("%s: another engine enforces it for others", share)
		}
		n := 0
		for i, is := range in {
			if is {
				n++
			}
			if before != nil && before[i] && !is {
				t.Errorf("%s: user %d was in, and is not any more", share, i)
			}
		}
		before = in
		want := 1.0
		if share != "" {
			fmt.Sscanf(share, "%f%%", &want)
			want /= 100
		}
		// Five standard deviations. The hash is fixed, so this does not change from run to run.
		if dev := math.Abs(float64(n) - want*users); dev > 5*math.Sqrt(users*want*(1-want)) {
			t.Errorf("%q: enforced for %d of %d", share, n, users)
		}
	}
}

// TestRollOutCountsBothGroups: keys beyond the share are counted by a shadow, in states of their
// own, in memory and in a store.
func TestRollOutCountsBothGroups(t *testing.T) {
	t.Run("memory", func(t *testing.T) { countsBothGroups(t, "") })
	t.Run("store", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { countsBothGroups(t, "main") }) // so that no call of a shadow comes too late
	})
}

func countsBothGroups(t *testing.T, store string) {
	clock := new(weirtest.Clock)
	p := rolledOut("25%", func(p *policy.Policy) {
		p.Stores, p.Limits[0].Store = []policy.Store{{Name: "main", URL: "redis://x"}}, store
	})
	e := newEngine(t, p, policy.Options{Clock: clock.Now, Stores: map[string]weir.Store{"main": weirtest.NewStore(clock.Now)}})
	refused := 0
	for range 2 {
		for i := range 400 { // so few that all calls of the shadow may be in flight at once, and none is skipped
			if e.Decide(user(i)).Outcome == policy.Deny {
				refused++
			}
		}
	}
	if err := e.Close(); err != nil { // it waits for shadows in stores
		t.Fatal(err)
	}
	c := e.Counts()
	if len(c) != 2 || c[0].Shadow || c[0].Rest || !c[1].Shadow || !c[1].Rest || c[1].Limit != "per-user" {
		t.Fatalf("%+v", c)
	}
	if c[1].Missed > 0 || int(c[0].Limited) != refused || c[0].Allowed != c[0].Limited || c[1].Allowed != c[1].Limited || c[0].Limited+c[1].Limited != 400 || refused < 60 || refused > 140 {
		t.Errorf("%d were refused: %+v", refused, c)
	}
}

// TestRollOutKeepsCounts: a change of the share, and its removal, keep the counts of the keys in
// the share.
func TestRollOutKeepsCounts(t *testing.T) {
	clock := new(weirtest.Clock)
	e := newEngine(t, rolledOut("30%"), policy.Options{Clock: clock.Now})
	var in []int
	for i := range 200 {
		e.Decide(user(i))
		if e.Decide(user(i)).Outcome == policy.Deny {
			in = append(in, i)
		}
	}
	for _, share := range []string{"60%", "100%", ""} {
		next, err := e.Next(rolledOut(share))
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Retire(next); err != nil {
			t.Fatal(err)
		}
		e = next
		for _, i := range in {
			if e.Decide(user(i)).Outcome != policy.Deny {
				t.Errorf("%q: the counts of user %d are reset", share, i)
			}
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestRollOutOfPlaces: a concurrency limit never refuses keys beyond the share, and keeps no places
// for them.
func TestRollOutOfPlaces(t *testing.T) {
	p := rolledOut("0%", func(p *policy.Policy) { p.Limits[0].Limit = weir.Concurrency{Limit: 1} })
	e := newEngine(t, p, policy.Options{})
	for range 3 {
		v := e.Decide(user(1))
		if err := v.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer v.Done(weir.OK)
	}
	if c := e.Counts(); c[0].Allowed+c[0].Limited != 0 || c[1].Allowed != 1 || c[1].Limited != 2 {
		t.Errorf("%+v", c)
	}
}

func TestRollOutIsChecked(t *testing.T) {
	for share, want := range map[string]string{
		"10%": "", "0.5%": "", "100%": "", "100.000%": "", "0%": "", "99.999999%": "",
		"10": "not a share", "%": "not a share", "-1%": "not a share", "1.%": "not a share", ".5%": "not a share", "1e1%": "not a share", "+1%": "not a share", "١%": "not a share",
		"101%": "more than all", "100.000001%": "more than all", "99999999999999999999%": "more than all", "1.0000001%": "finer than",
	} {
		p := rolledOut(share)
		var problems []string
		for _, problem := range p.Check() {
			problems = append(problems, problem.String())
		}
		text := strings.Join(problems, "; ")
		if want == "" && text != "" || want != "" && !strings.Contains(text, want) {
			t.Errorf("%q: %s", share, text)
		}
	}
	shadow := rolledOut("10%", func(p *policy.Policy) { p.Limits[0].Shadow = true })
	keyless := rolledOut("10%", func(p *policy.Policy) { p.Limits[0].Key = nil })
	for _, p := range []policy.Policy{shadow, keyless} {
		if len(p.Check()) != 1 {
			t.Errorf("%v", p.Check())
		}
	}
}
