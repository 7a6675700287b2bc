package policyfile

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/weirflow/weir/internal/nearest"
)

//go:embed policy.schema.json
var schemaText string

// Schema returns the JSON Schema (2020-12) of a policy file, for editors.
func Schema() []byte { return withKinds(schemaText) }

// schema validates trees. Each file gets a schema of its own: files are read seldom, and so nothing
// is shared.
type schema struct {
	compiled *jsonschema.Schema
	raw      map[string]any
	root     *node // the tree that is being checked
}

func newSchema() (*schema, error) {
	text := Schema()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("policy.json", doc); err != nil {
		return nil, err
	}
	s := &schema{}
	if s.compiled, err = c.Compile("policy.json"); err != nil {
		return nil, err
	}
	return s, json.Unmarshal(text, &s.raw)
}

// finding is a problem at a path.
type finding struct {
	path     []string
	onKey    bool // it is about the key at the path, not about its value
	msg, fix string
}

// check returns the schema's findings about a tree.
func (s *schema) check(root *node) (all []finding) {
	s.root = root
	err := s.compiled.Validate(root.any())
	var wrong *jsonschema.ValidationError
	switch {
	case errors.As(err, &wrong):
		s.collect(wrong, &all)
	case err != nil:
		all = append(all, finding{msg: err.Error()})
	}
	s.empties(root, nil, &all)
	return all
}

// empties finds unknown keys without a value, which the schema does not get to see.
func (s *schema) empties(n *node, path []string, all *[]finding) {
	if known := s.properties(path); len(known) > 0 {
		for _, f := range n.empty {
			if !slices.Contains(known, f.name) {
				*all = append(*all, s.unknown(path, f.name, known))
			}
		}
	}
	for _, f := range n.fields {
		s.empties(f.value, append(slices.Clone(path), f.name), all)
	}
	for i, item := range n.items {
		s.empties(item, append(slices.Clone(path), strconv.Itoa(i)), all)
	}
}

// unknown returns the finding about an unknown key.
func (s *schema) unknown(path []string, name string, known []string) finding {
	if meant := meantKey(name, known); meant != "" {
		return finding{append(slices.Clone(path), name), true, fmt.Sprintf("there is no key %q here", name), "write " + meant}
	}
	return finding{append(slices.Clone(path), name), true, fmt.Sprintf("there is no key %q here", name), suggest(name, known)}
}

// meantKey returns the key that was probably meant by another product's name for it, or "" if
// unknown.
func meantKey(name string, known []string) string {
	for _, words := range [][]string{
		{"match", "path", "location", "url", "uri", "route", "prefix"}, // of a route
		{"upstream", "proxy_pass", "backend", "service", "to"},
		{"key", "by", "per", "zone_key", "descriptor"}, // of a limit
		{"burst", "capacity", "size", "max_burst"},
		{"shadow", "dry_run", "limit_req_dry_run"},
		{"targets", "servers", "backends", "endpoints"}, // of an upstream
	} {
		if slices.Contains(words[1:], strings.ToLower(name)) && slices.Contains(known, words[0]) {
			return words[0]
		}
	}
	return ""
}

// collect finds the leaves of a validation error, which are the actual problems.
func (s *schema) collect(e *jsonschema.ValidationError, all *[]finding) {
	at := e.InstanceLocation
	switch k := e.ErrorKind.(type) {
	case *kind.OneOf:
		return // the decoder reports which algorithm a limit has
	case *kind.AdditionalProperties:
		known := s.properties(at)
		for _, name := range k.Properties {
			*all = append(*all, s.unknown(at, name, known))
		}
	case *kind.Required:
		*all = append(*all, s.missing(at, k.Missing))
	case *kind.Type:
		*all = append(*all, s.wrongType(at, k))
	case *kind.Enum:
		var words []string
		for _, w := range k.Want {
			words = append(words, fmt.Sprint(w))
		}
		*all = append(*all, finding{at, false, fmt.Sprintf("%v is not known here", quoted(k.Got)), suggest(fmt.Sprint(k.Got), words)})
	case *kind.Pattern:
		*all = append(*all, finding{at, false, fmt.Sprintf("%q is not an address", k.Got), "write HOST:PORT, like 127.0.0.1:8080"})
	default:
		if len(e.Causes) == 0 {
			*all = append(*all, finding{at, false, fmt.Sprint(e.Error()), ""})
		}
	}
	for _, c := range e.Causes {
		s.collect(c, all)
	}
}

// wrongType returns the finding about a value of a wrong type.
func (s *schema) wrongType(at []string, k *kind.Type) finding {
	if s.find(at)["$ref"] == "#/$defs/rate" {
		if meant := nearest.Rate(text(s.root.find(at))); meant != "" {
			count, _, _ := strings.Cut(meant, "/")
			return finding{at, false, "a rate is a count and a duration: the duration is missing", fmt.Sprintf("write %s for %s per second, %s/m for %s per minute", meant, count, count, count)}
		}
	}
	return finding{at, false, fmt.Sprintf("this is %s, and must be %s", article(k.Got), alternatives(k.Want)), s.describe(at)}
}

// missing returns the finding about required keys that are missing.
func (s *schema) missing(path, names []string) finding {
	about := func(name string) string { return s.describe(append(slices.Clone(path), name)) }
	if len(names) == 1 {
		return finding{path, true, names[0] + " is missing", "add it: " + about(names[0])}
	}
	var fixes []string
	for _, name := range names {
		fixes = append(fixes, name+": "+about(name))
	}
	last := len(names) - 1
	return finding{path, true, strings.Join(names[:last], ", ") + " and " + names[last] + " are missing", "add them: " + strings.Join(fixes, "; ")}
}

func quoted(v any) string {
	if text, ok := v.(string); ok {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprint(v)
}

// article returns the name of a JSON type with its article, for messages.
func article(t string) string {
	switch t {
	case "object":
		return "a map"
	case "array":
		return "a list"
	case "string":
		return "a text"
	case "integer":
		return "a whole number"
	case "number":
		return "a number"
	case "boolean":
		return "true or false"
	}
	return t
}

func alternatives(types []string) string {
	var words []string
	for _, t := range types {
		words = append(words, article(t))
	}
	return strings.Join(words, " or ")
}

func suggest(name string, known []string) string {
	if near := nearest.To(name, known); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	if len(known) == 0 {
		return ""
	}
	return "known: " + strings.Join(known, ", ")
}

// find follows a path of a policy into the schema.
func (s *schema) find(path []string) map[string]any {
	at := s.resolve(s.raw)
	for _, name := range path {
		properties, _ := at["properties"].(map[string]any)
		next, ok := properties[name].(map[string]any)
		if !ok {
			next, ok = at["additionalProperties"].(map[string]any)
		}
		if !ok {
			next, ok = at["items"].(map[string]any)
		}
		if !ok {
			return nil
		}
		at = s.resolve(next)
	}
	return at
}

// resolve follows a reference. Keys beside the reference, such as a description, take precedence.
func (s *schema) resolve(v map[string]any) map[string]any {
	ref, ok := v["$ref"].(string)
	if !ok {
		return v
	}
	defs, _ := s.raw["$defs"].(map[string]any)
	target, _ := defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	merged := maps.Clone(target)
	maps.Copy(merged, v)
	return merged
}

// properties returns the allowed keys at a path.
func (s *schema) properties(path []string) []string {
	p, _ := s.find(path)["properties"].(map[string]any)
	return slices.Sorted(maps.Keys(p))
}

// describe returns the schema's description of a path.
func (s *schema) describe(path []string) string {
	text, _ := s.find(path)["description"].(string)
	return strings.TrimSuffix(text, ".")
}
