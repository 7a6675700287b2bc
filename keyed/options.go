package keyed

import (
	"fmt"
	"time"

	"github.com/weirflow/weir"
)

// DefaultMaxKeys is the default of Options.MaxKeys.
const DefaultMaxKeys = 1 << 20

// Full says what happens to a new key when MaxKeys other keys are limited.
type Full uint8

const (
	// Evict evicts the least restricted key. That is a key that admits a request, first the one
	// that has used least; without such a key, it is the one that admits again the soonest. An
	// evicted key may be admitted again at once, up to one burst. It is the default, as a flood of
	// new keys cannot lock out the others.
	Evict Full = iota
	// Refuse refuses the new key. RetryAfter is the soonest time at which there is room.
	Refuse
	// Share lets all new keys beyond MaxKeys share one state, or with NewSharing one state for
	// each group of them, until there is room for their own.
	Share
)

// Options are the settings of a Limiter. The zero value is ready to use.
type Options struct {
	// how many keys may be kept at once; default: DefaultMaxKeys, or what MaxBytes allows
	MaxKeys int
	// alternatively, how many bytes the keys may take: 3/4 for states, 3/16 for limiters of keys that
	// wait or reserve, and 1/16 for what these remember of outstanding reservations
	MaxBytes int64
	Full     Full // what happens to a new key beyond that
	// also store the keys, and compare them instead of their hashes; each slot takes their size
	// more
	Keys bool
	Name string // becomes Decision.By
	Top  int    // how many counters Heaviest and MostLimited each have, per core; default: none
	// a power of 2: after the first 20,000 decisions, one of so many is counted for them, with so many times
	// the weight, at random; default: all
	TopOneIn int

	// Clock, WallClock and Timers replace the clocks, for virtual time, as weir.WithClock,
	// weir.WithWallClock and weir.WithTimers do.
	Clock     func() int64
	WallClock func() int64
	Timers    func(time.Duration, func()) weir.Timer
}

// validate returns an error if an option is invalid.
func (o Options) validate() error {
	switch {
	case o.MaxKeys < 0:
		return fmt.Errorf("weir: keyed.Options.MaxKeys: %d is not a number of keys: it must be at least 1, or 0 for %d", o.MaxKeys, DefaultMaxKeys)
	case o.MaxBytes < 0 || o.MaxBytes > 0 && o.MaxBytes < leastBytes:
		return fmt.Errorf("weir: keyed.Options.MaxBytes: %d is too little for a table: it must be at least %d, or 0 for MaxKeys alone", o.MaxBytes, leastBytes)
	case o.Full > Share:
		return fmt.Errorf("weir: keyed.Options.Full: %d is invalid: use Evict, Refuse or Share", o.Full)
	}
	return o.validateTop()
}
