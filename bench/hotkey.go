package main

import (
	"math/bits"
	"math/rand/v2"
	"sort"
	"sync/atomic"
	"unsafe"
)

// Keys are the text user-XXXXXXXX, with a number in hexadecimal.
const (
	keyHead = "user-"
	keyLen  = len(keyHead) + 8
)

// A keySource determines which keys are used. All subjects of a contest use the same.
type keySource struct {
	keys  int      // known keys have numbers below this
	ranks []uint32 // drawn beforehand; nil: all keys are equally frequent
	flood bool     // 9 of 10 keys are new
	used  atomic.Uint64
}

// zipfDraws is how many numbers are drawn beforehand. They are read sequentially, and so use only a
// few cache lines.
const zipfDraws = 1 << 20

// newZipf returns a source in which the k-th key is 1/k as frequent as the first. (math/rand's
// generator needs an exponent above 1.)
func newZipf(keys int) *keySource {
	sums, sum := make([]float64, keys), 0.0
	for i := range sums {
		sum += 1 / float64(i+1)
		sums[i] = sum
	}
	r := rand.New(rand.NewPCG(1, 1)) // the same in every run
	s := &keySource{keys: keys, ranks: make([]uint32, zipfDraws)}
	for i := range s.ranks {
		s.ranks[i] = uint32(min(sort.SearchFloat64s(sums, r.Float64()*sum), keys-1))
	}
	return s
}

// start returns the keys for a goroutine that makes n calls.
func (s *keySource) start(n int) *hotKey {
	k := &hotKey{keys: uint64(s.keys), seed: rand.Uint64(), ranks: s.ranks, flood: s.flood}
	if s.ranks != nil {
		k.at = int(k.seed % uint64(len(s.ranks)))
	}
	if s.flood {
		k.first = uint32(s.keys) + uint32(s.used.Add(uint64(n))-uint64(n))
	}
	copy(k.text[:], keyHead)
	return k
}

// A hotKey writes one key after another into the same few bytes. A server has the key of a request
// in such a buffer, too, and not spread over as much memory as there are keys. Each goroutine has
// its own.
type hotKey struct {
	text  [keyLen]byte
	keys  uint64
	seed  uint64
	ranks []uint32
	at    int

	flood  bool
	unseen bool   // the current key is new
	first  uint32 // the number of the next new key
}

// next returns the next key, which is valid until the following call.
func (k *hotKey) next() []byte {
	var i uint32
	if k.ranks != nil {
		i = k.ranks[k.at]
		if k.at++; k.at == len(k.ranks) {
			k.at = 0
		}
	} else {
		k.seed += 0x9e3779b97f4a7c15 // splitmix64, which is enough of a shuffle here
		z := (k.seed ^ k.seed>>30) * 0xbf58476d1ce4e5b9
		z ^= z >> 27
		// z has no order, so the high word of the product is uniform over the keys
		n, rest := bits.Mul64(z, k.keys)
		i = uint32(n)
		if k.flood {
			tenth, _ := bits.Mul64(rest, 10)
			if k.unseen = tenth != 0; k.unseen {
				i = k.first
				k.first++
			}
		}
	}
	writeNumber(k.text[len(keyHead):], i)
	return k.text[:]
}

// string is like next, for a table that takes a string and keeps it if it is new. A known key is a
// view of the buffer, which is the lowest possible cost. A new key is a copy.
func (k *hotKey) string() string {
	text := view(k.next())
	if k.unseen {
		return string([]byte(text))
	}
	return text
}

// view returns a text that changes with the buffer, for callers that do not keep it.
func view(key []byte) string { return unsafe.String(unsafe.SliceData(key), len(key)) }

// writeNumber writes a number as 8 digits.
func writeNumber(to []byte, n uint32) {
	const digits = "0123456789abcdef"
	_ = to[7]
	for i := range 8 {
		to[i] = digits[n>>28]
		n <<= 4
	}
}

// A keyWriter writes keys in the order of their numbers into a buffer.
type keyWriter [keyLen]byte

func (w *keyWriter) key(i int) []byte {
	copy(w[:], keyHead)
	writeNumber(w[len(keyHead):], uint32(i))
	return w[:]
}
