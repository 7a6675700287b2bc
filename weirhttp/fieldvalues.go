package weirhttp

import (
	"strings"
	"sync"

	"github.com/weirflow/weir"
)

// Sizes of a fieldValues: room for the fields of about 32 responses. A response that is still being
// sent keeps the block in memory that its fields are in, so blocks are small.
const (
	blockText   = 1 << 10 // bytes
	blockValues = 64
	keptTexts   = 64 // of each kind
)

// fieldValues are blocks of memory for the values of header fields: the values of many responses
// cost one allocation together. A list of values belongs to one response alone, and is never used
// again. Texts are kept, and used again for responses that say the same.
type fieldValues struct {
	text strings.Builder
	list []string
	kept [2][keptTexts]leftText // for RateLimit, for X-RateLimit
}

// A leftText is what fields say of a limit of which so much is left.
type leftText struct {
	of        *constants
	remaining int64
	reset     int64 // in seconds; -1 if it is not known
	text      string
	first     int // the length of the first of two values in text
}

// rateLimit returns the value of RateLimit.
func (v *fieldValues) rateLimit(of *constants, d *weir.Decision) string {
	k, known := v.known(0, of, d)
	if !known {
		var buf [64]byte
		k.text = v.newText(appendLeft(append(buf[:0], of.begin...), d))
	}
	return k.text
}

// xRateLimit returns the values of X-RateLimit-Remaining and X-RateLimit-Reset; the latter is empty if it
// is not known.
func (v *fieldValues) xRateLimit(of *constants, d *weir.Decision) (remaining, reset string) {
	k, known := v.known(1, of, d)
	if !known {
		var buf [64]byte
		text := appendInteger(buf[:0], d.Remaining)
		if k.first = len(text); k.reset >= 0 {
			text = appendInteger(text, k.reset)
		}
		k.text = v.newText(text)
	}
	return k.text[:k.first], k.text[k.first:]
}

// known returns the text that is kept for what is left, or the place for it.
func (v *fieldValues) known(kind int, of *constants, d *weir.Decision) (k *leftText, known bool) {
	reset := int64(-1)
	if t, ok := window(d); ok {
		reset = max(seconds(t), 0)
	}
	k = &v.kept[kind][uint64(d.Remaining+reset)%keptTexts]
	if k.of == of && k.remaining == d.Remaining && k.reset == reset {
		return k, true
	}
	k.of, k.remaining, k.reset = of, d.Remaining, reset
	return k, false
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
