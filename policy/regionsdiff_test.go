package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
)

// TestDiffOfRegions: regions that change are told as a policy file has them, and equal ones are no change.
func TestDiffOfRegions(t *testing.T) {
	in := func(us int) *policy.Policy {
		return &policy.Policy{Stores: []policy.Store{{Name: "here", URL: "redis://h", Regions: &policy.Regions{
			Here: "eu", Home: "global", Guaranteed: []policy.Region{{Name: "eu", Percent: 10}, {Name: "us", Percent: us}}, Term: time.Minute,
		}}}}
	}
	if all := policy.Diff(in(10), in(10)); len(all) != 0 {
		t.Errorf("%v", all)
	}
	all := policy.Diff(in(10), in(20))
	if len(all) != 1 || len(all[0].Fields) != 1 {
		t.Fatalf("%+v", all)
	}
	f := all[0].Fields[0]
	if f.Name != "regions" || f.From != "{ here: eu, home: global, guaranteed: [eu: 10, us: 10], term: 1m }" || !strings.Contains(f.To, "us: 20") {
		t.Errorf("%+v", f)
	}
	none := in(10)
	none.Stores[0].Regions = nil
	if all := policy.Diff(none, in(10)); len(all) != 1 || all[0].Fields[0].From != "" {
		t.Errorf("%+v", all)
	}
}
