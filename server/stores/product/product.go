// Package product says what the server needs to know of a product that limits can be kept in, such
// as a database. The table of package stores has one line for each; everything else deals with a
// Product and never with its name.
package product

import (
	"context"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/room"
)

// A Product opens stores at the URLs of its schemes. Open is required, and so is one scheme; a nil
// function means that there is nothing to say.
type Product struct {
	Schemes []string // what its URLs begin with, before "://", in lower case
	Example string   // a URL that can be pasted

	// Open opens the store that a policy describes. A server that cannot be reached yet is no
	// error. The error never holds a password. tag is nil where every key is its own tag; see
	// policy.Policy.Tags.
	Open func(def policy.Store, tag func(name, key string) string) (Store, error)

	// a URL as one process opens it, which was told which node of the URL it is, or ""; nil: all
	// processes open the same
	At func(url, node string) (string, error)
	// why Open would fail, without opening anything; nil: Open begins nothing that others notice
	Try func(def policy.Store) error
	// what is unwise about the files that the URL names; a store opens nevertheless. nil: nothing ever is
	Warn func(def policy.Store) []Problem
	// how many nodes the URL says that there are, 0 if it does not; nil: it never does
	Nodes func(url string) int
	// what is wrong with the URL and the prefix, without a connection
	Check func(def policy.Store) []Problem
	// where the URL leads; nil: each URL is a place of its own
	Locate func(url string) policy.Place
	// why a limit cannot be kept; nil: every valid limit can
	Keeps func(l weir.Limit) error
	// Do returns when its context ends, whatever the server does, so that calls need no goroutine
	// of their own
	Prompt bool
	// how long a call may take if the policy does not say; 0: the default of package failover
	Deadline time.Duration
	Rooms    bool // the store keeps waiting rooms: it is a RoomKeeper
	// the store keeps API keys: it is a RecordKeeper
	Records bool
}

// A Problem is what is wrong with one setting of a store.
type Problem struct{ Field, Message, Fix string }

// WrongURL says what is wrong with a URL. Some errors only say how it is written.
func WrongURL(err error, example string) Problem {
	reason := err.Error()
	if of, rest, ok := strings.Cut(reason, ": "); ok && strings.HasPrefix(of, "weir") {
		reason = rest // without the name of the package
	}
	if strings.HasPrefix(reason, "write the URL like ") {
		return Problem{Field: "url", Message: "it is no URL of this store", Fix: reason}
	}
	return Problem{Field: "url", Message: reason, Fix: "write it like " + example}
}

// A Store is open. What else it can do is found by its methods: failover.Pinger, failover.Beater,
// Warmer, Clocked and RoomKeeper.
type Store interface {
	weir.Store

	// Ready waits until the store is connected. The error says why it is not when the context ends.
	Ready(ctx context.Context) error

	// Connected reports whether Ready would return at once.
	Connected() bool
}

// An Adopter is an open store which runs something in this process that only one store could run.
type Adopter interface {
	// Adopt opens a store that uses the same; nil if it needs something else.
	Adopt(def policy.Store) (Store, error)
}

// A Clocked store decides by the clock of a server, which may step back.
type Clocked interface {
	// ClockSteps returns how many keys went on by a clock of their own because the server's had
	// stepped back, and when the latest one did; zero for never.
	ClockSteps() (keys uint64, last time.Time)

	// OnClockStep sets what is called once for each step back. It must not wait, or call the store.
	OnClockStep(tell func(behind time.Duration))
}

// A Warner finds out while it works that something is not as it should be, such as another node with another secret.
type Warner interface {
	// OnWarning sets what is called with it. It must not wait, or call the store.
	OnWarning(tell func(text string))
}

// A Remembering store keeps outstanding reservations in its states, so that giving them back is exact.
type Remembering interface {
	// Inexact returns how many reservations were too many for that.
	Inexact() uint64
}

// A Warmer is a store that can be readied for limits before it is asked about them, so that the
// first request is as fast as the others. Each group is limits that one call will be about.
type Warmer interface {
	Warm(ctx context.Context, groups ...[]weir.Limit) error
}

// A RecordKeeper is a store that also keeps short texts under names. Calls return when their context
// ends, and fail once the store is closed.
type RecordKeeper interface {
	// Record returns a text; found is false without one. An error with found says that there is something else
	// under the name.
	Record(ctx context.Context, name string) (text string, found bool, err error)

	// SetRecord keeps a text, for a while, or without an end if expires is 0.
	SetRecord(ctx context.Context, name, text string, expires time.Duration) error

	// RemoveRecord removes a text, and reports whether there was one.
	RemoveRecord(ctx context.Context, name string) (found bool, err error)

	// Records calls each with the names that begin with a prefix, in no order, in steps of bounded
	// size. A name may come twice, and one that is added or removed meanwhile may be missing. An error
	// of each ends it.
	Records(ctx context.Context, prefix string, each func(name string) error) error
}

// A RoomKeeper is a store that keeps the queues of waiting rooms.
type RoomKeeper interface {
	// Line opens the queue of the room of that name, which all gateways with this store share. It
	// is closed before the store.
	Line(name string, s room.Spec) (room.Queue, error)
}
