// Package snake converts Go names to the names of policy files: DelayAfter to delay_after.
package snake

import (
	"strings"
	"unicode"
)

// Case converts a Go name to lower case with an underscore between words. A capital letter starts a word; of
// several in a row, which are an abbreviation, the first one does, and the last one if a small letter follows.
func Case(name string) string {
	var b strings.Builder
	letters := []rune(name)
	for i, r := range letters {
		if i > 0 && unicode.IsUpper(r) && (!unicode.IsUpper(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
