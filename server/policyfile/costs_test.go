package policyfile

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/weirflow/weir/policy"
)

// withCost is a policy whose limit has a cost.
func withCost(cost string) string {
	return "limits:\n  tokens:\n    key: client.ip\n    token_bucket: { rate: 100/m, burst: 1000 }\n    cost: " + cost + "\nroutes:\n  - { match: /, limits: [tokens] }\n"
}

// TestCosts: each way to write a cost that is known only afterwards.
func TestCosts(t *testing.T) {
	for cost, want := range map[string]policy.Costs{
		`{ before: body.max_tokens, default: 200, after: openai, if_unknown: seen, count_failed: true, block_in_debt: true }`: {
			Before: []policy.CostTerm{{Of: "body.max_tokens"}}, Default: 200, After: []policy.CostTerm{{Of: "openai"}},
			IfUnknown: "seen", CountFailed: true, BlockInDebt: true,
		},
		`{ before: [prompt/4, { body: max_tokens, weight: 4 }, 10], after: [{ json: usage.a, weight: 3 }, { header: x-cost }, bytes, { of: duration, weight: 2 }] }`: {
			Before: []policy.CostTerm{{Of: "prompt/4"}, {Of: "body.max_tokens", Weight: 4}, {Of: "10"}},
			After:  []policy.CostTerm{{Of: "json.usage.a", Weight: 3}, {Of: "header.x-cost"}, {Of: "bytes"}, {Of: "duration", Weight: 2}},
		},
		`{ before: 200, after: { openai: completion } }`: {Before: []policy.CostTerm{{Of: "200"}}, After: []policy.CostTerm{{Of: "openai.completion"}}},
		`{ before: learned, default: 5, after: trailer.x-cost }`: {
			Before: []policy.CostTerm{{Of: "learned"}}, Default: 5, After: []policy.CostTerm{{Of: "trailer.x-cost"}},
		},
	} {
		f, err := Parse("policy.yaml", []byte(withCost(cost)))
		if err != nil {
			t.Errorf("%s: %v", cost, err)
			continue
		}
		if got := f.Policy.Limits[0].Costs; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", cost, got, want)
		}
	}
}

// TestWrongCosts: what is wrong, and what to write instead.
func TestWrongCosts(t *testing.T) {
	for cost, want := range map[string]string{
		`{ after: opnai }`:                                   "did you mean openai?",
		`{ default: 5, after: openai.promt }`:                "fix: after: openai.prompt",
		`{ default: 5, after: [upstream_time, 7] }`:          "must be a text or a map",
		`{ before: learnt, after: bytes }`:                   "fix: before: learned",
		`{ before: { of: prompt/x, weight: 3 } }`:            "fix: before: { of: prompt/4, weight: 3 }",
		`{ before: [5, body.] }`:                             "fix: body.max_tokens",
		`{ before: 2000, after: bytes }`:                     "a cost of 2000 never fits a burst of 1000",
		`{ before: [{ of: 200, weight: 5 }, 1, prompt/4] }`:  "a cost of 1001 never fits a burst of 1000",
		`{ before: 0, block_in_debt: true }`:                 "nothing is counted",
		`{ before: [0, 0] }`:                                 "nothing is counted",
		`body.max_tokens`:                                    "fix: cost: { before: body.max_tokens, default: 1000, after: openai }",
		`anthropic`:                                          "fix: cost: { default: 1000, after: anthropic }",
		`{ after: [openai, openai.promt] }`:                  "is not a part of openai: write total, prompt",
		`{ before: body. }`:                                  "is not a path",
		`{ before: prompt/x }`:                               "write prompt/4",
		`{ before: learnt }`:                                 "did you mean learned?",
		`{ before: -5 }`:                                     "is not an estimate",
		`{ before: 5, after: [{ weight: 3 }] }`:              "has one place",
		`{ before: 5, after: [{ header: a, json: b }] }`:     "has one place",
		`{ before: 5, after: [{ header: a, weight: 0 }] }`:   "0 is not a weight",
		`{ before: 5, after: [{ heder: a }] }`:               "did you mean header?",
		`{ default: 2000, after: openai }`:                   "a cost of 2000 never fits a burst of 1000",
		`{ default: 0, after: openai }`:                      "0 is not a default",
		`{ default: 5, after: openai, if_unknown: nothing }`: "nothing",
		`{}`:                             "the cost has no settings",
		`{ default: 5, affter: openai }`: "did you mean after?",
	} {
		_, err := Parse("policy.yaml", []byte(withCost(cost)))
		var invalid *InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", cost, err, want)
		}
	}
	for place, want := range map[string]string{
		"zone: all":                    "share a state",
		"store: shared, shadow: true":  "a shadow limit in a store",
		"store: shared, roll_out: 10%": "a shadow limit in a store",
	} {
		text := strings.Replace(withCost("{ default: 5, after: openai }"), "    key: client.ip\n", "    key: client.ip\n    "+strings.ReplaceAll(place, ", ", "\n    ")+"\n", 1)
		text = "stores: { shared: { url: \"redis://127.0.0.1:1\" } }\n" + text
		if _, err := Parse("policy.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", place, err, want)
		}
	}
}

// TestCostFixes: the fixes for wrong costs are valid when they are pasted.
func TestCostFixes(t *testing.T) {
	for _, cost := range []string{
		`body.max_tokens`, `anthropic`, `header.`, `{ after: opnai, default: 5 }`, `{ after: gemini.thinking, default: 5 }`, `{ after: jsn.usage, default: 5 }`,
		`{ before: learnt }`, `{ before: prompt/x }`, `{ before: nothing }`, `{ before: { of: prompt/x, weight: 3 } }`,
	} {
		_, err := Parse("policy.yaml", []byte(withCost(cost)))
		var invalid *InvalidError
		if !errors.As(err, &invalid) || len(invalid.Problems) != 1 {
			t.Errorf("%s: %v", cost, err)
			continue
		}
		fix := invalid.Problems[0].Fix
		if strings.HasPrefix(fix, "write ") {
			continue // no line to paste
		}
		fixed, whole := strings.CutPrefix(fix, "cost: ")
		if !whole {
			fixed = "{ " + fix + " }"
			if strings.HasPrefix(fix, "after") {
				fixed = "{ default: 5, " + fix + " }"
			}
		}
		if _, err := Parse("policy.yaml", []byte(withCost(fixed))); err != nil {
			t.Errorf("%s: the fix %q: %v", cost, fix, err)
		}
	}
}
