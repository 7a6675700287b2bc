package policyfile

import "errors"

// A Value is a value of a YAML file that is no policy, such as the configuration of another rate
// limiter, with its position.
type Value struct {
	Line, Col int
	Text      string       // of a scalar, as it is written, without quotes
	IsText    bool         // it is a scalar
	IsList    bool         // it is a list; else it is a map
	Fields    []ValueField // of a map, in the order of the file
	Items     []*Value     // of a list
	node      *node
}

// A ValueField is a key of a map with its value, which is nil if there is none.
type ValueField struct {
	Name      string
	Line, Col int
	Value     *Value
}

// A Place is where in a file something is written.
type Place struct {
	File      string
	Line, Col int
}

// Wrong returns a problem there.
func (p Place) Wrong(message, fix string) Problem {
	return Problem{p.File, p.Line, p.Col, message, fix, false}
}

// maxForeignDepth bounds the nesting of files that are no policies.
const maxForeignDepth = 400

// ReadYAML parses a YAML file that is no policy. The error is an *InvalidError.
func ReadYAML(path string, data []byte) (*Value, error) {
	wrong := func(m *mistake) error {
		return &InvalidError{[]Problem{{path, m.line, m.col, m.msg, m.fix, false}}}
	}
	if line := invalidLine(data); line > 0 {
		return nil, wrong(&mistake{line, 1, "the line is not UTF-8 text", "save the file as UTF-8"})
	}
	err := checkDepth(string(data), maxForeignDepth)
	var root *node
	if err == nil {
		root, err = parseTree(data, maxForeignDepth)
	}
	if err != nil {
		m := &mistake{1, 1, err.Error(), ""}
		errors.As(err, &m)
		return nil, wrong(m)
	}
	return foreign(root), nil
}

// foreign copies a tree.
func foreign(n *node) *Value {
	v := &Value{Line: n.line, Col: n.col, IsText: n.shape == scalar, IsList: n.shape == list, node: n}
	if n.shape == scalar {
		if v.Text = n.written; v.Text == "" {
			v.Text = text(n)
		}
		if s, ok := n.value.(string); ok {
			v.Text = s
		}
	}
	for _, f := range n.fields {
		v.Fields = append(v.Fields, ValueField{f.name, f.line, f.col, foreign(f.value)})
	}
	for _, f := range n.empty {
		v.Fields = append(v.Fields, ValueField{Name: f.name, Line: f.line, Col: f.col})
	}
	for _, item := range n.items {
		v.Items = append(v.Items, foreign(item))
	}
	return v
}
