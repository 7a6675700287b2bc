package weir

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrCharge means that a Store could not carry out one charge: the key holds another type, or the
// store does not know the receipt. The store itself works. errors.Is finds ErrCharge in such
// errors. Every other error, except ErrCost, means that the store failed or is unavailable.
var ErrCharge = errors.New("weir: the charge cannot be carried out")

// ErrExpired means that a reservation in a Store was settled after the store had dropped it: it stays
// charged as it was. It is an ErrCharge.
var ErrExpired = fmt.Errorf("%w: the reservation has expired, and stays charged as it was", ErrCharge)

// A Store keeps states that several processes share, and decides about them by its own clock.
// Packages weirredis, weirsql, weirkv and weirclient implement it; failover and lease wrap any Store.
// Most callers use a Shared and never call a Store directly.
//
// Implementations are safe for concurrent use.
type Store interface {
	// Do carries out a batch of charges, in order, in as few round trips as the store can: one per
	// node. It writes the decision about batch[i] to out[i], and other results to the fields of
	// batch[i]. out must be as long as batch.
	//
	// Charges with the same Group above 0 are all made or none. If one is refused, the decisions
	// about the others are what they would have been without a charge. On stores that spread keys
	// over nodes, a group is one step if its keys are on one node; otherwise it is charged in
	// order, and given back on a refusal.
	//
	// Once Do has returned, the store touches neither slice any more, even if work continues.
	//
	// The error is that of the first charge that has an Err, or one for the whole batch. A charge
	// without a decision was made at most once. See ErrCharge for which errors are the store's. Do
	// returns soon after the context has ended.
	Do(ctx context.Context, batch []Charge, out []Decision) error

	// Close stops what the store has started. It does not close a client that was passed to the
	// store.
	Close() error
}

// A Keeper is a Store that can tell before the first call why it cannot keep a limit. NewShared and
// Shared.SetLimit return that error.
type Keeper interface {
	Keeps(l Limit) error
}

// A Charge is one operation on a Store. The first fields are the input, and the last fields are
// part of the result.
type Charge struct {
	// the name of the limit; part of the shared key, so that two limits never share a state
	Name  string
	Key   string // the key to charge, like a user: any bytes
	Limit Limit  // a new one begins with what has been used; two that callers use at once each have a state
	// the customer's plan, for a limit with parameters by plan: a fallback without the store keeps the
	// states of each plan apart
	Plan string
	// the limit's parameters come with each call, from a client, and any number of different ones are in
	// use: a fallback without the store keeps the keys as times, and no record of each limit. Only for
	// OpTake, OpPeek and OpReset of a TokenBucket, outside of groups
	EachCall bool
	Cost     int64 // of an OpSettle, the actual cost
	Op       Op
	Group    int // charges of the same group above 0 are all made or none; only for OpTake

	Within time.Duration // OpReserve: the longest acceptable delay; below 0, any delay
	Keep   bool          // OpTake: return a Receipt
	// OpReserve, and OpTake with Keep: OpSettle will replace the cost by the actual one. A store may remember
	// the charge until then, so that what was estimated too high comes back in full; without Estimate it
	// remembers an OpReserve until its work may go
	Estimate bool
	Usage    bool // OpPeek: return Used

	// OpSettle: a text that no other settlement has. A store whose replies can be lost carries out one settle
	// with it, and for OnceFor ignores others, whatever their cost: so a settle can be repeated after an error
	// that leaves open whether it was carried out
	Once    string
	OnceFor time.Duration

	// result of OpReserve, OpTakeSome, and OpTake with Keep; input of OpSettle. An OpSettle with an empty one
	// charges the whole cost, into debt if need be; a store that cannot returns an ErrCharge
	Receipt Receipt
	Delay   time.Duration // OpReserve: how long to delay the work
	Taken   int64         // OpTakeSome: how many units were charged
	// OpPeek with Usage: how much the key has used. Costs that are known only afterwards can use more than
	// the limit. 0 from a fallback, which does not know
	Used int64
	Err  error // what went wrong with this charge; see ErrCharge
}

// An Op is the operation of a Charge.
type Op uint8

// The operations of a Store.
const (
	OpTake    Op = iota // charge the cost if it may go now
	OpPeek              // decide as OpTake does, and charge nothing
	OpReserve           // charge the cost ahead, if the delay is at most Within
	// replace the charge of a Receipt by the actual cost: give back or charge the difference; of a cost
	// beyond what the store can count, as much as it can
	OpSettle
	// charge as much of the cost as may go now, 0 or more; Allowed if that is at least 1. A cost of 0 or
	// below is decided as by OpTake
	OpTakeSome
	// carry the state over now if it was kept under another limit, and decide as OpPeek of 0
	OpCarry
	OpReset // make the key's state unused again
	// lower what the key has used by the cost, at most to nothing, and decide as OpPeek of 0; only of a
	// FixedWindow. Work that can still be settled is given back by OpSettle
	OpGiveBack
)

// String returns the operation's name.
func (o Op) String() string {
	names := [...]string{"take", "peek", "reserve", "settle", "take some", "carry", "reset", "give back"}
	if int(o) < len(names) {
		return names[o]
	}
	return "unknown"
}

// A Receipt identifies a charge in a Store, so that it can be settled or given back. Only the store
// reads its bytes. Each version of the limit gets back what it was charged; a version that began after the
// charge gets nothing back. A receipt must not be settled twice, except by a settle that is repeated
// with the same Once.
type Receipt string
