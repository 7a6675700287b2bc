package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/policy"
)

// adaptive reads an adaptive limit: {} for the defaults, or an algorithm with its parameters.
func (d *decoder) adaptive(n *node, path ...string) (a policy.Adaptive) {
	if n == nil || n.shape != mapping {
		return a // another shape is already reported
	}
	a.On = true
	if q := n.get("queue"); q != nil && q.shape == mapping {
		a.Queue = d.adaptiveQueue(q, append(slices.Clone(path), "queue")...)
	}
	var written []string
	for _, f := range n.fields {
		if slices.Contains(policy.AdaptiveAlgorithms(), f.name) {
			written = append(written, f.name)
		}
	}
	switch {
	case len(written) == 0:
		return a
	case len(written) > 1:
		d.wrong(fmt.Sprintf("adaptive has %s", strings.Join(written, " and ")), "keep one of them", append(slices.Clone(path), written[1])...)
	}
	name, values := written[0], map[string]any{}
	for _, f := range fields(n.get(name)) {
		switch {
		case !slices.Contains(policy.AdaptiveFields(name), f.name): // it is already reported, as other shapes are
		case f.value.shape == scalar:
			values[f.name] = f.value.value
		case f.value.shape == mapping:
			inside := map[string]any{}
			for _, of := range fields(f.value) {
				if of.value.shape == scalar && slices.Contains(policy.ThresholdNames(), of.name) {
					inside[of.name] = of.value.value
				}
			}
			values[f.name] = inside
		}
	}
	algorithm, err := policy.ParseAdaptive(name, values)
	var wrong *policy.FieldError
	if errors.As(err, &wrong) {
		at := append(slices.Clone(path), name)
		for _, field := range strings.Split(wrong.Field, ".") {
			if n.find(append(slices.Clone(at[len(path):]), field)) == nil {
				break
			}
			at = append(at, field)
		}
		d.wrong(wrong.Err.Error(), cmp.Or(wrong.Fix, "change it, or take it out for its default"), at...)
		return a
	}
	a.Algorithm = algorithm
	return a
}

// adaptiveQueue reads how requests wait for a place.
func (d *decoder) adaptiveQueue(n *node, path ...string) (q adaptive.Queue) {
	q.Length = d.count(n.get("length"), 0, append(slices.Clone(path), "length")...)
	q.Wait = d.duration(n.get("wait"), "100ms", append(slices.Clone(path), "wait")...)
	if order := slices.Index(policy.QueueOrders(), text(n.get("order"))); order > 0 { // others are already reported
		q.Order = adaptive.Order(order)
	}
	return q
}

// priorities reads how important requests are.
func priorities(n *node) policy.Priorities {
	p := policy.Priorities{Header: text(n.get("header")), PerCustomer: truth(n.get("per_customer"))}
	for _, f := range fields(n.get("plans")) {
		p.Plans = append(p.Plans, policy.PlanPriority{Plan: f.name, Priority: text(f.value)})
	}
	return p
}

// adaptiveExample returns a line with a valid value of a map in an adaptive limit.
func adaptiveExample(name string) string {
	switch name {
	case "queue":
		return "queue: { length: 20, wait: 100ms }"
	case "thresholds":
		return "thresholds: { cpu: 0.8, memory: off }"
	}
	return name + ": {}"
}

// besideAdaptive returns the finding about a parameter that stands beside the algorithm of an adaptive limit,
// or where none is named.
func (s *schema) besideAdaptive(path []string, name string) (finding, bool) {
	of, at := s.root.find(path), append(slices.Clone(path), name)
	if len(path) > 0 && (path[len(path)-1] == "adaptive" || path[len(path)-1] == "bbr") && slices.Contains(path, "adaptive") && slices.Contains(policy.ThresholdNames(), name) {
		return finding{at, true, name + " is a threshold of bbr, and stands beside them", fmt.Sprintf("adaptive: { bbr: { thresholds: { %s: %s } } }", name, text(of.get(name)))}, true
	}
	if len(path) == 0 || path[len(path)-1] != "adaptive" {
		return finding{}, false
	}
	for _, algorithm := range policy.AdaptiveAlgorithms() { // knee comes first
		if value := of.get(name); slices.Contains(policy.AdaptiveFields(algorithm), name) && value.shape == scalar && (len(of.fields) == 1 || of.get(algorithm) != nil) {
			return finding{at, true, name + " is a parameter of an algorithm, and stands beside it", fmt.Sprintf("adaptive: { %s: { %s: %s } }", algorithm, name, text(value))}, true
		}
	}
	return finding{}, false
}
