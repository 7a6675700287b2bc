// Package weirkv is a weir.Store over any store of keys and values that can compare and swap: memcached,
// etcd, NATS JetStream and others, by drivers of a few lines. Such a store computes nothing. The rules run
// here, between reading a key and writing it back, which succeeds if nobody else wrote it meanwhile.
//
// # Round trips
//
// A decision that charges takes two round trips: one to read, one to write. It takes one if this Store wrote
// the key last and the driver tells revisions. Callers of one key that come while a round trip is in flight
// are decided together in the next one, in the order of their arrival: however many they are, that is one
// write. A refusal writes nothing. A driver that is a Taker has its store decide about plain takes from buckets, in
// one round trip.
//
// # Guarantees
//
// Every limit that weirredis keeps can be kept, with the same bounds. What differs:
//
//   - The clock is that of the nodes, in microseconds: with clocks that differ by at most s, a bucket
//     admits at most Burst + Rate*(D+s) in a time D. A driver that is a Clocked corrects the clock by that
//     of its server.
//   - The states remember outstanding reservations as a weir.Limiter does, so giving one back is exact, up to
//     a bound; see Options.
//   - A group over several keys is charged in order of its keys, and given back on a refusal. Other callers
//     may be refused by a charge that is given back.
//   - A write without a reply is recognised when the key is read again: a charge is made at most once.
//
// A key with two versions of its limit, as during a rolling deploy, has a state for each of them.
package weirkv

import (
	"context"
	"errors"
	"time"
)

// A KV is the driver of a store: all that weirkv needs of it. It is safe for concurrent use. Calls
// return soon after their context has ended, or after a timeout of the driver's own.
type KV interface {
	// Get reads a key. It returns what every CompareAndSwap before it has written. A key that does not
	// exist, or has expired, is the zero Item.
	Get(ctx context.Context, key string) (Item, error)

	// CompareAndSwap writes value if the key still has the given revision; 0: if it does not exist. The
	// store may drop the key after ttl, and not before. swapped is false, without an error, if the key
	// has another revision. next is the new revision; 0 if the store does not tell it. After an error,
	// the value may have been written or not, also later.
	CompareAndSwap(ctx context.Context, key string, revision uint64, value []byte, ttl time.Duration) (next uint64, swapped bool, err error)

	// Close releases what the driver has opened.
	Close() error
}

// An Item is the value of a key. Each write gives it another revision above 0.
type Item struct {
	Value    []byte
	Revision uint64
}

// An Updater is a driver that can keep others from writing a key between a read and a write of it, as a
// database in this process can. Where another node was faster, the decision is then made anew within the
// write: no write is repeated.
type Updater interface {
	// Update reads a key and writes the value that next returns for it, if next says so. Nobody else writes the
	// key in between. It returns the new revision. next is called at most once, does not wait, and does not
	// run any more when Update has returned. After an error, the value may have been written or not.
	Update(ctx context.Context, key string, next func(Item) (value []byte, ttl time.Duration, write bool)) (revision uint64, err error)
}

// A PatientUpdater is an Updater that takes longer than a CompareAndSwap. It is asked where another node has just
// been faster than a CompareAndSwap.
type PatientUpdater interface {
	Updater
	Patient()
}

// A Clocked is a driver of a store that tells the time. The node's clock is corrected by it.
type Clocked interface {
	Now(ctx context.Context) (time.Time, error)
}

// ErrContended is the error of a charge whose key was written by others between each of the reads and
// writes, as often as Options.Attempts. errors.Is finds it.
var ErrContended = errors.New("weirkv: other nodes wrote the key between each read and write")

// ErrClosed is the error of a closed Store.
var ErrClosed = errors.New("weirkv: the store is closed")

// Options are the settings of a Store. The zero value is ready to use.
type Options struct {
	// Prefix begins all keys: letters, digits, and any of "/_-:". Default: "weir:".
	Prefix string

	// Grace is how long a state is kept after it is idle: steps back of a clock by no more than that
	// give nothing away. Default: 0.
	Grace time.Duration

	// Skew is how far the clocks of nodes may be apart without a correction. Within it, a node whose
	// clock is behind that of a key evaluates the key as of its own time, which admits no more. A node
	// that is further behind goes on by the key's clock, which is never ahead of the fastest clock.
	// Default: 1 s.
	Skew time.Duration

	// Timeout bounds how long callers of a key wait for the store, retries included. Callers usually
	// have earlier deadlines. Default: 2 s.
	Timeout time.Duration

	// Attempts bounds how often a key is written again because others wrote it meanwhile. Default: 100.
	Attempts int

	// Remember bounds the memory for outstanding reservations of one key, in bytes. Beyond it, giving
	// one back may give back less. Default: 8 KiB, for some 150 reservations.
	Remember int

	// Clock replaces the node's clock: nanoseconds since 1970. A KV that is a Clocked corrects only the
	// node's own. Default: the node's.
	Clock func() int64

	keepBrief bool // for tests: takes that are not settled are remembered for as long as reservations
	fewOnce   bool // for tests: a value holds one settlement with a Once
}

func (o Options) withDefaults() Options {
	if o.Prefix == "" {
		o.Prefix = "weir:"
	}
	if o.Skew == 0 {
		o.Skew = time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Second
	}
	if o.Attempts == 0 {
		o.Attempts = 100
	}
	if o.Remember == 0 {
		o.Remember = 8 << 10
	}
	return o
}
