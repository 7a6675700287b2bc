package policyfile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/lease"
)

// TestLeasedKinds: a policy may have a limit in a store with leases exactly where its tokens can be leased.
func TestLeasedKinds(t *testing.T) {
	leased := 0
	for _, kind := range rules.Kinds() {
		if kind.NoStore != "" {
			continue
		}
		text := fmt.Sprintf("stores: {s: {url: 'redis://h', lease: LEASE}}\nlimits: {l: {%s: {%s}, store: s}}\nroutes: [{match: /, limits: [l]}]", kind.Name, requiredFields(kind))
		if f, err := Parse("x.yaml", []byte(strings.Replace(text, "LEASE", "false", 1))); err != nil || len(f.Problems) > 0 {
			t.Fatalf("%s without leases: %v", kind.Name, f.Problems)
		}
		f, err := Parse("x.yaml", []byte(strings.Replace(text, "LEASE", "true", 1)))
		can := lease.Leasable(f.Policy.Limits[0].Limit) == nil
		if can {
			leased++
		}
		if can != (kind.NoLease == "") {
			t.Errorf("%s can be leased: %v, and its descriptor has %q", kind.Name, can, kind.NoLease)
		}
		said := slices.ContainsFunc(f.Problems, func(p Problem) bool { return strings.Contains(p.Message, "cannot be leased") })
		if can != (err == nil) || can == said {
			t.Errorf("%s can be leased: %v; the file: %v", kind.Name, can, err)
		}
	}
	if leased == 0 {
		t.Error("no algorithm can be leased")
	}
}

// requiredFields writes the fields of an algorithm that a policy file must have, with valid values.
func requiredFields(kind *rules.Kind) string {
	values := map[rules.FieldType]string{rules.RateField: "1/s", rules.CountField: "5", rules.DurationField: "1s"}
	var fields []string
	for _, f := range kind.Fields {
		if f.Required {
			fields = append(fields, f.Name+": "+values[f.Type])
		}
	}
	return strings.Join(fields, ", ")
}
