package policyfile

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/weirflow/weir/internal/nearest"
	"github.com/weirflow/weir/policy"
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
	s.indent(root, nil, &all)
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

// unknown returns the finding about an unknown key.
func (s *schema) unknown(path []string, name string, known []string) finding {
	if len(path) == 1 && path[0] == "listen" { // which weir serve refuses
		known = slices.DeleteFunc(slices.Clone(known), func(k string) bool { return k == "http" })
	}
	if f, ok := s.besideAdaptive(path, name); ok {
		return f
	}
	near := append(slices.Clone(path), cmp.Or(meantKey(name, known), nearest.To(name, known)))
	if written := s.root.find(append(slices.Clone(path), name)); written != nil && s.find(near)["type"] == "object" {
		if fix := s.shorthand(near, written); fix != "" {
			return finding{append(slices.Clone(path), name), true, fmt.Sprintf("there is no key %q here", name), "write " + fix}
		}
	}
	if meant := s.meantParameter(path, name); meant != "" {
		return finding{append(slices.Clone(path), name), true, fmt.Sprintf("there is no key %q here", name), meant}
	}
	if meant := meantKey(name, known); meant != "" {
		fix := "write " + meant
		if written := s.root.find(append(slices.Clone(path), name)); written != nil && written.shape == scalar && text(written) != "" {
			fix = meant + ": " + text(written)
		}
		return finding{append(slices.Clone(path), name), true, fmt.Sprintf("there is no key %q here", name), fix}
	}
	return finding{append(slices.Clone(path), name), true, fmt.Sprintf("there is no key %q here", name), suggest(name, known)}
}

// meantParameter returns the fix for a parameter that the algorithm of a limit does not have; "" if it
// is unknown what it means.
func (s *schema) meantParameter(path []string, name string) string {
	written := text(s.root.find(append(slices.Clone(path), name)))
	meant := s.meantFields(path, name)
	if len(meant) == 1 && meant[0].Value == written {
		return fmt.Sprintf("did you mean %s?", meant[0].Name)
	}
	var words []string
	for _, f := range meant {
		words = append(words, f.Name+": "+f.Value)
	}
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf("replace %s: %s with %s", name, written, strings.Join(words, ", "))
}

// meantFields returns the parameters of a limit that were probably meant by one that it does not have.
func (s *schema) meantFields(path []string, name string) []policy.MeantField {
	if len(path) != 3 || path[0] != "limits" {
		return nil
	}
	others := map[string]string{}
	for _, f := range fields(s.root.find(path)) {
		others[f.name] = text(f.value)
	}
	return policy.MeantFields(path[2], name, others[name], others)
}

// spoilt returns the limits whose algorithm already has a problem.
func (s *schema) spoilt() map[string]bool {
	all := map[string]bool{}
	for _, l := range fields(s.root.get("limits")) {
		all[l.name] = l.value.shape != mapping || s.misspelt(l.value) || s.lacksAlgorithm(l)
	}
	return all
}

// misspelt reports whether a limit has an unknown key that looks like an algorithm, or an algorithm
// without its parameters.
func (s *schema) misspelt(limit *node) bool {
	known := s.properties([]string{"limits", ""})
	return slices.ContainsFunc(append(slices.Clone(limit.fields), limit.empty...), func(f field) bool {
		if slices.Contains(policy.Algorithms(), f.name) {
			return f.value == nil || f.value.shape != mapping
		}
		return !slices.Contains(known, f.name) && slices.Contains(policy.Algorithms(), nearest.To(f.name, known))
	})
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
		names := slices.Clone(k.Properties)
		if found, placed := s.misplaced(at, names); len(placed) > 0 {
			*all = append(*all, found...)
			names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(placed, name) })
		}
		for _, name := range names {
			*all = append(*all, s.unknown(at, name, known))
		}
	case *kind.Required:
		if names := s.reallyMissing(at, k.Missing); len(names) > 0 {
			*all = append(*all, s.missing(at, names))
		}
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
	case *kind.Minimum:
		*all = append(*all, finding{at, false, fmt.Sprintf("%s is below %s", k.Got.RatString(), k.Want.RatString()), at[len(at)-1] + ": " + k.Want.RatString()})
	case *kind.Maximum:
		*all = append(*all, finding{at, false, fmt.Sprintf("%s is above %s", k.Got.RatString(), k.Want.RatString()), at[len(at)-1] + ": " + k.Want.RatString()})
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
	if len(at) == 2 && at[0] == "limits" && slices.Contains(s.properties([]string{"limits", ""}), at[1]) && !slices.Contains(k.Want, "string") {
		written := text(s.root.find(at))
		if written == "" {
			written = "..."
		}
		return finding{at, true, fmt.Sprintf("%s is a setting of a limit, and stands where the name of a limit belongs", at[1]),
			fmt.Sprintf("move it below the name of its limit, indented further: %s: %s", at[1], written)}
	}
	if s.find(at)["$ref"] == "#/$defs/rate" {
		if meant := nearest.Rate(text(s.root.find(at))); meant != "" {
			count, _, _ := strings.Cut(meant, "/")
			return finding{at, false, fmt.Sprintf("a rate is a count and a duration, like %s/s or %s/m: the duration is missing", count, count), at[len(at)-1] + ": " + meant}
		}
	}
	f := finding{at, false, fmt.Sprintf("this is %s, and must be %s", article(k.Got), alternatives(k.Want)), s.describe(at)}
	if k.Got == "array" && s.holdsNames(at) {
		f.fix = s.line(at)
		if written := s.root.find(at); written != nil && len(written.items) > 0 && written.items[0].shape == mapping {
			f.fix = "write the names without a - in front of them"
		}
	}
	if fix := s.retyped(at, k); fix != "" {
		f.fix = fix
	}
	if slices.Contains(k.Want, "object") && slices.Contains(at, "adaptive") {
		f.fix = adaptiveExample(at[len(at)-1])
	}
	if fix := s.shorthand(at, s.root.find(at)); fix != "" && slices.Contains(k.Want, "object") {
		f.fix = fix
	}
	return f
}

// retyped returns the value at a path as the type that is wanted, with its key; "" if that is
// unknown.
func (s *schema) retyped(at []string, k *kind.Type) string {
	if len(at) == 0 {
		return ""
	}
	name, value := at[len(at)-1], s.root.find(at)
	written := text(value)
	if value == nil || value.shape != scalar || written == "" {
		return ""
	}
	number, err := strconv.ParseInt(written, 10, 64)
	real, notReal := strconv.ParseFloat(written, 64)
	isReal := notReal == nil
	switch isNumber := err == nil; {
	case slices.Contains(at, "after") && at[0] == "limits" && isNumber:
		return "" // no number is a true cost
	case slices.Contains(k.Want, "array") && !slices.Contains(k.Want, "string") && k.Got == "string":
		return fmt.Sprintf("%s: [%s]", name, written)
	case slices.Contains(k.Want, "integer") && isNumber && k.Got == "string":
		return fmt.Sprintf("%s: %d", name, number)
	case slices.Contains(k.Want, "integer") && isReal && real >= 1 && real < 1<<31: // such as 1e2 or 1.5
		return fmt.Sprintf("%s: %.0f", name, math.Ceil(real))
	case slices.Contains(k.Want, "string") && isNumber && number >= 1000 && durationLike.MatchString(s.describe(at)):
		return fmt.Sprintf("%s: %dms, or %ds", name, number, number)
	case slices.Contains(k.Want, "string") && !isNumber && isReal && real > 0 && real < 1e6 && durationLike.MatchString(s.describe(at)):
		return fmt.Sprintf("%s: %.0fms", name, math.Ceil(real*1000))
	case at[0] == "listen" && len(at) == 2 && isNumber && number > 0 && number < 1<<16:
		if name == "admin" { // the API for changes is for this machine
			return fmt.Sprintf("admin: 127.0.0.1:%d", number)
		}
		return fmt.Sprintf("%s: \":%d\"", name, number)
	case slices.Contains(k.Want, "boolean") && (written == "yes" || written == "on" || written == "no" || written == "off"):
		return fmt.Sprintf("%s: %t", name, written == "yes" || written == "on")
	case slices.Contains(k.Want, "string") && isNumber && durationLike.MatchString(s.describe(at)):
		return fmt.Sprintf("%s: %ds", name, number)
	case name == "budget" && isNumber || name == "roll_out":
		return fmt.Sprintf("%s: %s%%", name, written)
	case slices.Contains(k.Want, "string") && k.Got != "string" && isNumber:
		return fmt.Sprintf("%s: %q", name, written)
	}
	return ""
}

// reallyMissing leaves out keys that are there under a misspelt name, or beside the algorithm that
// they belong to: another finding is about these.
func (s *schema) reallyMissing(path, names []string) (missing []string) {
	known, parent := s.properties(path), s.root.find(path[:max(len(path)-1, 0)])
	for _, name := range names {
		misspelt := slices.ContainsFunc(fields(s.root.find(path)), func(f field) bool {
			return !slices.Contains(known, f.name) && (nearest.To(f.name, known) == name || meantKey(f.name, known) == name || slices.ContainsFunc(s.meantFields(path, f.name), func(m policy.MeantField) bool { return m.Name == name }))
		})
		if beside := len(path) == 3 && path[0] == "limits" && parent.get(name) != nil; !misspelt && !beside {
			missing = append(missing, name)
		}
	}
	return missing
}

// durationLike matches descriptions of durations.
var durationLike = regexp.MustCompile(`like [0-9]+(?:ms|s|m|h|d)\b`)

// missing returns the finding about required keys that are missing. The fix is a line for each.
func (s *schema) missing(path, names []string) finding {
	about := func(name string) string { return s.describe(append(slices.Clone(path), name)) }
	var lines []string
	for _, name := range names {
		lines = append(lines, name+": "+cmp.Or(s.example(append(slices.Clone(path), name)), exampleOf(name)))
	}
	fix := strings.Join(lines, "\n\t     ")
	if len(names) == 1 {
		return finding{path, true, names[0] + " is missing: " + about(names[0]), fix}
	}
	last := len(names) - 1
	return finding{path, true, strings.Join(names[:last], ", ") + " and " + names[last] + " are missing", fix}
}

// exampleOf returns a value that a required key may have.
func exampleOf(name string) string {
	examples := map[string]string{
		"rate": "100/s", "admit": "10/s", "burst": "20", "queue": "20", "limit": "100", "refill": "10", "every": "1s", "window": "1m", "slots": "6", "period": "10s",
		"match": "/", "url": "http://127.0.0.1:9000", "address": "127.0.0.1:8080", "cert": "cert.pem", "key": "key.pem", "file": "access.log", "value": "nosniff",
		"length": "20", "certificates": "[{ cert: cert.pem, key: key.pem }]", "path": "/healthz",
	}
	if e := examples[name]; e != "" {
		return e
	}
	return strings.ToUpper(name)
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
	if small := strings.ToLower(name); small != name && slices.Contains(known, small) {
		return fmt.Sprintf("did you mean %s?", small)
	}
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
