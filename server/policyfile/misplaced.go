package policyfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirflow/weir/policy"
)

// misplaced finds parameters of an algorithm that stand beside it instead of below it, as with a
// wrong indentation, or where no algorithm is named. It returns the findings, and the names that they
// are about.
func (s *schema) misplaced(path, names []string) (all []finding, placed []string) {
	at := s.root.find(path)
	if len(path) != 2 || path[0] != "limits" || at == nil {
		return nil, nil
	}
	for _, algorithm := range policy.Algorithms() {
		empty := slices.ContainsFunc(at.empty, func(f field) bool { return f.name == algorithm })
		if !empty && at.get(algorithm) == nil {
			continue
		}
		var belong, parts []string
		for _, f := range fields(at.get(algorithm)) {
			if f.value.shape == scalar {
				parts = append(parts, f.name+": "+text(f.value))
			}
		}
		for _, f := range at.fields { // in the order of the file
			switch {
			case !slices.Contains(names, f.name) || !slices.Contains(policy.Fields(algorithm), f.name) || f.value.shape != scalar:
			case at.get(algorithm).get(f.name) != nil:
				placed = append(placed, f.name)
				all = append(all, finding{append(slices.Clone(path), f.name), true, fmt.Sprintf("%s is a parameter of %s, which has one already", f.name, algorithm), "remove the line"})
			default:
				belong, parts = append(belong, f.name), append(parts, f.name+": "+text(f.value))
			}
		}
		if len(belong) > 0 {
			all = append(all, finding{append(slices.Clone(path), belong[0]), true,
				fmt.Sprintf("%[2]s: these belong to %[1]s: indent them further than it", algorithm, strings.Join(belong, ", ")),
				fmt.Sprintf("%s: { %s }", algorithm, strings.Join(parts, ", "))})
		}
		return all, append(placed, belong...)
	}
	return s.unnamed(path, names, at)
}

// unnamed finds parameters in a limit that names no algorithm. The fix names an algorithm that has all
// of them.
func (s *schema) unnamed(path, names []string, limit *node) (all []finding, placed []string) {
	if s.misspelt(limit) {
		return nil, nil
	}
	for _, algorithm := range append([]string{usual}, policy.Algorithms()...) {
		placed = nil
		var parts []string
		for _, f := range limit.fields {
			if slices.Contains(names, f.name) && slices.Contains(policy.Fields(algorithm), f.name) && f.value.shape == scalar {
				placed, parts = append(placed, f.name), append(parts, f.name+": "+text(f.value))
			}
		}
		if len(placed) == 0 || len(placed) < len(names) {
			continue
		}
		required, _ := s.find(append(slices.Clone(path), algorithm))["required"].([]any)
		for _, r := range required {
			if name := fmt.Sprint(r); !slices.Contains(placed, name) {
				parts = append(parts, name+": "+exampleOf(name))
			}
		}
		return []finding{{append(slices.Clone(path), placed[0]), true,
			strings.Join(placed, ", ") + ": these are parameters of an algorithm, and the limit names none",
			fmt.Sprintf("%s: { %s }", algorithm, strings.Join(parts, ", "))}}, placed
	}
	return nil, nil
}

// usual is the algorithm that is suggested where the parameters fit several.
const usual = "token_bucket"

// lacksAlgorithm reports whether a limit has parameters and names no algorithm, which unnamed reports.
func (s *schema) lacksAlgorithm(limit field) bool {
	known := s.properties([]string{"limits", ""})
	var unknown []string
	for _, f := range limit.value.fields {
		switch {
		case slices.Contains(policy.Algorithms(), f.name):
			return false
		case !slices.Contains(known, f.name):
			unknown = append(unknown, f.name)
		}
	}
	_, placed := s.unnamed([]string{"limits", limit.name}, unknown, limit.value)
	return len(placed) > 0
}
