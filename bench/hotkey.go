package main

import (
	"math/bits"
	"math/rand/v2"
	"unsafe"
)

// Keys are the text user-XXXXXXXX, with a number in hexadecimal.
const (
	keyHead = "user-"
	keyLen  = len(keyHead) + 8
)

// A hotKey writes one key after another, at random, into the same few bytes: as a server has the key of a request in a buffer it has
// just read, and not spread over as much memory as there are keys. A goroutine has its own.
type hotKey struct {
	text [keyLen]byte
	keys uint64
	seed uint64
}

// newHotKey returns one that writes keys with numbers below so many.
func newHotKey(keys int) *hotKey {
	k := &hotKey{keys: uint64(keys), seed: rand.Uint64()}
	copy(k.text[:], keyHead)
	return k
}

// next returns the next key. It is a view of the buffer, good until the next one: whoever is asked about it must know the key already,
// or would keep a text that changes.
func (k *hotKey) next() string {
	k.seed += 0x9e3779b97f4a7c15 // splitmix64, which is enough of a shuffle here
	z := (k.seed ^ k.seed>>30) * 0xbf58476d1ce4e5b9
	i, _ := bits.Mul64(z^z>>27, k.keys) // z is in no order: the high word of the product is even over the keys
	writeNumber(k.text[len(keyHead):], uint32(i))
	return unsafe.String(&k.text[0], keyLen)
}

// writeNumber writes a number as 8 digits.
func writeNumber(to []byte, n uint32) {
	const digits = "0123456789abcdef"
	_ = to[7]
	for i := range 8 {
		to[i] = digits[n>>28]
		n <<= 4
	}
}

// keyText is the text of a key of its own.
func keyText(i int) string {
	b := append(make([]byte, 0, keyLen), keyHead...)
	b = b[:keyLen]
	writeNumber(b[len(keyHead):], uint32(i))
	return string(b)
}
