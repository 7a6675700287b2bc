package policyfile

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits of a policy file. They are far above any real file, and low enough that no file can
// exhaust the process.
const (
	maxBytes = 1 << 20
	maxDepth = 32
	maxNodes = 1 << 18 // after aliases are resolved
)

const emptyFile = "the file is empty"

// node is a value of the file with its position.
type node struct {
	line, col int
	value     any    // string, int64, uint64, float64 or bool; nil for a map and a list
	written   string // the text of a scalar as it is written, without quotes
	fields    []field
	empty     []field // keys without a value, which are errors
	items     []*node
	shape     shape
}

type shape uint8

const (
	scalar shape = iota
	mapping
	list
)

// field is one key of a map.
type field struct {
	name      string
	line, col int
	value     *node
	merged    bool // from <<, so it can be overridden
}

// get returns the value of a key, or nil.
func (n *node) get(name string) *node {
	if n == nil {
		return nil
	}
	for _, f := range n.fields {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

// at returns the position of the last existing part of a path: of a scalar itself, and of the key
// of a map or a list.
func (n *node) at(path []string) (line, col int) {
	line, col = n.line, n.col
	for _, name := range path {
		switch n.shape {
		case mapping:
			i := 0
			for i < len(n.fields) && n.fields[i].name != name {
				i++
			}
			if i == len(n.fields) {
				return line, col
			}
			f := n.fields[i]
			n, line, col = f.value, f.line, f.col
			if n.shape == scalar {
				line, col = n.line, n.col
			}
		case list:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(n.items) {
				return line, col
			}
			n = n.items[i]
			line, col = n.line, n.col
		default:
			return line, col
		}
	}
	return line, col
}

// lastLine returns the last line on which a key or a value of the node begins.
func (n *node) lastLine() int {
	last := n.line
	for _, f := range append(slices.Clone(n.fields), n.empty...) {
		last = max(last, f.line)
		if f.value != nil {
			last = max(last, f.value.lastLine())
		}
	}
	for _, item := range n.items {
		last = max(last, item.lastLine())
	}
	return last
}

// find returns the value at a path of keys and indexes, or nil.
func (n *node) find(path []string) *node {
	for _, name := range path {
		if n == nil {
			return nil
		}
		if n.shape == list {
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(n.items) {
				return nil
			}
			n = n.items[i]
			continue
		}
		n = n.get(name)
	}
	return n
}

// any returns the value as encoding/json would read it, for the schema.
func (n *node) any() any {
	switch n.shape {
	case mapping:
		m := map[string]any{}
		for _, f := range n.fields {
			m[f.name] = f.value.any()
		}
		return m
	case list:
		l := make([]any, len(n.items))
		for i, item := range n.items {
			l[i] = item.any()
		}
		return l
	}
	if u, ok := n.value.(uint64); ok {
		return float64(u)
	}
	return n.value
}

// mistake is a problem with the text itself.
type mistake struct {
	line, col int
	msg, fix  string
}

func (m *mistake) Error() string { return m.msg }

// parse parses a policy file into a tree. The error is a *mistake.
func parse(data []byte) (*node, error) {
	root, err := parseAny(data)
	if err == nil && root.shape != mapping {
		return nil, &mistake{1, 1, "the file is not a map", "begin with limits: and routes:"}
	}
	return root, err
}

// parseAny parses a file with any value. The error is a *mistake.
func parseAny(data []byte) (*node, error) {
	if len(data) > maxBytes {
		return nil, &mistake{1, 1, fmt.Sprintf("the file has %d bytes", len(data)), fmt.Sprintf("a file has at most %d", maxBytes)}
	}
	if line := invalidLine(data); line > 0 {
		return nil, &mistake{line, 1, "the line is not UTF-8 text", "save the file as UTF-8"}
	}
	if err := checkDepth(string(data), maxDepth); err != nil {
		return nil, err
	}
	if err := checkColons(string(data)); err != nil {
		return nil, err
	}
	return parseTree(data, maxDepth)
}

// parseTree parses a text whose depth was checked. The error is a *mistake.
func parseTree(data []byte, depth int) (*node, error) {
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) && syntax.Token != nil {
			return nil, explain(string(data), syntax.Token.Position, syntax.Message)
		}
		return nil, &mistake{1, 1, err.Error(), ""}
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc == nil || doc.Body == nil {
			continue
		}
		if body != nil {
			p := doc.Body.GetToken().Position
			return nil, &mistake{p.Line, p.Column, "a second document begins here", "a policy file is one document: take the --- out"}
		}
		body = doc.Body
	}
	if body == nil {
		return nil, &mistake{1, 1, emptyFile, "begin with limits: and routes:"}
	}
	b := builder{anchors: map[string]*node{}, depth: depth}
	root, err := b.build(body, 0)
	if err != nil {
		return nil, err
	}
	if root == nil {
		return nil, &mistake{1, 1, "the file is not a map", "begin with limits: and routes:"}
	}
	return root, nil
}

// invalidLine returns the first line that is not UTF-8, or 0.
func invalidLine(data []byte) int {
	if utf8.Valid(data) {
		return 0
	}
	for i, line := range strings.Split(string(data), "\n") {
		if !utf8.ValidString(line) {
			return i + 1
		}
	}
	return 1
}

// checkDepth refuses texts that would make the parser recurse deeply. It looks at the tokens, which
// are produced without recursion.
func checkDepth(text string, most int) error {
	flow := 0
	indents := []int{}
	for _, t := range lexer.Tokenize(text) {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow = max(flow-1, 0)
		case token.MappingValueType, token.SequenceEntryType:
			if flow == 0 {
				col := t.Position.IndentNum
				if t.Type == token.SequenceEntryType {
					col = t.Position.Column // several blocks may begin on one line
				}
				for len(indents) > 0 && indents[len(indents)-1] > col {
					indents = indents[:len(indents)-1]
				}
				if len(indents) == 0 || indents[len(indents)-1] < col {
					indents = append(indents, col)
				}
			}
		}
		if flow+len(indents) > most {
			return &mistake{t.Position.Line, t.Position.Column, fmt.Sprintf("the file is nested more than %d deep", most), "no policy is"}
		}
	}
	return nil
}

// builder turns the parser's tree into ours.
type builder struct {
	anchors map[string]*node
	nodes   int
	depth   int // the most
}

func (b *builder) build(n ast.Node, depth int) (*node, error) {
	at := n.GetToken().Position
	out := &node{line: at.Line, col: at.Column}
	if _, ok := n.(ast.ScalarNode); ok {
		out.written = n.GetToken().Value
	}
	if b.nodes++; b.nodes > maxNodes || depth > b.depth {
		return nil, &mistake{at.Line, at.Column, "the file is too large or nested too deep", ""}
	}
	bad := func(msg, fix string) (*node, error) { return nil, &mistake{at.Line, at.Column, msg, fix} }
	switch v := n.(type) {
	case *ast.NullNode:
		return nil, nil
	case *ast.StringNode:
		out.value = v.Value
	case *ast.LiteralNode:
		out.value = v.Value.Value
	case *ast.BoolNode:
		out.value = v.Value
	case *ast.FloatNode:
		if math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
			return bad("it is not a number that is valid here", "")
		}
		out.value = v.Value
	case *ast.IntegerNode:
		switch i := v.Value.(type) {
		case int64:
			out.value = i
		case uint64:
			out.value = i
			if i <= math.MaxInt64 {
				out.value = int64(i)
			}
		}
	case *ast.InfinityNode, *ast.NanNode:
		return bad("it is not a number that is valid here", "")
	case *ast.AnchorNode:
		name := v.Name.String()
		inner, err := b.build(v.Value, depth+1)
		if err != nil {
			return nil, err
		}
		b.anchors[name] = inner
		return inner, nil
	case *ast.AliasNode:
		return b.alias(v, at)
	case *ast.TagNode:
		return bad(fmt.Sprintf("the tag %s is not used here", v.GetToken().Value), "take it out")
	case *ast.SequenceNode:
		out.shape = list
		for _, item := range v.Values {
			c, err := b.build(item, depth+1)
			if err != nil {
				return nil, err
			}
			if c == nil {
				p := item.GetToken().Position
				return nil, &mistake{p.Line, p.Column, "the item is empty", "write it, or take it out"}
			}
			out.items = append(out.items, c)
		}
	case *ast.MappingNode:
		out.shape = mapping
		for _, f := range v.Values {
			if err := b.field(out, f, depth); err != nil {
				return nil, err
			}
		}
	case *ast.MappingValueNode:
		out.shape = mapping
		if err := b.field(out, v, depth); err != nil {
			return nil, err
		}
	default:
		return bad(fmt.Sprintf("a %s is not used here", n.Type()), "")
	}
	return out, nil
}

// alias resolves *name to the value of &name. The nodes of that value count again, so that aliases
// of aliases cannot grow without limit.
func (b *builder) alias(v *ast.AliasNode, at *token.Position) (*node, error) {
	name := v.Value.String()
	target, ok := b.anchors[name]
	if !ok {
		return nil, &mistake{at.Line, at.Column, fmt.Sprintf("nothing before this is called &%s", name), ""}
	}
	b.nodes += target.size()
	if b.nodes > maxNodes {
		return nil, &mistake{at.Line, at.Column, "the aliases make the file too large", ""}
	}
	return target, nil
}

func (n *node) size() int {
	if n == nil {
		return 1
	}
	size := 1
	for _, f := range n.fields {
		size += f.value.size()
	}
	for _, item := range n.items {
		size += item.size()
	}
	return size
}

// field adds a key and its value to a map.
func (b *builder) field(out *node, f *ast.MappingValueNode, depth int) error {
	at := f.Key.GetToken().Position
	value, err := b.build(f.Value, depth+1)
	if err != nil {
		return err
	}
	if _, merge := f.Key.(*ast.MergeKeyNode); merge {
		if value == nil || value.shape != mapping {
			return &mistake{at.Line, at.Column, "<< does not name a map", ""}
		}
		for _, inherited := range value.fields {
			if out.get(inherited.name) == nil {
				inherited.merged = true
				out.fields = append(out.fields, inherited)
			}
		}
		return nil
	}
	var name string
	switch k := f.Key.(type) {
	case *ast.StringNode:
		name = k.Value
	case ast.ScalarNode:
		name = k.GetToken().Value
	default:
		return &mistake{at.Line, at.Column, "a key must be a plain word", ""}
	}
	for i, known := range out.fields {
		switch {
		case known.name != name:
		case known.merged:
			out.fields = append(out.fields[:i:i], out.fields[i+1:]...)
		default:
			return &mistake{at.Line, at.Column, fmt.Sprintf("%q is there twice, first in line %d", name, known.line), "take one of them out"}
		}
	}
	if value == nil {
		out.empty = append(out.empty, field{name: name, line: at.Line, col: at.Column})
		return nil
	}
	// an alias: errors in it are reported where it is used
	if value.shape != scalar && value.line < at.Line {
		moved := *value
		moved.line, moved.col = at.Line, at.Column
		value = &moved
	}
	out.fields = append(out.fields, field{name, at.Line, at.Column, value, false})
	return nil
}
