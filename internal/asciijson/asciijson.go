// Package asciijson writes JSON that a terminal can show: all of it is ASCII, so no text that a client has chosen moves
// the cursor, turns the direction of a line, or looks like something else.
package asciijson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// Marshal is json.Marshal, in ASCII.
func Marshal(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return Escape(text), nil
}

// Escape escapes the characters of a JSON text that are not ASCII, and DEL. What it returns means the same, and may be the
// argument.
func Escape(text []byte) []byte {
	plain := func(b byte) bool { return b < 0x7f }
	first := 0
	for first < len(text) && plain(text[first]) {
		first++
	}
	if first == len(text) {
		return text
	}
	b := bytes.NewBuffer(make([]byte, 0, len(text)+64))
	b.Write(text[:first])
	for rest := text[first:]; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		rest = rest[size:]
		switch {
		case r < 0x7f:
			b.WriteByte(byte(r))
		case r > 0xffff:
			one, two := utf16.EncodeRune(r)
			fmt.Fprintf(b, `\u%04x\u%04x`, one, two)
		default:
			fmt.Fprintf(b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}
