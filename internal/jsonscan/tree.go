// Package jsonscan finds a few fields in JSON without building it: it is given the text in pieces of
// any size, and keeps no more of it than the field that is being read. A Scanner is for JSON from a
// trusted sender that passes by, Fields for the body of a request, whose sender may try to mislead.
package jsonscan

import (
	"bytes"
	"fmt"
	"strings"
)

// Bounds on paths.
const (
	maxSteps = 8   // names in a path
	maxName  = 128 // bytes of a name
)

// A Tree holds the paths of the fields that are wanted. It is immutable once it is in use.
type Tree struct {
	root  *node
	nodes int
	slots int
}

// node is an object or a field on the way to one.
type node struct {
	id       int
	names    [][]byte
	children []*node
	slot     int // what is reported for the field; below 0 for none
}

// NewTree returns a tree without paths.
func NewTree() *Tree { return &Tree{root: &node{slot: -1}, nodes: 1} }

// Add adds a path like "usage.prompt_tokens", whose values are reported under slot. Two paths may
// have the same slot.
func (t *Tree) Add(path string, slot int) error {
	steps := strings.Split(path, ".")
	if len(steps) > maxSteps {
		return fmt.Errorf("%q has more than %d names", path, maxSteps)
	}
	at := t.root
	for _, name := range steps {
		if err := checkName(path, name); err != nil {
			return err
		}
		next := at.child([]byte(name))
		if next == nil {
			next = &node{id: t.nodes, slot: -1}
			t.nodes++
			at.names, at.children = append(at.names, []byte(name)), append(at.children, next)
		}
		at = next
	}
	at.slot = slot
	t.slots = max(t.slots, slot+1)
	return nil
}

// checkName checks one name of a path.
func checkName(path, name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("%q is not a path of names like usage.prompt_tokens", path)
	}
	for i := range len(name) {
		if c := name[i]; c < '!' || c > '~' || c == '"' || c == '\\' {
			return fmt.Errorf("%q has %q: a name has visible ASCII characters without quotes and backslashes", path, c)
		}
	}
	return nil
}

// child returns the node below with that name, or nil.
func (n *node) child(name []byte) *node {
	for i, own := range n.names {
		if bytes.Equal(own, name) {
			return n.children[i]
		}
	}
	return nil
}

// Rare returns a text that is in every object with a wanted field, with the quote that ends the
// field's name: what has no such text need not be scanned. It is empty if the names have too little
// in common.
func (t *Tree) Rare() []byte {
	var names [][]byte
	var walk func(*node)
	walk = func(n *node) {
		for i, c := range n.children {
			if c.slot >= 0 {
				names = append(names, n.names[i])
			}
			walk(c)
		}
	}
	walk(t.root)
	if len(names) == 0 {
		return nil
	}
	end := names[0]
	for _, name := range names[1:] {
		for !bytes.HasSuffix(name, end) {
			end = end[1:]
		}
	}
	// A text that begins with a rare character is found faster.
	for i := 0; len(end)-i >= 4; i++ {
		if c := end[i]; c == '_' || 'A' <= c && c <= 'Z' {
			end = end[i:]
			break
		}
	}
	if len(end) < 4 {
		return nil
	}
	return append(bytes.Clone(end), '"')
}
