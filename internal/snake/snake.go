// Package snake writes Go names as files do.
package snake

import (
	"strings"
	"unicode"
)

// Case writes a Go name in small letters, with an underscore before each word but the first: DelayAfter as delay_after. Each capital begins a word.
func Case(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
