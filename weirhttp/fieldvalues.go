package weirhttp

import (
	"strings"
	"sync"
)

// Sizes of a fieldValues: room for the fields of about 16 responses. A response that is still being
// sent keeps the block in memory that its fields are in, so blocks are small.
const (
	blockText   = 1 << 10 // bytes
	blockValues = 32
)

// fieldValues are blocks of memory for the values of header fields: the values of many responses
// cost one allocation together. Each value belongs to one response alone, and is never used again.
type fieldValues struct {
	text strings.Builder
	list []string
}

var freeFieldValues = sync.Pool{New: func() any { return new(fieldValues) }}

// newText returns a copy of a text.
func (v *fieldValues) newText(text []byte) string {
	if len(text) > blockText {
		return string(text)
	}
	if v.text.Cap()-v.text.Len() < len(text) {
		v.text = strings.Builder{}
		v.text.Grow(blockText)
	}
	start := v.text.Len()
	v.text.Write(text)
	return v.text.String()[start:]
}

// newPair is newList of two values.
func (v *fieldValues) newPair(a, b string) []string {
	if cap(v.list)-len(v.list) < 2 {
		v.list = make([]string, 0, blockValues)
	}
	start := len(v.list)
	v.list = append(v.list, a, b)
	return v.list[start : start+2 : start+2]
}

// newList returns a list of values, which has no room for more.
func (v *fieldValues) newList(values ...string) []string {
	if cap(v.list)-len(v.list) < len(values) {
		v.list = make([]string, 0, blockValues)
	}
	start := len(v.list)
	v.list = append(v.list, values...)
	return v.list[start:len(v.list):len(v.list)]
}
