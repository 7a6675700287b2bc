package policyfile

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/regions"
	"github.com/weirflow/weir/server/stores"
)

// divided is a policy with regions, in which a test changes something.
const divided = `stores:
  here:
    url: redis://h
    lease: true
    regions:
      here: eu
      home: global
      guaranteed: { us: 20, eu: 10 }
      term: 40s
      margin: 50ms
  global: { url: redis://g }
limits:
  l:
    token_bucket: { rate: 10/s, burst: 100 }
    store: here
routes: [{ match: /, limits: [l] }]
`

// TestRegions: what a policy file says of regions, and what package regions is given.
func TestRegions(t *testing.T) {
	f, err := Parse("x.yaml", []byte(divided))
	if err != nil {
		t.Fatal(err)
	}
	s := f.Policy.Stores[0]
	want := policy.Regions{Here: "eu", Home: "global", Guaranteed: []policy.Region{{Name: "eu", Percent: 10}, {Name: "us", Percent: 20}}, Term: 40 * time.Second, Margin: 50 * time.Millisecond}
	if !reflect.DeepEqual(s.Regions, &want) {
		t.Errorf("%+v, want %+v", s.Regions, want)
	}
	if o := stores.Regions(s); o.Timeout != time.Second || len(o.Regions) != 2 || o.Regions[1] != (regions.Region{Name: "us", Guaranteed: 20}) {
		t.Errorf("%+v", o)
	}
}

// TestRegionsProblems: what is wrong with regions is told with its line and a fix. What is no error is none of
// package regions, too.
func TestRegionsProblems(t *testing.T) {
	for _, c := range []struct {
		from, to string
		line     int // 0: nothing is wrong
		want     string
	}{
		{"", "", 0, ""},
		{"here: eu", "here: ue", 6, `"ue" is not one of the regions under guaranteed; did you mean "eu"?`},
		{"home: global", "home: globl", 7, `there is no store "globl"; did you mean "global"?`},
		{"home: global", "home: here", 7, "has regions itself"},
		{"      home: global\n", "", 5, "none is named; add one under stores, and home: NAME; or guarantee 100 percent"},
		{"home: global\n      guaranteed: { us: 20", "guaranteed: { us: 90", 0, ""},
		{"us: 20, ", "", 8, "guaranteed has 1"},
		{"us: 20", "us: 91", 8, "more than 100 percent"},
		{"us: 20", "us: 9999999999999999999999", 8, "us"},
		{"us: 20", "us: 0", 8, "at least 1 percent of each limit; us: 1"},
		{"us: 20", "U.S: 20", 8, `"U.S" is not the name of a region`},
		{"term: 40s", "term: 2h", 9, "from 1s to 1h"},
		{"term: 40s", "term: 1s", 4, "leased for 250ms are used for too long after a part has moved; choose a lifetime of at most a sixteenth of the term, 62.5ms"},
		{"lease: true", "deadline: 6s", 4, "at most an eighth of the term, 5s"},
		{"margin: 50ms", "margin: 700ms", 10, "choose a longer term"},
		{"burst: 100", "burst: 101", 15, `a term of 40s, in which parts of this limit cannot follow demand: what was used counts for too long; write term: 41s in that store; or write store: global, which all regions share, and lease: true in that store`},
		{"burst: 100", "burst: 1", 15, "the limit is too small for the 2 regions"},
		{"token_bucket: { rate: 10/s, burst: 100 }", "fixed_window: { limit: 100, align: day }", 15, "lease: true in that store; or guarantee 100 percent together"},
		{"us: 20, eu: 10 }\n      term: 40s\n      margin: 50ms\n  global: { url: redis://g }\nlimits:\n  l:\n    token_bucket: { rate: 10/s, burst: 100 }", "us: 40, eu: 60 }\n  global: { url: redis://g }\nlimits:\n  l:\n    fixed_window: { limit: 100, align: month }", 0, ""},
		{"    lease: true\n", "", 0, ""},
		{"    token_bucket: { rate: 10/s, burst: 100 }", "    cost: 51\n    token_bucket: { rate: 10/s, burst: 100 }", 14, "a cost of 51 never fits the part of a region, which has a burst of at most 50"},
		{"routes: ", "waiting_rooms: { r: { active: 5, store: here } }\nroutes: ", 16, "a waiting room is not divided between regions"},
	} {
		text := strings.Replace(divided, c.from, c.to, 1)
		f, err := Parse("x.yaml", []byte(text))
		if c.line == 0 {
			if err != nil {
				t.Errorf("%s: %v", c.to, err)
			} else if _, err := stores.Regions(f.Policy.Stores[0]).Guaranteed(f.Policy.Limits[0].Limit); err != nil {
				t.Errorf("%s: no problem in the file, but %v", c.to, err)
			}
			continue
		}
		told := ""
		for _, p := range f.Problems {
			told += fmt.Sprintf("%d: %s; %s\n", p.Line, p.Message, p.Fix)
		}
		if !slices.ContainsFunc(f.Problems, func(p Problem) bool {
			return p.Line == c.line && strings.Contains(p.Message+"; "+p.Fix, c.want)
		}) || err == nil {
			t.Errorf("%s: %swant line %d: %s", c.to, told, c.line, c.want)
		}
	}
}

// TestRegionalKinds: a policy may have a limit in a store with regions exactly where its algorithm can be divided.
func TestRegionalKinds(t *testing.T) {
	for _, kind := range rules.Kinds() {
		if kind.NoStore != "" {
			continue
		}
		text := strings.Replace(divided, "token_bucket: { rate: 10/s, burst: 100 }", fmt.Sprintf("%s: { %s }", kind.Name, strings.ReplaceAll(strings.ReplaceAll(requiredFields(kind), "1/s", "20/s"), "5", "50")), 1)
		f, err := Parse("x.yaml", []byte(strings.Replace(text, "    lease: true\n", "", 1)))
		said := slices.ContainsFunc(f.Problems, func(p Problem) bool {
			return strings.Contains(p.Message, kind.Name+" cannot be divided between regions") && p.Fix != ""
		})
		if can := kind.NoRegions == ""; can != (err == nil) || can == said {
			t.Errorf("%s can be divided: %v; the file: %v", kind.Name, can, err)
		}
	}
}

// TestDefaultDeadline: a store that needs more time than others has it, unless the policy says otherwise.
func TestDefaultDeadline(t *testing.T) {
	f, err := Parse("x.yaml", []byte(`stores:
  nodes: { url: "cluster://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?folder=/f" }
  soon: { url: "cluster://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?folder=/f", deadline: 5ms }
  redis: { url: "redis://h" }
limits: { l: { token_bucket: { rate: 1/s, burst: 1 }, store: nodes } }
routes: [{ match: /, limits: [l] }]
`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []time.Duration{100 * time.Millisecond, 5 * time.Millisecond, 0} {
		if s := f.Policy.Stores[i]; s.Deadline != want {
			t.Errorf("%s: %v, want %v", s.Name, s.Deadline, want)
		}
	}
}
