package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
)

// maxNames bounds the fields of an object, as each is compared with those before it. No object of the API
// has as many.
const maxNames = 64

// names are the fields of the objects that are open at a place in JSON.
type names struct {
	levels []level
	open   [][]byte // the names in the objects of all levels
}

// level is an object or an array.
type level struct {
	object bool
	first  int // index of its first name in names.open
}

// twice refuses duplicate fields: JSON readers differ in which of the two counts. data begins with
// valid JSON. Like package json, it takes names as the same that differ in capital letters alone.
func twice(data []byte) error {
	var levels [8]level
	var open [32][]byte
	n := names{levels: levels[:0], open: open[:0]}
	nameNext := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; c {
		case '{', '[':
			n.levels = append(n.levels, level{c == '{', len(n.open)})
			nameNext = c == '{'
		case '}', ']':
			last := len(n.levels) - 1
			n.open, n.levels = n.open[:n.levels[last].first], n.levels[:last]
		case ',':
			nameNext = len(n.levels) > 0 && n.levels[len(n.levels)-1].object
		case '"':
			end := stringEnd(data, i)
			if nameNext {
				if err := n.add(data[i:end]); err != nil {
					return err
				}
			}
			nameNext = false
			i = end - 1
		}
	}
	return nil
}

// stringEnd returns where the string ends that begins at a quote.
func stringEnd(data []byte, at int) int {
	for i := at + 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}

// add adds a name, which is in quotes, to the innermost object.
func (n *names) add(quoted []byte) error {
	name := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		var text string
		if err := json.Unmarshal(quoted, &text); err != nil {
			return nil // the JSON was read before
		}
		name = []byte(text)
	}
	first := n.levels[len(n.levels)-1].first
	for _, other := range n.open[first:] {
		if bytes.EqualFold(name, other) {
			text := short(string(name))
			return &problem{Status: http.StatusBadRequest, Field: text, Detail: fmt.Sprintf("%q is there twice", text), Fix: "send it once"}
		}
	}
	if len(n.open)-first == maxNames {
		return &problem{Status: http.StatusBadRequest, Detail: fmt.Sprintf("an object has more than %d fields", maxNames), Fix: "the fields are in /openapi.json"}
	}
	n.open = append(n.open, name)
	return nil
}
