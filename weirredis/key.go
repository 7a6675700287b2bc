package weirredis

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// maxTag is how long a tag may be as it is. A longer one is known by its SHA-256.
const maxTag = 512

// key is where a state is kept: prefix, tag in braces, name, and the key itself where it is not the tag.
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

// names keeps a name from reaching into the key that follows it, or from being taken for one that is followed by a key.
var names = strings.NewReplacer("%", "%25", ":", "%3A")

// escape writes a key such that it can stand between braces: braces, % and ~ as in URLs, nothing at all as ~, and what is very long as ~ and
// its hash.
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

// slots is how many a cluster has.
const slots = 16384

// slot is the slot of a key: 0 where the store is one server.
func (s *Store) slot(key string) uint16 {
	if s.opts.Cluster {
		return slotOf(key)
	}
	return 0
}

// slotOf is the slot of a cluster that a key with a tag is in: CRC-16 (XMODEM) of what is between its braces.
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
