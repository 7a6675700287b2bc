// Package httpsyntax checks and splits parts of HTTP messages, for every package that parses them.
package httpsyntax

import (
	"bytes"
	"strings"
)

// Text is what messages are read from and into.
type Text interface{ string | []byte }

// Classes of bytes.
const (
	inToken  = 1 << iota
	inName   // of a host
	inTarget // of a request target
	inPath   // of a path, as RFC 3986 has it
	isUsual  // letters, digits and dashes
)

// IsToken reports whether a text is a token of RFC 9110, like a method or the name of a field.
func IsToken[T Text](s T) bool { return len(s) > 0 && all(s, inToken) }

// IsTokenByte reports whether a byte may be in a token.
func IsTokenByte(c byte) bool { return classes[c]&inToken != 0 }

// CutLine cuts the first line off a text. A line ends in CRLF, and has neither a CR nor an LF in
// it: net/http also takes an LF alone, with which a message could be read in two ways.
func CutLine[T Text](s T) (line, rest T, ok bool) {
	end := indexByte(s, '\n')
	if end < 1 || s[end-1] != '\r' {
		return line, s, false
	}
	line = s[:end-1]
	return line, s[end+1:], indexByte(line, '\r') < 0
}

func indexByte[T Text](s T, c byte) int {
	switch v := any(s).(type) {
	case string:
		return strings.IndexByte(v, c)
	case []byte:
		return bytes.IndexByte(v, c)
	}
	return -1
}

func all[T Text](s T, class byte) bool {
	for i := range len(s) {
		if classes[s[i]]&class == 0 {
			return false
		}
	}
	return true
}

// classes says what a byte may be a part of. It is never changed.
var classes = func() (c [256]byte) {
	for b := range 256 {
		letter := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
		if letter || b < 0x80 && strings.ContainsRune("!#$%&'*+-.^_`|~", rune(b)) {
			c[b] |= inToken
		}
		if letter || b == '-' {
			c[b] |= isUsual
		}
		if letter || b < 0x80 && strings.ContainsRune("-._~", rune(b)) {
			c[b] |= inName
		}
		if b > ' ' && b != 0x7f && b != '#' && b != '\\' {
			c[b] |= inTarget
		}
		if letter || b < 0x80 && strings.ContainsRune("-._~!$&'()*+,;=:@[]%/", rune(b)) {
			c[b] |= inPath
		}
	}
	return c
}()
