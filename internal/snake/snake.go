// Package snake converts Go names to the names of policy files: DelayAfter to delay_after.
package snake

import (
	"strings"
	"unicode"
)

// Case converts a Go name to lower case with an underscore between words. Each capital letter
// starts a word.
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
