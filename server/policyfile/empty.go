package policyfile

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirflow/weir/policy"
)

// empties finds keys without a value, which the schema does not get to see. They are errors: key:
// with nothing behind it would otherwise make one counter for all clients, and limits: would remove
// all of a route.
func (s *schema) empties(n *node, path []string, all *[]finding) {
	known := s.properties(path)
	for _, f := range n.empty {
		at := append(slices.Clone(path), f.name)
		switch {
		case len(known) > 0 && !slices.Contains(known, f.name):
			*all = append(*all, s.unknown(path, f.name, known))
		case s.besideEmpty(n, path, f.name):
			// misplaced reports the parameters that belong below it
		default:
			*all = append(*all, s.emptyKey(at))
			if s.holdsNames(path) { // others may refer to the name
				n.fields = append(n.fields, field{name: f.name, line: f.line, col: f.col, value: &node{line: f.line, col: f.col, shape: mapping}})
			}
		}
	}
	for _, f := range n.fields {
		s.empties(f.value, append(slices.Clone(path), f.name), all)
	}
	for i, item := range n.items {
		s.empties(item, append(slices.Clone(path), strconv.Itoa(i)), all)
	}
	if len(path) == 3 && path[0] == "limits" && path[2] == "key" && n.shape == list && len(n.items) == 0 {
		*all = append(*all, finding{path, true, "key has no parts: write them, or remove the line to share one counter among all clients", "key: client.ip"})
	}
}

// besideEmpty reports whether an algorithm without a value has its parameters beside it.
func (s *schema) besideEmpty(n *node, path []string, name string) bool {
	return len(path) == 2 && path[0] == "limits" && slices.Contains(policy.Algorithms(), name) &&
		slices.ContainsFunc(n.fields, func(f field) bool { return f.value.shape == scalar && slices.Contains(policy.Fields(name), f.name) })
}

// emptyKey returns the finding about a key without a value.
func (s *schema) emptyKey(at []string) finding {
	name := at[len(at)-1]
	message, fix := name+" is empty: write its value, or remove the line", s.line(at)
	switch {
	case len(at) == 3 && at[0] == "limits" && name == "key":
		message, fix = "key is empty: write its parts, or remove the line to share one counter among all clients", "key: client.ip"
	case s.holdsNames(at[:len(at)-1]):
		message = fmt.Sprintf("%s is empty: write its settings below it, indented further, or remove the line", name)
	}
	return finding{at, true, message, fix}
}

// holdsNames reports whether the keys at a path are names that the policy chooses.
func (s *schema) holdsNames(path []string) bool {
	_, named := s.find(path)["additionalProperties"].(map[string]any)
	return named
}

var (
	likeExample = regexp.MustCompile(`\blike ([^\s,;:]+?)[.,;:]?(?:\s|$)`)
	defaultedTo = regexp.MustCompile(`\bdefault: ([0-9a-zA-Z%:]+)\.?$`)
)

// line returns a line with a key and a value that it may have.
func (s *schema) line(at []string) string {
	name := at[len(at)-1]
	switch value := s.example(at); {
	case value == "" || value == strings.ToUpper(name):
		return fmt.Sprintf("write a value after %s:, or remove the line", name)
	default:
		return name + ": " + value
	}
}

// example returns a value for a path: of its description where that has one, else of its type.
func (s *schema) example(at []string) string {
	name, section := at[len(at)-1], at[0]
	examples := map[string]string{ // of whole sections, and of one entry of them
		"limits":    "{ key: client.ip, token_bucket: { rate: 10/s, burst: 20 } }",
		"upstreams": "{ url: http://127.0.0.1:9000 }",
		"stores":    "{ url: redis://127.0.0.1:6379 }",
	}
	names := map[string]string{"limits": "per-client", "upstreams": "app", "stores": "main"}
	switch {
	case len(at) == 1 && names[section] != "":
		return fmt.Sprintf("{ %s: %s }", names[section], examples[section])
	case len(at) == 2 && names[section] != "":
		return examples[section]
	case section == "stores" && name == "url":
		return "redis://127.0.0.1:6379"
	case name == "gateway":
		return "127.0.0.1:8080"
	case slices.Equal(at, []string{"listen", "admin"}):
		return "127.0.0.1:9090"
	case slices.Equal(at, []string{"routes"}):
		return "[{ match: /, respond: { status: 200 } }]"
	case section == "routes" && name == "limits":
		if limits := fields(s.root.get("limits")); len(limits) > 0 {
			return "[" + limits[0].name + "]"
		}
	case section == "routes" && name == "upstream":
		if upstreams := fields(s.root.get("upstreams")); len(upstreams) > 0 {
			return upstreams[0].name
		}
	case name == "exempt" || name == "trusted_proxies" || name == "proxy_protocol":
		return "[10.0.0.0/8]"
	}
	if required, _ := s.find(at)["required"].([]any); len(required) > 0 {
		var parts []string
		for _, r := range required {
			parts = append(parts, fmt.Sprintf("%s: %s", r, s.example(append(slices.Clone(at), fmt.Sprint(r)))))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	}
	if e := exampleOf(name); e != strings.ToUpper(name) {
		return e
	}
	schema := s.find(at)
	about, _ := schema["description"].(string)
	if found := likeExample.FindStringSubmatch(about); found != nil && schema["type"] == "string" {
		return found[1]
	}
	if found := defaultedTo.FindStringSubmatch(about); found != nil && found[1] != "none" && schema["type"] != "object" && schema["type"] != "array" {
		return found[1]
	}
	if words, _ := schema["enum"].([]any); len(words) > 0 {
		return fmt.Sprint(words[0])
	}
	return ""
}

// indent moves keys below the empty key that they were meant to stand below, as with a missing
// indentation: per-client: in the column of limits:, or url: in the column of app:. The finding is
// about the first of them, and the rest of the file is checked as if they were indented.
func (s *schema) indent(n *node, path []string, all *[]finding) {
	for i := 0; i < len(n.empty); i++ {
		above := n.empty[i]
		at := append(slices.Clone(path), above.name)
		moved := s.below(n, path, above)
		if len(moved) == 0 {
			continue
		}
		var names []string
		out := &node{line: above.line, col: above.col, shape: mapping}
		for _, f := range moved {
			names = append(names, f.name)
			if f.value == nil {
				out.empty = append(out.empty, f)
			} else {
				out.fields = append(out.fields, f)
			}
		}
		gone := func(f field) bool { return slices.Contains(names, f.name) }
		n.fields, n.empty = slices.DeleteFunc(n.fields, gone), slices.DeleteFunc(n.empty, gone)
		n.empty = slices.DeleteFunc(n.empty, func(f field) bool { return f.name == above.name })
		n.fields = append(n.fields, field{name: above.name, line: above.line, col: above.col, value: out})
		i = -1 // the list has changed
		verb := "belongs"
		if len(names) > 1 {
			verb = "belong"
		}
		*all = append(*all, finding{append(slices.Clone(at), names[0]), true,
			fmt.Sprintf("%s %s to %s: indent further than %s", strings.Join(names, ", "), verb, above.name, above.name), indented(above.name, moved)})
	}
	for _, f := range n.fields {
		s.indent(f.value, append(slices.Clone(path), f.name), all)
	}
	for i, item := range n.items {
		s.indent(item, append(slices.Clone(path), strconv.Itoa(i)), all)
	}
}

// below returns the keys that directly follow an empty key in its column, are unknown there, and are
// known below it.
func (s *schema) below(n *node, path []string, above field) (moved []field) {
	if len(path) == 2 && path[0] == "limits" {
		return nil // parameters beside their algorithm: see misplaced
	}
	at := append(slices.Clone(path), above.name)
	here, there, names, inner := s.properties(path), s.properties(at), s.holdsNames(path), s.holdsNames(at)
	if names && len(there) == 0 || !names && !slices.Contains(here, above.name) {
		return nil
	}
	after := slices.DeleteFunc(append(slices.Clone(n.fields), n.empty...), func(f field) bool { return f.line <= above.line })
	slices.SortFunc(after, func(a, b field) int { return cmp.Compare(a.line, b.line) })
	for _, f := range after {
		fits := slices.Contains(there, f.name) || inner && (f.value == nil || f.value.shape == mapping)
		// admin is a key of its own beside listen, too: as a map
		clash := slices.Contains(here, f.name) && (f.value == nil || f.value.shape != scalar || s.find(append(slices.Clone(path), f.name))["type"] != "object")
		if f.col != above.col || !fits || clash {
			break
		}
		moved = append(moved, f)
	}
	return moved
}

// indented returns what to write for a key and those that belong below it.
func indented(name string, below []field) string {
	var parts, names []string
	for _, f := range below {
		names = append(names, f.name)
		if f.value != nil && f.value.shape == scalar {
			parts = append(parts, f.name+": "+text(f.value))
		}
	}
	if len(parts) < len(below) {
		return "put two spaces in front of all lines of " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s: { %s }", name, strings.Join(parts, ", "))
}
