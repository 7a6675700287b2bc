package httpapi

import (
	"bytes"
	"net/http"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// notText refuses JSON with strings that are no text: bytes that are not UTF-8, and escaped halves of
// surrogate pairs. Package json reads each of them as the same character, U+FFFD, so that different keys
// would share a count. data begins with valid JSON.
func notText(data []byte) error {
	if !utf8.Valid(data) {
		return &problem{Status: http.StatusBadRequest, Detail: "the body is not UTF-8", Fix: textFix}
	}
	for i := bytes.IndexByte(data, '\\'); i >= 0 && i+1 < len(data); {
		i += 2 // behind the escaped character
		if unit := escapedUnit(data[i-2:]); utf16.IsSurrogate(unit) {
			if utf16.DecodeRune(unit, escapedUnit(data[i+4:])) == utf8.RuneError {
				return &problem{Status: http.StatusBadRequest, Detail: "a string has half of a surrogate pair: " + string(data[i-2:i+4]), Fix: textFix}
			}
			i += 10 // the rest of the pair
		}
		next := bytes.IndexByte(data[i:], '\\')
		if next < 0 {
			return nil
		}
		i += next
	}
	return nil
}

const textFix = "send keys that are text; write other bytes as text, such as in Base64"

// escapedUnit returns the UTF-16 code unit of an escape like \ud83d at the beginning of data; 0 for none.
func escapedUnit(data []byte) rune {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}
