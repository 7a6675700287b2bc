package room

import (
	"context"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// A Queue holds the visitors who wait for a room, in order, and those who are inside: in memory, or
// in a store that several gateways share. It is safe for concurrent use.
type Queue interface {
	// Poll admits all visitors whose turn it is, and returns where one visitor stands. An error
	// means that the queue is unavailable; the poll may or may not have been recorded. Repeating it
	// is harmless.
	Poll(ctx context.Context, q Poll) (Standing, error)

	// Close waits for polls in flight, which end at their deadlines. Later polls are refused.
	Close() error
}

// Times of a Queue are microseconds since the Unix epoch on its own clock, which only goes forward.

// A Poll is one request of a visitor, as a Queue needs to know it.
type Poll struct {
	ID     string      // of the visitor: random letters, digits, - and _
	Ticket TicketState // what the visitor's ticket says
	Place  int64       // in the queue, by the ticket: the time of arrival
	End    int64       // end of the session, by the ticket
	// when the state started in which the ticket was made; another time means that state was lost
	Started     int64
	Provisional bool // the ticket was made while the queue was unavailable
	Enter       bool // the visitor enters with this request, if admitted
	Join        bool // an unknown visitor joins the end of the queue

	// Lot is the visitor's lot, from 1 to MostLot: of those who join before the room opens, the one with the largest is the
	// first. A ticket from before the opening has 0 as its Place, so that nobody learns a place that can be drawn again.
	Lot int64
}

// TicketState is the state of a visitor when the ticket was signed.
type TicketState uint8

// States of a ticket.
const (
	NoTicket      TicketState = iota // no ticket
	WaitingTicket                    // waiting, or admitted and not yet inside
	InsideTicket                     // inside
)

// State is where a visitor stands after a poll.
type State uint8

// States of a visitor.
const (
	Unknown State = iota // not in the queue, and not recorded
	Waiting
	Admitted // may enter with the next request
	Inside
	Full // the queue has no room
)

// A Standing is the result of a poll.
type Standing struct {
	State   State
	Place   int64 // of a waiting visitor; the ticket keeps it
	Ahead   int64 // visitors ahead of this one
	Waiting int64 // visitors in the queue
	Inside  int64 // visitors inside, including admitted ones who have not entered yet
	Counted int64 // visitors who were admitted during Span
	Span    int64 // microseconds with a queue, within the last minute
	End     int64 // end of the session of a visitor inside
	Started int64 // when this state started: another one after it was lost
	Now     int64
	Entered bool // with this poll

	// Events since the last poll; each is reported once.
	Lapsed int64 // waiting visitors who stopped polling
	Missed int64 // admitted visitors who did not enter
	Left   int64 // visitors inside who left
}

// A Spec is the parameters of a room's queue.
type Spec struct {
	Bucket      weir.TokenBucket // admits visitors
	Inside      int64            // how many at once; 0 is no bound
	Idle        time.Duration
	Session     time.Duration
	EnterWithin time.Duration
	PollTimeout time.Duration
	MaxWaiting  int64
	Opens       int64 // nobody is admitted before this time, and those who join before it are drawn by lot; 0: it is open
	Paused      bool  // nobody is admitted
}

// MostLot is the largest lot: lots are places in the hour before the opening.
const MostLot = 3600 * second

// SpecOf returns the parameters of a policy's room, with defaults filled in.
func SpecOf(r policy.WaitingRoom) Spec {
	r = r.WithDefaults()
	s := Spec{Bucket: r.Bucket(), Inside: r.Inside, Idle: r.Idle, Session: r.Session, EnterWithin: r.EnterWithin, PollTimeout: r.PollTimeout, MaxWaiting: r.MaxWaiting, Paused: r.Pause}
	if !r.Opens.IsZero() {
		s.Opens = r.Opens.UnixMicro()
	}
	return s
}

// Constants of all rooms, in microseconds.
const (
	second = int64(time.Second / time.Microsecond)

	// maxWaitStep bounds how far the wait clock goes forward between two polls. The wait clock
	// measures how long visitors have not polled. It stands still while nobody can poll, as when
	// the store is unavailable, so nobody loses a place for it. It is longer than any delay between
	// two polls of one visitor.
	maxWaitStep = 60 * second

	// recoveryTime is how long nobody is admitted after the state was lost, counted from the start
	// of the new state. It begins when the first older ticket shows the loss, and lets earlier
	// visitors rejoin before later ones are admitted.
	recoveryTime = 45 * second

	// paceWindow is the length of the windows in which the pace is measured: over the last one to
	// two of them.
	paceWindow = 30 * second

	// maxAdmissions bounds the work of one poll.
	maxAdmissions = 100
)
