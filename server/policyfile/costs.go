package policyfile

import (
	"slices"
	"strconv"

	"github.com/weirflow/weir/policy"
)

// costs reads a cost that is a map, for costs that are known only afterwards.
func (d *decoder) costs(n *node, path ...string) (c policy.Costs) {
	if n == nil || n.shape != mapping {
		return c
	}
	at := func(field string) []string { return append(slices.Clone(path), field) }
	c.Before = d.costTerms(n.get("before"), at("before")...)
	c.After = d.costTerms(n.get("after"), at("after")...)
	c.IfUnknown = text(n.get("if_unknown"))
	c.CountFailed, c.BlockInDebt = truth(n.get("count_failed")), truth(n.get("block_in_debt"))
	c.Default = number(n.get("default"))
	if m := n.get("default"); m != nil && m.shape == scalar && c.Default < 1 {
		d.wrong(text(m)+" is not a default: each request costs something", "default: 2000", at("default")...)
	}
	if !c.IsSet() {
		d.wrong("the cost has no settings", "cost: { before: [prompt/4, body.max_tokens], default: 2000, after: openai }", path...)
	}
	return c
}

// costTerms reads one term of a cost, or a list of them.
func (d *decoder) costTerms(n *node, path ...string) (all []policy.CostTerm) {
	if n == nil {
		return nil
	}
	if n.shape != list {
		if t, ok := d.costTerm(n, path...); ok {
			all = append(all, t)
		}
		return all
	}
	for i, item := range n.items {
		if t, ok := d.costTerm(item, append(slices.Clone(path), strconv.Itoa(i))...); ok {
			all = append(all, t)
		}
	}
	return all
}

// costTerm reads a term: a text like openai, or a map like { json: usage.total_tokens, weight: 3 }.
func (d *decoder) costTerm(n *node, path ...string) (t policy.CostTerm, ok bool) {
	if n.shape == scalar {
		return policy.CostTerm{Of: text(n)}, true
	}
	var of []string
	for _, f := range n.fields {
		switch f.name {
		case "weight":
			if t.Weight = number(f.value); t.Weight < 1 && f.value.shape == scalar {
				d.wrong(text(f.value)+" is not a weight", "weight: 3", append(slices.Clone(path), "weight")...)
			}
		case "of":
			of = append(of, text(f.value))
		default:
			of = append(of, f.name+"."+text(f.value))
		}
	}
	if len(of) != 1 {
		d.wrong("a term of a cost has one place where its number is", "{ json: usage.total_tokens, weight: 3 }", path...)
		return t, false
	}
	t.Of = of[0]
	return t, true
}
