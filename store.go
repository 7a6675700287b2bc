package weir

import (
	"context"
	"errors"
	"time"
)

// ErrCharge is found by errors.Is in the error of a Store that is about a charge, and not about the store: a key that holds something else, a
// receipt that it does not know. The store answered, and would answer others. Every other error is one of the store, but for ErrCost.
var ErrCharge = errors.New("weir: the charge cannot be carried out")

// A Store keeps states that several processes share, and decides about them by its own clock. weirredis has one; failover and lease wrap
// any. Whoever has a limit and a store makes a Shared of them: few call a Store themselves.
//
// Implementations are safe for concurrent use.
type Store interface {
	// Do carries out a batch of charges, in their order, in as few trips as the store can: one per node. The decision about batch[i] is
	// put into out[i], which must be as long as the batch, and what else there is to know of it into batch[i] itself.
	//
	// Charges of the same Group above 0 are all made or none: when one is refused, the decisions about the others are what they would have
	// been without a charge. On stores that spread keys over nodes a group is one step where its keys lie together, and otherwise charged in
	// order and given back.
	//
	// Once it has returned, the store touches neither slice any more, whatever still goes on.
	//
	// The error is for what went wrong: that of the first charge that has an Err, or one for all of the batch. What was not answered may have
	// been charged or not, but once. See ErrCharge for whose fault it is. Do returns soon after the context has ended.
	Do(ctx context.Context, batch []Charge, out []Decision) error

	// Close ends what the store has started. It does not close a client that was handed in.
	Close() error
}

// A Charge is one question to a Store. The first fields are the question, and the last ones part of the answer.
type Charge struct {
	Name  string // of the limit; part of the shared key, so that two limits never share a state
	Key   string // whom it is for: any bytes
	Limit Limit  // a change of it keeps what has been used, when the key is next asked about
	Cost  int64  // of an OpSettle, what it really cost
	Op    Op
	Group int // charges of the same group above 0 are all made or none; OpTake alone may be in one

	Within time.Duration // OpReserve: the longest delay that is acceptable; below 0: however long
	Keep   bool          // OpTake: whether a Receipt is wanted

	Receipt Receipt       // of OpReserve, OpTakeSome, and OpTake with Keep; for OpSettle it is part of the question
	Delay   time.Duration // OpReserve: when it may go
	Taken   int64         // OpTakeSome: how many
	Err     error         // what went wrong with this charge; see ErrCharge
}

// An Op is what a Charge asks for.
type Op uint8

// The operations of a Store.
const (
	OpTake     Op = iota // charge the cost if it may go now
	OpPeek               // answer as OpTake, and charge nothing
	OpReserve            // charge the cost ahead, if it may go within Within
	OpSettle             // put the actual cost in place of what a Receipt was for: give back what was too much, charge what was too little
	OpTakeSome           // charge as much of the cost as may go now, 0 or more; the answer is Allowed where that is at least 1
	OpCarry              // carry the state over to the limit now, where it was kept under another one, and answer as OpPeek of 0
	OpReset              // forget the key: its state is untouched again
)

// String returns the operation's name.
func (o Op) String() string {
	names := [...]string{"take", "peek", "reserve", "settle", "take some", "carry", "reset"}
	if int(o) < len(names) {
		return names[o]
	}
	return "unknown"
}

// A Receipt is what a Store remembers a charge by, so that it can be given back: bytes that only the store reads. It belongs to the limit under
// which the charge was made: after a change of the limit nothing is given back. The same receipt must not be settled twice.
type Receipt string
