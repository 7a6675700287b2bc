package weircaddy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/policyfile"
)

// composed returns a policy of limits and routes, with all that handlers share.
func composed(shared *node, limits []*node, routes []*node) *text {
	t := &text{}
	t.checkPlaceholders(limits)
	for _, f := range shared.fields {
		if f.name != "limits" {
			t.field(f, 0)
		}
	}
	if len(limits) > 0 {
		t.field(&node{name: "limits", kind: isMap, fields: inWords(limits)}, 0)
	}
	if len(routes) > 0 {
		t.WriteString("routes:")
		t.end("")
		for _, r := range routes {
			t.WriteString("  -")
			t.rest(&node{kind: isMap, fields: append([]*node{{name: "match", from: r.from, scalar: "/"}}, r.fields...)}, 2)
		}
	}
	return t
}

// checkPlaceholders notes what is wrong with the placeholders of limits.
func (t *text) checkPlaceholders(limits []*node) {
	for _, l := range limits {
		for _, f := range l.fields {
			if f.name != "key" && f.name != "cost" && f.name != "tag" {
				continue
			}
			for _, word := range f.texts() {
				warning, err := checkPlaceholders(word)
				if err != nil {
					t.wrong = append(t.wrong, fmt.Errorf("%s: %s: %w", f.from, f.name, err))
				}
				if warning != "" {
					t.unknown = append(t.unknown, fmt.Sprintf("%s: %s: %s", f.from, f.name, warning))
				}
			}
		}
	}
}

// inWords returns limits with the words of a policy in place of Caddy's placeholders. A placeholder
// that cannot be read stays, and is an error of the policy.
func inWords(limits []*node) []*node {
	all := make([]*node, len(limits))
	for i, l := range limits {
		next := *l
		next.fields = nil
		for _, f := range l.fields {
			next.fields = append(next.fields, inWord(f))
		}
		all[i] = &next
	}
	return all
}

// inWord is inWords for a field of a limit.
func inWord(f *node) *node {
	switch f.name {
	case "key":
		parts, err := keyParts(f.texts())
		if err != nil || len(parts) == 0 && len(f.texts()) == 0 {
			return f
		}
		next := &node{name: f.name, from: f.from, kind: isList}
		for _, p := range parts {
			next.list = append(next.list, &node{from: f.from, scalar: p})
		}
		return next
	case "cost", "tag":
		if f.kind != isScalar {
			return f
		}
		names, err := placeholders(f.text())
		if err != nil || len(names) != 1 || f.text() != "{"+names[0]+"}" {
			return f
		}
		part := partOf(names[0])
		if f.name == "cost" && !strings.HasPrefix(part, "header.") {
			part = "value." + names[0]
		}
		return &node{name: f.name, from: f.from, scalar: part}
	}
	return f
}

// parse reads the policy. The error names where each problem was written.
func (t *text) parse() (*policyfile.File, error) {
	if len(t.wrong) > 0 {
		return nil, errors.Join(t.wrong...)
	}
	file, err := policyfile.ParseWithValues("Caddyfile", t.Bytes())
	return file, t.explain(err)
}

// checkStores is parse, and also tries whether the stores could be opened. It connects to none.
func (t *text) checkStores() error {
	file, err := t.parse()
	if err != nil {
		return err
	}
	if wrong := active.Check(file); len(wrong) > 0 {
		return t.explain(&policyfile.InvalidError{Problems: wrong})
	}
	return nil
}

// explain says where the problems of an invalid policy were written.
func (t *text) explain(err error) error {
	var invalid *policyfile.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	var errs []error
	for _, p := range invalid.Problems {
		if !p.Warning {
			errs = append(errs, errors.New(t.message(p)))
		}
	}
	return errors.Join(errs...)
}

// message is a problem at the place where its line was written.
func (t *text) message(p policyfile.Problem) string {
	m := p.Message
	if at := t.origin(p.Line); at != "" {
		m = at + ": " + m
	}
	if p.Fix != "" {
		m = fmt.Sprintf("%s (%s)", m, strings.Join(strings.Fields(p.Fix), " "))
	}
	return m
}

// warnings returns the warnings of a policy.
func (t *text) warnings(file *policyfile.File) (all []string) {
	all = append(all, t.unknown...)
	for _, p := range file.Problems {
		if p.Warning {
			all = append(all, t.message(p))
		}
	}
	return all
}
