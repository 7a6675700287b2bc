package weircaddy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// A node is a value in the words of a policy file, from JSON or from a Caddyfile. It remembers where it
// was written, for messages.
type node struct {
	name   string // of a field
	from   string // "Caddyfile:12", or a path like "limits.login.key"
	scalar any    // string, json.Number, bool or nil
	list   []*node
	fields []*node
	kind   nodeKind
}

type nodeKind uint8

const (
	isScalar nodeKind = iota
	isList
	isMap
)

// get returns the field of that name; nil for none.
func (n *node) get(name string) *node {
	if n != nil {
		for _, f := range n.fields {
			if f.name == name {
				return f
			}
		}
	}
	return nil
}

// texts returns the texts of a scalar or of a list.
func (n *node) texts() (all []string) {
	switch {
	case n == nil:
	case n.kind == isScalar:
		return []string{n.text()}
	default:
		for _, item := range n.list {
			all = append(all, item.text())
		}
	}
	return all
}

func (n *node) text() string {
	if n.scalar == nil {
		return ""
	}
	return fmt.Sprint(n.scalar)
}

// MarshalJSON writes the value, and keeps the order of fields.
func (n *node) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	n.inline(&b)
	return b.Bytes(), nil
}

// inline writes the value in JSON, which is YAML too.
func (n *node) inline(b *bytes.Buffer) {
	switch n.kind {
	case isScalar:
		e := json.NewEncoder(b)
		e.SetEscapeHTML(false)
		_ = e.Encode(n.scalar) // texts, numbers and booleans can always be written
		b.Truncate(b.Len() - 1)
	case isList:
		b.WriteByte('[')
		for i, item := range n.list {
			if i > 0 {
				b.WriteString(", ")
			}
			item.inline(b)
		}
		b.WriteByte(']')
	default:
		b.WriteByte('{')
		for i, f := range n.fields {
			if i > 0 {
				b.WriteString(", ")
			}
			(&node{scalar: f.name}).inline(b)
			b.WriteString(": ")
			f.inline(b)
		}
		b.WriteByte('}')
	}
}

// fromJSON reads a value. from is its path, for messages; empty for the configuration itself.
func fromJSON(name, from string, data json.RawMessage) (*node, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	n, err := readJSON(d, name, from)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return n, nil
}

func readJSON(d *json.Decoder, name, from string) (*node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	n := &node{name: name, from: from}
	switch token {
	case json.Delim('{'):
		n.kind = isMap
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			f, err := readJSON(d, key.(string), strings.TrimPrefix(from+"."+key.(string), "."))
			if err != nil {
				return nil, err
			}
			if n.get(f.name) != nil {
				return nil, fmt.Errorf("%q is there twice", f.name)
			}
			n.fields = append(n.fields, f)
		}
	case json.Delim('['):
		n.kind = isList
		for d.More() {
			item, err := readJSON(d, "", from)
			if err != nil {
				return nil, err
			}
			n.list = append(n.list, item)
		}
	default:
		n.scalar = token
		return n, nil
	}
	_, err = d.Token() // the closing bracket
	return n, err
}

// A text is a policy in YAML that was made of nodes, with the origin of each of its lines.
type text struct {
	bytes.Buffer
	origins []string // of each line
	unknown []string // warnings about placeholders
	wrong   []error  // about placeholders
}

// field writes a field of a map, each scalar and each list on a line of its own.
func (t *text) field(n *node, indent int) {
	t.WriteString(strings.Repeat("  ", indent))
	(&node{scalar: n.name}).inline(&t.Buffer)
	t.WriteByte(':')
	t.rest(n, indent+1)
}

// rest writes a value behind its name.
func (t *text) rest(n *node, indent int) {
	if n.kind != isMap || len(n.fields) == 0 {
		t.WriteByte(' ')
		n.inline(&t.Buffer)
		t.end(n.from)
		return
	}
	t.end(n.from)
	for _, f := range n.fields {
		t.field(f, indent)
	}
}

// end ends a line, and records where its text came from.
func (t *text) end(origin string) {
	t.WriteByte('\n')
	t.origins = append(t.origins, origin)
}

// origin returns where a line came from, counted from 1.
func (t *text) origin(line int) string {
	if line < 1 || line > len(t.origins) {
		return ""
	}
	return t.origins[line-1]
}
