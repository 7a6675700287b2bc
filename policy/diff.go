package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/duration"
	"github.com/weirflow/weir/internal/snake"
)

// A Change is one difference between two policies: a limit, a store, an upstream, a route, or a
// single setting.
type Change struct {
	What   string  // "limit", "store", "upstream", "waiting room", "route", or "setting"
	Name   string  // its name; for a route, its match
	How    string  // "added", "removed", "changed", or "moved"
	Fields []Field // for a change: each parameter or word that differs
	Counts string  // for a limit or a store, what happens to its counts: "kept", "reset" or "gone"; empty if it is added
	Why    string  // the reason for Counts
}

// A Field is one part of a change. A value that is not set is empty.
type Field struct{ Name, From, To string }

// The values of Change.How.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
	Moved   = "moved"
)

// The values of Change.Counts.
const (
	CountsKept  = "kept"
	CountsReset = "reset"
	CountsGone  = "gone"
)

// Diff returns the changes from one policy to another, in the order of a policy file. It leaves out
// passwords and users of stores.
func Diff(from, to *Policy) (all []Change) {
	all = append(all, settings(from, to)...)
	all = append(all, named("store", from.Stores, to.Stores, func(s Store) string { return s.Name }, placed)...)
	all = append(all, named("limit", from.Limits, to.Limits, func(l Limit) string { return l.Name }, func(was, is *Limit, c *Change) { counted(from, to, was, is, c) })...)
	all = append(all, named("upstream", from.Upstreams, to.Upstreams, func(u Upstream) string { return u.Name }, nil)...)
	all = append(all, named("waiting room", from.Rooms, to.Rooms, func(r WaitingRoom) string { return r.Name }, nil)...)
	return append(all, routes(from.Routes, to.Routes)...)
}

// settings compares single settings, which are neither in a map nor in a list of named things.
func settings(from, to *Policy) (all []Change) {
	a, b := reflect.ValueOf(*from), reflect.ValueOf(*to)
	for i := range a.NumField() {
		f := a.Type().Field(i)
		switch f.Name {
		case "Stores", "Limits", "Upstreams", "Rooms", "Routes":
			continue
		}
		if fields := differ(label(f.Name), a.Field(i), b.Field(i)); len(fields) > 0 {
			all = append(all, Change{What: "setting", Name: label(f.Name), How: Changed, Fields: fields})
		}
	}
	return all
}

// named compares two lists of named things. tell completes a change; was or is is nil if the thing
// was added or removed.
func named[T any](what string, from, to []T, name func(T) string, tell func(was, is *T, c *Change)) (all []Change) {
	find := func(in []T, n string) *T {
		for i := range in {
			if name(in[i]) == n {
				return &in[i]
			}
		}
		return nil
	}
	add := func(was, is *T, c Change) {
		if c.What = what; tell != nil {
			tell(was, is, &c)
		}
		all = append(all, c)
	}
	for i := range from {
		if find(to, name(from[i])) == nil {
			add(&from[i], nil, Change{Name: name(from[i]), How: Removed})
		}
	}
	for i := range to {
		was, is := find(from, name(to[i])), &to[i]
		if was == nil {
			add(nil, is, Change{Name: name(*is), How: Added})
			continue
		}
		if fields := differ("", reflect.ValueOf(*was), reflect.ValueOf(*is)); len(fields) > 0 {
			add(was, is, Change{Name: name(*is), How: Changed, Fields: fields})
		}
	}
	return all
}

// routes compares routes by their matches. Their order matters, because the first match applies.
func routes(from, to []Route) []Change {
	was, is := matches(from), matches(to)
	all := named("route", was, is, func(m matched) string { return m.Name }, nil)
	other := func(in []matched) func(matched) bool {
		return func(m matched) bool {
			return !slices.ContainsFunc(in, func(o matched) bool { return o.Name == m.Name })
		}
	}
	before, after := slices.DeleteFunc(slices.Clone(was), other(is)), slices.DeleteFunc(slices.Clone(is), other(was))
	for i := range before {
		if before[i].Name != after[i].Name {
			return append(all, Change{What: "route", Name: after[i].Name, How: Moved, Why: "the first route that matches wins"})
		}
	}
	return all
}

// matched is a route with a unique name, since several routes may have the same match.
type matched struct {
	Name  string
	Route Route
}

func matches(in []Route) (all []matched) {
	seen := map[string]int{}
	for _, r := range in {
		name := r.Match
		if seen[name]++; seen[name] > 1 {
			name = fmt.Sprintf("%s (number %d)", name, seen[name])
		}
		all = append(all, matched{name, r})
	}
	return all
}

// differ returns the fields in which two values of a type differ, with their names in a policy
// file.
func differ(name string, a, b reflect.Value) (all []Field) {
	if a.Type() == reflect.TypeFor[weir.Limit]() {
		return differentLimits(a, b)
	}
	if a.Type() == reflect.TypeFor[[]PlanLimit]() {
		return differentPlans(name, a, b)
	}
	if a.Type() == reflect.TypeFor[Place]() {
		return nil // it follows from the URL
	}
	if a.Kind() == reflect.Struct && !isText(a.Type()) {
		for i := range a.NumField() {
			field := label(a.Type().Field(i).Name)
			if name != "" && a.Type() != reflect.TypeFor[Route]() {
				field = name + "." + field
			}
			all = append(all, differ(field, a.Field(i), b.Field(i))...)
		}
		return all
	}
	if reflect.DeepEqual(a.Interface(), b.Interface()) {
		return nil
	}
	from, to := show(a), show(b)
	if name == "url" {
		from, to = withoutUser(from), withoutUser(to)
	}
	from, to = shorten(from), shorten(to)
	switch {
	case from != to:
	case name == "url":
		from, to = "(as it was)", "(other users, passwords or parameters)"
	default:
		from, to = "(as it was)", "(another text further on)"
	}
	return []Field{{name, from, to}}
}

// differentLimits compares the parameters of two limits. If their algorithms differ, it names both.
func differentLimits(a, b reflect.Value) (all []Field) {
	was, _ := a.Interface().(weir.Limit)
	is, _ := b.Interface().(weir.Limit)
	if was == nil || is == nil || weir.Equal(was, is) {
		return nil
	}
	if reflect.TypeOf(was) == reflect.TypeOf(is) {
		return differ(weir.Algorithm(is), reflect.ValueOf(was), reflect.ValueOf(is))
	}
	return []Field{{"algorithm", describe(was), describe(is)}}
}

// differentPlans compares the parameters of a limit plan by plan.
func differentPlans(name string, a, b reflect.Value) (all []Field) {
	was, _ := a.Interface().([]PlanLimit)
	is, _ := b.Interface().([]PlanLimit)
	find := func(in []PlanLimit, plan string) string {
		for i := range in {
			if in[i].Plan == plan {
				return in[i].String()
			}
		}
		return ""
	}
	for i := range was {
		if from, to := was[i].String(), find(is, was[i].Plan); from != to {
			all = append(all, Field{name + "." + was[i].Plan, from, to})
		}
	}
	for i := range is {
		if find(was, is[i].Plan) == "" {
			all = append(all, Field{name + "." + is[i].Plan, "", is[i].String()})
		}
	}
	return all
}

// String returns what a policy file has for the plan.
func (p PlanLimit) String() string {
	if p.Unlimited || p.Limit == nil {
		return "unlimited"
	}
	return inBraces(reflect.ValueOf(p.Limit))
}

// label returns the name of a Go field in a policy file.
func label(name string) string {
	if name == "Costs" { // a map in place of a cost
		return "cost"
	}
	if strings.ToUpper(name) == name {
		return strings.ToLower(name)
	}
	return snake.Case(name)
}

// describe writes a limit as a policy file does, in one line.
func describe(l weir.Limit) string {
	return weir.Algorithm(l) + ": " + inBraces(reflect.ValueOf(l))
}

// inBraces writes a struct as a map of a policy file, in one line.
func inBraces(v reflect.Value) string {
	var fields []string
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			fields = append(fields, label(v.Type().Field(i).Name)+": "+show(v.Field(i)))
		}
	}
	return "{ " + strings.Join(fields, ", ") + " }"
}

// isText reports whether a policy file has this type as a text.
func isText(t reflect.Type) bool { return t.Implements(reflect.TypeFor[fmt.Stringer]()) }

// show writes a value as a policy file does. A value that is not set is empty.
func show(v reflect.Value) string {
	if v.IsZero() {
		return ""
	}
	switch of := v.Interface().(type) {
	case time.Duration:
		return duration.Format(of)
	case time.Time:
		return of.UTC().Format(time.RFC3339)
	case fmt.Stringer:
		return of.String()
	}
	if v.Kind() == reflect.Slice {
		var items []string
		for i := range v.Len() {
			items = append(items, show(v.Index(i)))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	if v.Kind() == reflect.Struct {
		return inBraces(v)
	}
	return fmt.Sprint(v.Interface())
}

// shorten cuts a text that is too long for one line.
func shorten(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(text[:most], ""), len(text))
}

// withoutUser removes what could be secret from a URL: users, passwords and parameters.
func withoutUser(url string) string {
	scheme, rest, found := strings.Cut(url, "://")
	if !found {
		return ""
	}
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	rest, _, _ = strings.Cut(rest, "?")
	return scheme + "://" + rest
}

// placed determines what happens to the counts of the limits in a store.
func placed(was, is *Store, c *Change) {
	if was != nil && is != nil && (!samePlace(was, is) || was.prefix() != is.prefix()) {
		c.Counts, c.Why = CountsReset, "what its limits have counted stays where it was"
	}
}

// counted determines what happens to the counts of a limit.
func counted(from, to *Policy, was, is *Limit, c *Change) {
	switch {
	case is == nil:
		c.Counts = CountsGone
		if was.Store != "" {
			c.Why = "they stay in the store until they are idle"
		}
		return
	case was == nil:
		return
	}
	c.Counts, c.Why = CountsKept, was.restarts(is, from.store(was.Store), to.store(is.Store))
	if c.Why != "" {
		c.Counts = CountsReset
	}
}

// String returns the change in one line.
func (c Change) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", c.What, c.Name)
	if c.What == "route" {
		b.Reset()
		fmt.Fprintf(&b, "route %q", c.Name)
	}
	switch c.How {
	case Changed:
		b.WriteString(": ")
		for i, f := range c.Fields {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(f.String())
		}
	default:
		b.WriteString(" is " + c.How)
	}
	switch {
	case c.Counts == CountsKept:
		b.WriteString("; its counts are kept")
	case c.Counts == CountsReset:
		b.WriteString("; its counts are reset")
	case c.Counts == CountsGone:
		b.WriteString("; its counts go with it")
	}
	if c.Why != "" {
		b.WriteString(": " + c.Why)
	}
	return b.String()
}

// String returns the field in words.
func (f Field) String() string {
	switch {
	case f.From == "":
		return fmt.Sprintf("%s is set to %s", f.Name, f.To)
	case f.To == "":
		return fmt.Sprintf("%s %s is taken out", f.Name, f.From)
	}
	return fmt.Sprintf("%s from %s to %s", f.Name, f.From, f.To)
}
