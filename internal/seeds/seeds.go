// Package seeds is the one source of random numbers of all tests, in all modules.
//
// A plain go test and `make test` use Fixed, so that each run makes the same choices. `make long`
// draws a seed, prints it, and sets $WEIR_SEED to it; with the same value the same test makes the
// same choices again. Two things stay random: the order in which the Go runtime schedules
// goroutines, and what the product itself draws (hash seeds, jitter, keys of certificates), on
// which no test depends.
//
// Only tests import this package; imports_test.go holds them to drawing from nothing else.
package seeds

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
)

// Fixed is the seed unless $WEIR_SEED says otherwise. It is not 0, which rapid takes for "draw
// one".
const Fixed uint64 = 1

// Seed returns the seed of this run. It panics where $WEIR_SEED is not a number above 0: a typing
// error would otherwise look like a run with the seed that was meant.
func Seed() uint64 {
	text := os.Getenv("WEIR_SEED")
	if text == "" {
		return Fixed
	}
	seed, err := strconv.ParseUint(text, 10, 63)
	if err != nil || seed == 0 {
		panic("seeds: $WEIR_SEED is " + strconv.Quote(text) + ": write a number from 1 to 2^63-1")
	}
	return seed
}

// Text is Seed for a flag, as in flag.Set("rapid.seed", seeds.Text()).
func Text() string { return strconv.FormatUint(Seed(), 10) }

// Of returns random numbers that depend on the seed and a name alone, such as that of a test: what
// one test draws is then the same whichever tests run beside it. It is safe for concurrent use;
// callers that run side by side then get the numbers in any order.
func Of(name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(&locked{source: rand.NewPCG(Seed(), h.Sum64())})
}

// locked is a source for several goroutines. A rand.Rand keeps no state beside its source.
type locked struct {
	mu     sync.Mutex
	source rand.Source
}

func (l *locked) Uint64() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.source.Uint64()
}
