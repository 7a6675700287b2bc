// Package asciijson writes JSON in ASCII. encoding/json leaves the characters beyond it as they are, among them
// control characters (U+0080 to U+009F) and those that change the direction of text, which a client may have put
// into a key and which a terminal obeys.
package asciijson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// Marshal returns a value as JSON in ASCII.
func Marshal(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return Escape(text), err
}

// Escape returns a JSON text with all characters beyond ASCII escaped, and DEL. Bytes that are no UTF-8 become
// U+FFFD. A text without any is returned as it is.
func Escape(text []byte) []byte {
	first := bytes.IndexFunc(text, func(r rune) bool { return r >= 0x7f })
	if first < 0 {
		return text
	}
	var b bytes.Buffer
	b.Grow(len(text) + len(text)/4)
	b.Write(text[:first])
	for rest := text[first:]; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch rest = rest[size:]; {
		case r < 0x7f:
			b.WriteByte(byte(r))
		case r > 0xffff:
			one, two := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, one, two)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

// Texts are texts that are written as JSON in ASCII: for a log whose lines are JSON.
type Texts []string

// MarshalJSON implements json.Marshaler.
func (t Texts) MarshalJSON() ([]byte, error) { return Marshal([]string(t)) }
