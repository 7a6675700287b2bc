package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/server/room"
	"github.com/weirflow/weir/weirsql"
)

// QueueOptions are the parameters of NewQueue.
type QueueOptions struct {
	Schema   weirsql.Schema
	Name     string        // of the room: gateways that use the same name share one queue
	Prefix   string        // of all rooms; default: none
	Durable  bool          // each poll waits until the write-ahead log is on disk
	Deadline time.Duration // of a poll; default: 20 ms
}

// Queue is the queue of a waiting room in PostgreSQL, for all gateways that use it. Each poll is one call of
// a stored function (weirsql/postgres/room.sql) and one round trip, on the server's clock. What a room has is removed an
// hour after nobody could be in it any more. A poll without a reply is repeated within its deadline, which changes
// nothing in the queue. What the lost reply reported of entering and leaving visitors is missing in the counts.
type Queue struct {
	querier weirsql.Querier
	schema  weirsql.Schema
	plain   weirsql.RoomPoll // what all polls have

	deadline time.Duration

	mu       sync.Mutex
	closed   bool
	inFlight sync.WaitGroup
}

const defaultDeadline = 20 * time.Millisecond

// NewQueue returns a Queue over a driver, which stays the caller's and must live until Close has returned.
func NewQueue(q weirsql.Querier, s room.Spec, o QueueOptions) (*Queue, error) {
	if o.Name == "" {
		return nil, errors.New("room: a queue in PostgreSQL needs a name")
	}
	if err := weirsql.CheckPrefix(o.Prefix); err != nil {
		return nil, err
	}
	if o.Deadline == 0 {
		o.Deadline = defaultDeadline
	}
	return &Queue{
		querier: q, schema: o.Schema, deadline: o.Deadline,
		plain: weirsql.RoomPoll{Prefix: o.Prefix, Room: o.Name, Durable: o.Durable, Parameters: s.Parameters()},
	}, nil
}

var errClosed = errors.New("room: the queue is closed")

// Poll implements room.Queue. It returns at the deadline at the latest.
func (r *Queue) Poll(ctx context.Context, q room.Poll) (room.Standing, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return room.Standing{}, errClosed
	}
	r.inFlight.Add(1)
	r.mu.Unlock()
	defer r.inFlight.Done()
	ctx, cancel := context.WithTimeout(ctx, r.deadline)
	defer cancel()
	p := r.plain
	p.Visitor, p.Ticket, p.Place, p.End, p.Started = q.ID, int64(q.Ticket), q.Place, q.End, q.Started
	p.Provisional, p.Enter, p.Join, p.Lot = q.Provisional, q.Enter, q.Join, q.Lot
	text, err := r.call(ctx, p)
	if err != nil {
		return room.Standing{}, fmt.Errorf("room: %s: %w", r.plain.Room, trimmed{err})
	}
	return room.ParseStanding(text)
}

// trimmed is an error of weirsql without the name of the package.
type trimmed struct{ error }

func (e trimmed) Error() string { return strings.TrimPrefix(e.error.Error(), "weirsql: ") }

func (e trimmed) Unwrap() error { return e.error }

// call makes attempts until there is a reply, the server reports an error that would come again, or the context
// ends. Between attempts it waits as a queue in Redis does: 2 ms after the first, and up to 50 ms.
func (r *Queue) call(ctx context.Context, p weirsql.RoomPoll) (text string, err error) {
	end, _ := ctx.Deadline()
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		p.Patience = time.Until(end)
		text, err = r.schema.Poll(ctx, r.querier, p)
		if err == nil || !weirsql.Repeatable(err) || ctx.Err() != nil || pause.For(ctx, wait) != nil {
			return text, err
		}
	}
}

// Close implements room.Queue.
func (r *Queue) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.inFlight.Wait()
	return nil
}
