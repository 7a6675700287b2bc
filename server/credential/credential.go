// Package credential knows the tokens and passwords that everybody guesses.
package credential

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
)

// samples are texts of the documentation and of habit that protect nothing.
func samples() []string {
	return []string{"test", "token", "password", "changeme", "TOKEN", "$TOKEN", "PASSWORD", "$PASSWORD"}
}

// Check returns what is wrong with a token or a password that has this hash: it is empty, as that of an
// unset variable of a shell is, or a sample of the documentation.
func Check(hash [sha256.Size]byte) error {
	for _, empty := range []string{"", "\n", "\r\n"} {
		if hash == sha256.Sum256([]byte(empty)) {
			return errors.New("it is the hash of an empty text: was the variable that you hashed set?")
		}
	}
	all := samples()
	i := slices.IndexFunc(all, func(text string) bool {
		return hash == sha256.Sum256([]byte(text)) || hash == sha256.Sum256([]byte(text+"\n"))
	})
	if i >= 0 {
		return fmt.Errorf("it is the hash of the sample %q, which everybody knows: hash a text of your own, from openssl rand -hex 32", all[i])
	}
	return nil
}
