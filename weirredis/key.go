package weirredis

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
)

// onceKey returns the key that says that a settlement was carried out, in the slot of its state. No name of a
// limit has a % there.
func onceKey(state, once string) string {
	return state[:strings.IndexByte(state, '}')+1] + ":%settled:" + once
}

// maxTag is how long a tag may be, in bytes. A longer one is replaced by its SHA-256.
const maxTag = 512

// key returns the key of a state in Redis: prefix, tag in braces, name, and the key itself unless
// it is the tag.
func (s *Store) key(name, key string) string {
	tag := key
	if s.opts.Tag != nil {
		tag = s.opts.Tag(name, key)
	}
	at := s.opts.Prefix + "{" + escape(tag) + "}:" + names.Replace(name)
	if tag != key {
		at += ":" + escape(key)
	}
	return at
}

// names escapes a name, so that a name with a colon cannot be mistaken for a name and a key.
var names = strings.NewReplacer("%", "%25", ":", "%3A")

// escape encodes a key for use between braces: braces, % and ~ as in URLs, the empty key as ~, and
// a very long one as ~ and its hash.
func escape(key string) string {
	switch {
	case key == "":
		return "~"
	case len(key) > maxTag:
		sum := sha256.Sum256([]byte(key))
		return "~" + hex.EncodeToString(sum[:])
	case !strings.ContainsAny(key, "{}%~"):
		return key
	}
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; c {
		case '{', '}', '%', '~':
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// slots is how many slots a cluster has.
const slots = 16384

// slot returns the slot of a key; 0 on a single server.
func (s *Store) slot(key string) uint16 {
	if s.opts.Cluster {
		return slotOf(key)
	}
	return 0
}

// slotOf returns the cluster slot of a key with a tag: CRC-16 (XMODEM) of the text between its
// braces.
func slotOf(key string) uint16 {
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}")
	crc := uint16(0)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % slots
}

// pattern matches the Redis keys of all states of a name, and some others; see keyOf.
func (s *Store) pattern(name string) string {
	return globs.Replace(s.opts.Prefix) + "{*}:" + globs.Replace(names.Replace(name)) + "*"
}

// globs escapes a text for a pattern of Redis.
var globs = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// keyOf returns the key of a state of a name, of its Redis key; ok is false for any other Redis key, and for
// a key that is so long that Redis has its hash.
func (s *Store) keyOf(name, at string) (key string, ok bool) {
	rest, found := strings.CutPrefix(at, s.opts.Prefix+"{")
	if !found {
		return "", false
	}
	tag, rest, _ := strings.Cut(rest, "}:")
	text := tag
	if of, further, with := strings.Cut(rest, ":"); with {
		rest, text = of, further
	}
	if rest != names.Replace(name) {
		return "", false
	}
	if key, ok = unescape(text); !ok {
		return "", false
	}
	return key, s.key(name, key) == at
}

// unescape is the opposite of escape.
func unescape(text string) (key string, ok bool) {
	switch {
	case text == "~":
		return "", true
	case strings.HasPrefix(text, "~"):
		return "", false
	}
	key, err := url.PathUnescape(text)
	return key, err == nil
}
