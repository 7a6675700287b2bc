package proof

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/internal/snake"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/regions"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirtest"
)

// TestEveryKindEverywhere goes over all algorithms and all places where a limit can be used. It
// fails if an algorithm has neither the place nor a written reason.
func TestEveryKindEverywhere(t *testing.T) {
	kinds, limits := rules.Kinds(), weir.Algorithms()
	if len(kinds) != len(limits) {
		t.Fatalf("package rules has %d kinds, and weir.Algorithms %d", len(kinds), len(limits))
	}
	for i, k := range kinds {
		if got := weir.Algorithm(limits[i]); got != k.Name {
			t.Errorf("kind %d is %s in package rules, and %s in weir.Algorithms", i, k.Name, got)
		}
		for _, hole := range holes(t, k) {
			t.Errorf("%s: %s", k.Name, hole)
		}
	}
}

// TestForgottenPlacesAreFound removes each place, and adds each that a descriptor denies: every one
// must be found.
func TestForgottenPlacesAreFound(t *testing.T) {
	kind := func(name string) rules.Kind {
		for _, k := range rules.Kinds() {
			if k.Name == name {
				return *k
			}
		}
		t.Fatalf("no %s", name)
		return rules.Kind{}
	}
	for want, change := range map[string]func() rules.Kind{
		"keyed":     func() rules.Kind { k := kind("concurrency"); k.NoRule = ""; return k },
		"failover":  func() rules.Kind { k := kind("concurrency"); k.NoShare = ""; return k },
		"lease":     func() rules.Kind { k := kind("sliding_log"); k.NoLease = ""; return k },
		"regions":   func() rules.Kind { k := kind("sliding_log"); k.NoRegions = ""; return k },
		"regions ":  func() rules.Kind { k := kind("token_bucket"); k.NoRegions = "no"; return k },
		"zone":      func() rules.Kind { k := kind("sliding_log"); k.NoZone = ""; return k },
		"lease ":    func() rules.Kind { k := kind("token_bucket"); k.NoLease = "no"; return k },
		"store":     func() rules.Kind { k := kind("nginx_bucket"); k.NoStore = ""; return k },
		"model":     func() rules.Kind { k := kind("concurrency"); k.NoModel = ""; return k },
		"schema":    func() rules.Kind { k := kind("token_bucket"); k.Name = "toy_bucket"; return k },
		"documents": func() rules.Kind { k := kind("token_bucket"); k.Page = "ToyBucket"; return k },
		"field":     func() rules.Kind { k := kind("token_bucket"); k.Fields = k.Fields[:2]; return k },
	} {
		k := change()
		found := holes(t, &k)
		if !slices.ContainsFunc(found, func(h string) bool { return strings.HasPrefix(h, strings.TrimSpace(want)) }) {
			t.Errorf("a kind without a place (%s) is not found: %v", want, found)
		}
	}
}

// holes returns what an algorithm lacks.
func holes(t *testing.T, k *rules.Kind) (missing []string) {
	t.Helper()
	hole := func(place, format string, args ...any) {
		missing = append(missing, place+": "+fmt.Sprintf(format, args...))
	}
	missing = append(missing, fieldHoles(k)...)
	l, err := policy.ParseLimit(k.Name, example(k))
	if err != nil {
		hole("schema", "a limit with the required fields is none: %v", err)
		if l, err = policy.ParseLimit(k.Zero.Kind().Name, example(k.Zero.Kind())); err != nil {
			return append(missing, err.Error())
		}
	}
	has := func(place, reason string, problem error, implements bool) {
		switch {
		case reason == "" && (problem != nil || !implements):
			hole(place, "it has no place there, and no reason why: %v", problem)
		case reason != "" && problem == nil:
			hole(place, "it has a place there, and a reason why not: %s", reason)
		}
	}
	p := rules.ParamsOf(l)
	_, shared := p.(rules.Shared)
	_, leased := p.(rules.Leased)
	_, stored := p.(rules.Stored)
	has("keyed", k.NoRule, keyedHole(l), true)
	has("failover", k.NoShare, shareHole(l), shared)
	has("lease", k.NoLease, lease.Leasable(l), leased)
	_, divided := p.(rules.Divided)
	has("regions", k.NoRegions, regionsHole(l), divided)
	_, zoned := p.(rules.Zoned)
	has("zone", k.NoZone, zoneHole(l), zoned)
	has("store", k.NoStore, weirredis.Check(l), stored)
	has("model", k.NoModel, modelHole(l), true)
	if err := fileHole(k, l); err != nil {
		hole("schema", "%v", err)
	}
	if err := pageHole(k); err != nil {
		hole("documents", "%v", err)
	}
	return missing
}

// regionsHole returns why the limit cannot be divided between two regions.
func regionsHole(l weir.Limit) error {
	both := []regions.Region{{Name: "eu", Guaranteed: 50}, {Name: "us", Guaranteed: 50}}
	s, err := regions.New(weirtest.NewStore(nil), weirtest.NewStore(nil), regions.Options{Here: "eu", Regions: both, Term: time.Hour})
	if err != nil {
		return err
	}
	return errors.Join(s.Keeps(l), s.Close())
}

// zoneHole returns why a policy refuses the limit in a zone.
func zoneHole(l weir.Limit) error {
	p := policy.Policy{
		Limits: []policy.Limit{{Name: "a", Zone: "z", Limit: l}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"a"}}},
	}
	for _, problem := range p.Check() {
		if !problem.Warning && strings.Contains(problem.Message, "cannot share its state") {
			return errors.New(problem.Message)
		}
	}
	return nil
}

// example returns the required fields and the counts of an algorithm, with values that are always
// valid.
func example(k *rules.Kind) map[string]any {
	values := map[string]any{}
	for _, f := range k.Fields {
		if f.Required || f.Type == rules.CountField {
			values[f.Name] = map[rules.FieldType]any{rules.RateField: "10/s", rules.CountField: 10, rules.DurationField: "1s", rules.NumberField: 2.0}[f.Type]
		}
	}
	return values
}

// fieldHoles compares the fields with the struct that users write, in order and type.
func fieldHoles(k *rules.Kind) (missing []string) {
	types := map[rules.FieldType][]string{
		rules.RateField: {"weir.Rate"}, rules.CountField: {"int64", "int"}, rules.DurationField: {"time.Duration"}, rules.NumberField: {"float64"},
		rules.AlignField: {"weir.Align"},
	}
	for _, l := range weir.Algorithms() {
		of := reflect.TypeOf(l)
		if of.Name() != k.GoName {
			continue
		}
		if of.NumField() != len(k.Fields) {
			return []string{fmt.Sprintf("field: weir.%s has %d, the description %d", k.GoName, of.NumField(), len(k.Fields))}
		}
		for i, f := range k.Fields {
			if name := snake.Case(of.Field(i).Name); name != f.Name || !slices.Contains(types[f.Type], of.Field(i).Type.String()) {
				missing = append(missing, fmt.Sprintf("field: weir.%s has %s %v, the description %s", k.GoName, name, of.Field(i).Type, f.Name))
			}
			if f.Type != rules.RateField && f.Doc == "" {
				missing = append(missing, "field: "+f.Name+" is not documented")
			}
		}
		return missing
	}
	return []string{"field: there is no weir." + k.GoName}
}

// keyedHole returns why a table of keys cannot have the limit.
func keyedHole(l weir.Limit) error {
	k, err := keyed.New[string](l, keyed.Options{MaxKeys: 10})
	if err != nil {
		return err
	}
	defer k.Close()
	if d := k.Take("a", 1); d.Limit < 1 {
		return fmt.Errorf("it decides %+v", d)
	}
	return nil
}

// shareHole returns why failover cannot divide the limit: the shares of three nodes must be valid,
// and together at most the limit.
func shareHole(l weir.Limit) error {
	share := failover.Share(l, 3)
	if share == l {
		return fmt.Errorf("each node's share is the limit itself")
	}
	if _, err := weir.Prepare(share, time.Nanosecond); err != nil {
		return err
	}
	whole, _ := rules.ParamsOf(l).MostPerRequest()
	if part, _ := rules.ParamsOf(share).MostPerRequest(); part != math.MaxInt64 && 3*part > whole {
		return fmt.Errorf("three shares of %d are more than %d", part, whole)
	}
	return nil
}

// modelHole returns why the reference model lacks the limit, or that no test draws it.
func modelHole(l weir.Limit) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("%v", why)
		}
	}()
	weirtest.NewModel(l, time.Microsecond)
	random := rand.New(rand.NewPCG(1, 1))
	for _, draw := range weirtest.Limits() {
		if weir.Algorithm(draw(random)) == weir.Algorithm(l) {
			return nil
		}
	}
	return fmt.Errorf("weirtest.Limits draws none")
}

// fileHole returns which part of policy files lacks the algorithm.
func fileHole(k *rules.Kind, l weir.Limit) error {
	fields, err := json.Marshal(example(k))
	if err != nil {
		return err
	}
	text := fmt.Sprintf("limits:\n  x: { %s: %s }\nroutes:\n  - { match: /, limits: [x] }\n", k.Name, fields)
	f, err := policyfile.Parse("x.yaml", []byte(text))
	if err != nil {
		return err
	}
	if got := f.Policy.Limits[0].Limit; got != l {
		return fmt.Errorf("a file's limit is %+v, not %+v", got, l)
	}
	var schema struct {
		Defs struct {
			Limit struct {
				Properties map[string]struct {
					Description string
					Properties  map[string]struct{}
				}
			}
		} `json:"$defs"`
	}
	if err := json.Unmarshal(policyfile.Schema(), &schema); err != nil {
		return err
	}
	known := schema.Defs.Limit.Properties[k.Name]
	if known.Description == "" || len(known.Properties) != len(k.Fields) {
		return fmt.Errorf("the schema has %d fields of %d, described as %q", len(known.Properties), len(k.Fields), known.Description)
	}
	return nil
}

// pageHole returns what the documentation lacks: a section of docs/algorithms.md, or the name and
// fields in a policy file, there or in the table of docs/policy.md.
func pageHole(k *rules.Kind) error {
	page, err := os.ReadFile("../docs/algorithms.md")
	if err != nil {
		return err
	}
	_, part, ok := strings.Cut(string(page), "\n## "+k.Page+"\n")
	if !ok {
		return fmt.Errorf("docs/algorithms.md has no part %q", k.Page)
	}
	part, _, _ = strings.Cut(part, "\n## ")
	if page, err = os.ReadFile("../docs/policy.md"); err != nil {
		return err
	}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `"+k.Name+"` ") {
			part += line
		}
	}
	for _, name := range append([]string{k.Name}, policy.Fields(k.Name)...) {
		if !strings.Contains(part, "`"+name+"`") {
			return fmt.Errorf("neither docs/algorithms.md nor the table of docs/policy.md names `%s` of %s", name, k.Name)
		}
	}
	return nil
}
