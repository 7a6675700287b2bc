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

// TestEstimateWithoutThePrompt: an estimate without the prompt is warned of where the true cost has it,
// and the policy with the fix pasted has no warning.
func TestEstimateWithoutThePrompt(t *testing.T) {
	const page = "limits:\n  tokens:\n    key: client.ip\n    token_bucket: { rate: 9/s, burst: 9000 }\n    cost: { COST }\nroutes:\n  - match: /\n    limits: [tokens]\n"
	check := func(cost string) (said string) {
		f, err := Parse("p", []byte(strings.Replace(page, "COST", cost, 1)))
		if err != nil {
			t.Errorf("%s: %v", cost, err)
		}
		for _, p := range f.Problems {
			said += p.String() + "\n"
		}
		return said
	}
	const openai = `"body.max_completion_tokens|max_output_tokens|max_tokens"`
	for before, c := range map[string]struct{ rest, fixed string }{
		"before: body.max_tokens":                    {"default: 20, after: openai", "before: [prompt/4, body.max_tokens]"},
		`before: "body.a|b"`:                         {"after: anthropic", `before: [prompt/4, "body.a|b"]`},
		"before: [2000, header.x-most]":              {"after: gemini", "before: [prompt/4, 2000, header.x-most]"},
		"before: [{ body: max_tokens, weight: 60 }]": {"after: [{ openai: prompt, weight: 15 }, { openai: completion, weight: 60 }]", "before: [{ of: prompt/4, weight: 15 }, { of: body.max_tokens, weight: 60 }]"},
		"before: 0":     {"after: openai.total", "before: [prompt/4, " + openai + "]"},
		"default: 2000": {"after: openai", "before: [prompt/4, " + openai + "]"},
	} {
		said := check(before + ", " + c.rest)
		if !strings.Contains(said, "that leaves out the prompt") || !strings.Contains(said, ": "+c.fixed+"\n") {
			t.Errorf("%s, %s:\n%s", before, c.rest, said)
		}
		if strings.HasPrefix(before, "default") {
			c.fixed = before + ", " + c.fixed
		}
		if said := check(c.fixed + ", " + c.rest); said != "" {
			t.Errorf("after the fix %s:\n%s", c.fixed, said)
		}
	}
	for _, cost := range []string{"before: learned, after: openai", "before: [prompt/3, 10], after: openai", "before: body.most, after: openai.completion", "before: body.most, after: json.cost", "before: body.most"} {
		if said := check(cost); said != "" {
			t.Errorf("%s:\n%s", cost, said)
		}
	}
}
