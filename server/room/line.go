package room

import (
	"context"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// A Line is who waits for a room and who is inside, in order. Where it is kept is behind this seam: in memory, or in a store that several
// gateways share. It is safe for concurrent use.
type Line interface {
	// Ask says what becomes of a visitor, and lets in whoever's turn it is. The error is that no answer could be had: the visitor may or may
	// not have been noted. Asking again is harmless.
	Ask(ctx context.Context, q Question) (Answer, error)

	// Close waits for questions under way, which end at their deadlines. Later ones are refused.
	Close() error
}

// Times of a Line are microseconds since the Unix epoch by its own clock, which only goes forward.

// A Question is what a gateway asks for one request of a visitor.
type Question struct {
	ID    string // of the visitor: random, of letters, digits, - and _
	Held  Held   // what the visitor's ticket says
	Place int64  // in line, by the ticket: the time of the arrival
	End   int64  // of the session, by the ticket
	Era   int64  // in which the ticket was made
	Kept  bool   // the ticket was made while the line did not answer
	Enter bool   // the request is one to pass on, if the visitor may
	Join  bool   // a visitor who is not known gets a place at the end
}

// Held is what a ticket says of its visitor.
type Held uint8

// What a ticket can say.
const (
	Nothing  Held = iota // there is none
	InLine               // waiting, or called and not yet entered
	Admitted             // inside
)

// State is what becomes of a visitor.
type State uint8

// States of a visitor.
const (
	Outside State = iota // not known, and nothing was noted
	Waiting
	Called // may enter, with the next request that is to be passed on
	Inside
	Full // there is no place in the line
)

// An Answer is what a Line says.
type Answer struct {
	State   State
	Place   int64 // of who waits: what a ticket keeps
	Ahead   int64 // how many are before the visitor
	Waiting int64 // how many are in line
	Inside  int64 // how many are inside, those among them who were called
	Counted int64 // how many of the line were called in Span
	Span    int64 // microseconds, of the last minute at most, in which there was a line
	End     int64 // of the session of who is inside
	Era     int64 // when this state began: another one after it was lost
	Now     int64
	Entered bool // by this question

	// What was noticed on the way, and is told once.
	Lapsed int64 // of the line, who did not ask any more
	Missed int64 // of those who were called, who did not come
	Left   int64 // of those inside
}

// A Spec is the numbers of a room as a Line counts them.
type Spec struct {
	Bucket     weir.TokenBucket // by which visitors are let in
	Inside     int64            // how many at once; 0 is any number
	Idle       time.Duration
	Session    time.Duration
	Enter      time.Duration
	Lapse      time.Duration
	MaxWaiting int64
}

// SpecOf are the numbers of a room of a policy, its defaults among them.
func SpecOf(r policy.WaitingRoom) Spec {
	r = r.WithDefaults()
	return Spec{r.Bucket(), r.Inside, r.Idle, r.Session, r.Enter, r.Lapse, r.MaxWaiting}
}

// What all rooms have in common, in microseconds.
const (
	second = int64(time.Second / time.Microsecond)

	// patience is how far the clock of those who wait goes forward between two questions. It stands still while nobody asks, as when no
	// gateway reaches the store: so nobody loses a place for it. It is longer than any pause between two questions of one visitor.
	patience = 60 * second

	// gather is for how long nobody is let in after the state was lost, once the first ticket of before shows that it was: so that those
	// who were first can be in line again before those who came later.
	gather = 45 * second

	// window is the step in which the pace is measured: over the last one to two of them.
	window = 30 * second

	// most is how many are called for one question.
	most = 100
)
