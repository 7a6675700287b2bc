package jsonscan

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// A Field is what a request's body says of a field.
type Field struct {
	Text    string // of a string, decoded; of a number or a boolean, as it was written
	Present bool   // it has a value other than null
	// The field, or an object on its way, is there more than once or under a name that some upstreams
	// take for it, or its value is an object or an array: upstreams differ in what they read. Text is
	// empty then.
	Unclear bool
	String  bool // the value is a string
}

// strict is how the body of a request is read. Names are decoded, as an upstream does, and a name
// that differs in case alone counts as a repetition, as some upstreams fold it.
type strict struct {
	times []uint8 // by node: how often its name came
	docs  int
}

func (s *strict) find(n *node, name []byte) *node {
	if bytes.IndexByte(name, '\\') >= 0 {
		decoded, ok := unquote(name)
		if !ok {
			return nil
		}
		name = []byte(decoded)
	}
	for i, own := range n.names {
		if bytes.Equal(own, name) {
			s.see(n.children[i], 1)
			return n.children[i]
		}
	}
	for i, own := range n.names {
		if bytes.EqualFold(own, name) {
			s.see(n.children[i], 2)
			return nil
		}
	}
	return nil
}

// see counts a name.
func (s *strict) see(n *node, times uint8) {
	s.times[n.id] = min(s.times[n.id]+times, 2)
}

// unquote decodes the inside of a string.
func unquote(text []byte) (decoded string, ok bool) {
	if bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text) {
		return string(text), true
	}
	quoted := append(append([]byte{'"'}, text...), '"')
	return decoded, json.Unmarshal(quoted, &decoded) == nil
}

// Fields reads the fields of a tree from a request's body, which is one JSON object. The result has
// a Field for each slot. If body is not the whole body, or no such object, every field is Unclear:
// an upstream may find what is not seen here.
func Fields(t *Tree, body []byte, whole bool) []Field {
	return FieldsOf(t, [][]byte{body}, whole)
}

// FieldsOf is like Fields, for a body in parts. The first has at least three bytes, if the body has.
func FieldsOf(t *Tree, parts [][]byte, whole bool) []Field {
	r := &reading{fields: make([]Field, t.slots)}
	s := NewScanner(t, r)
	s.strict = &strict{times: make([]uint8, t.nodes)}
	var first byte // that is not blank
	for i, part := range parts {
		if i == 0 {
			part = bytes.TrimPrefix(part, []byte("\xef\xbb\xbf"))
		}
		if text := bytes.TrimLeft(part, " \t\r\n"); first == 0 && len(text) > 0 {
			first = text[0]
		}
		s.Scan(part)
	}
	s.Scan([]byte{' '}) // ends a number at the top
	if !whole || s.Broken() || !s.Idle() || s.strict.docs != 1 || first != '{' {
		for i := range r.fields {
			r.fields[i] = Field{Present: true, Unclear: true}
		}
		return r.fields
	}
	r.unclear(t.root, s.strict.times, false)
	return r.fields
}

// reading collects fields.
type reading struct{ fields []Field }

// Value is of Sink.
func (r *reading) Value(slot int, kind Kind, text []byte) {
	f := Field{Present: true}
	switch kind {
	case Composite:
		f.Unclear = true
	case String:
		decoded, ok := unquote(text)
		f.Text, f.Unclear, f.String = decoded, !ok, ok
	case Scalar:
		f.Text, f.Present = string(text), string(text) != "null"
	}
	if f.Unclear || !f.Present {
		f.Text = ""
	}
	r.fields[slot] = f
}

// Doc is of Sink.
func (*reading) Doc() {}

// unclear marks the fields whose names, or names on their way, came more than once.
func (r *reading) unclear(n *node, times []uint8, above bool) {
	above = above || times[n.id] > 1
	if above && n.slot >= 0 {
		r.fields[n.slot] = Field{Present: true, Unclear: true}
	}
	for _, c := range n.children {
		r.unclear(c, times, above)
	}
}
