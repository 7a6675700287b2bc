package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"strings"
)

// maxClients is how many clients a report tells apart; of more, a sample is counted.
const maxClients = 512 << 10

// clientTable keeps a value for each client, of at most max clients. When there are more, it keeps those
// with a hash that ends with a zero bit, then with two, and so on: a sample in which each client is as
// likely as any other, however many requests it has sent.
type clientTable[T any] struct {
	max      int
	halvings int // how many last bits of a kept hash are zero
	all      map[string]*T
}

func newClientTable[T any](most int) *clientTable[T] {
	return &clientTable[T]{max: most, all: make(map[string]*T)}
}

// longestClient is how many bytes of a client's name are kept: more than an address or a hash of a key has.
const longestClient = 256

// boundedName returns a client's name, or its beginning and a hash of a long one: the first field of a line may
// be as long as the line.
func boundedName(client string) string {
	if len(client) <= longestClient {
		return client
	}
	sum := sha256.Sum256([]byte(client))
	return strings.ToValidUTF8(client[:64], "") + "..." + hex.EncodeToString(sum[:16])
}

// of returns a client's value; nil if the client is not in the sample.
func (t *clientTable[T]) of(client string) *T {
	client = boundedName(client)
	if c, ok := t.all[client]; ok {
		return c
	}
	if t.halvings > 0 && !t.samples(client) {
		return nil
	}
	for len(t.all) >= t.max {
		t.halvings++
		for other := range t.all {
			if !t.samples(other) {
				delete(t.all, other)
			}
		}
		if !t.samples(client) {
			return nil
		}
	}
	c := new(T)
	t.all[strings.Clone(client)] = c
	return c
}

// samples reports whether a client is in the sample. Its hash is one that nobody can choose names for,
// and that is the same in each run.
func (t *clientTable[T]) samples(client string) bool {
	sum := sha256.Sum256([]byte(client))
	return bits.TrailingZeros64(binary.LittleEndian.Uint64(sum[:])) >= t.halvings
}

// scaled returns how many clients there were, of n in the sample.
func (t *clientTable[T]) scaled(n int) int64 { return int64(n) << t.halvings }

// The windows of time for which peaks are counted, in nanoseconds. They begin at full seconds, minutes and
// hours of UTC.
var peakWindows = [...]int64{1e9, 60e9, 3600e9}

// peakNames are the names of peakWindows.
var peakNames = [...]string{"second", "minute", "hour"}

// activity is how often a client came.
type activity struct {
	requests int64
	last     int64
	count    [len(peakWindows)]uint32 // of the window that last is in
	peak     [len(peakWindows)]uint32 // the most in a window
}

// add counts a request.
func (a *activity) add(at int64) {
	if at-a.last >= 1e9 || at/1e9 != a.last/1e9 || a.requests == 0 { // nearly always none of the windows ends
		for i, window := range peakWindows {
			if floorDiv(at, window) != floorDiv(a.last, window) || a.requests == 0 {
				a.count[i] = 0
			}
		}
	}
	for i := range a.count {
		a.count[i]++
		a.peak[i] = max(a.peak[i], a.count[i])
	}
	a.requests++
	a.last = at
}

// floorDiv divides, and rounds down also before 1970.
func floorDiv(n, by int64) int64 {
	if n < 0 {
		return (n+1)/by - 1
	}
	return n / by
}

// clientCount is what a report knows of a client.
type clientCount struct {
	activity
	limited, delayed int64
	used             float32  // the most of a limit that it has used, from 0 to 1
	by               []uint64 // which limits refused it, which would have as shadows, and on which routes it was refused; a set of bits
}
