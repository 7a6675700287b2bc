package weirkv

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// Bounds of the parts of a key, in bytes. memcached accepts keys of 250 bytes.
const (
	mostName   = 64
	mostKey    = 128
	mostPrefix = 32
)

// key returns where a state is kept: prefix, name and key. All stores accept its letters, digits and
// "/_-:=.". No two pairs of name and key have the same.
func (s *Store) key(name, key string) string {
	return s.o.Prefix + escape(name, mostName) + "/" + escape(key, mostKey)
}

// escape writes a text with letters, digits and "_-": other bytes as = and two digits, and a text that
// would be longer than most as "=." and its SHA-256: no escape is like that.
func escape(text string, most int) string {
	plain := 0
	for plain < len(text) && isPlain(text[plain]) {
		plain++
	}
	if plain == len(text) && plain <= most {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text) && b.Len() <= most; i++ {
		if c := text[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	if b.Len() <= most {
		return b.String()
	}
	sum := sha256.Sum256([]byte(text))
	return "=." + base64.RawURLEncoding.EncodeToString(sum[:])
}

func isPlain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// CheckPrefix returns why keys cannot begin with a prefix; nil if they can.
func CheckPrefix(prefix string) error {
	if len(prefix) > mostPrefix {
		return fmt.Errorf("weirkv: the prefix %.40q has %d bytes: it may have %d", prefix, len(prefix), mostPrefix)
	}
	for i := range len(prefix) {
		if c := prefix[i]; !isPlain(c) && c != ':' && c != '/' {
			return fmt.Errorf("weirkv: the prefix %q has a %q: it may have letters, digits, and the characters /_-: only", prefix, c)
		}
	}
	return nil
}
