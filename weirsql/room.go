package weirsql

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A RoomPoll is one poll of a visitor of a waiting room, for the stored function poll. The meaning of its numbers
// is that of package server/room, which is the only one to use it.
type RoomPoll struct {
	Prefix, Room string
	Durable      bool
	Patience     time.Duration // how long it may wait for other polls of the room
	Parameters   []int64       // 15, in the order of room.Spec.Parameters
	Visitor      string
	Ticket       int64
	Place        int64
	End          int64
	Started      int64
	Provisional  bool
	Enter        bool
	Join         bool
	Lot          int64
}

// roomParameters is how many parameters a room has.
const roomParameters = 15

// pollTypes are the types of the function's parameters.
var pollTypes = strings.Fields("text text boolean integer" + strings.Repeat(" bigint", roomParameters) + " text integer bigint bigint bigint boolean boolean boolean bigint")

// Poll carries out a poll, and returns the reply of the function: 14 numbers. Repeating it is harmless.
func (s Schema) Poll(ctx context.Context, q Querier, p RoomPoll) (string, error) {
	name, err := s.quoted()
	if err != nil {
		return "", err
	}
	if len(p.Parameters) != roomParameters {
		return "", fmt.Errorf("weirsql: %d parameters of a room, want %d", len(p.Parameters), roomParameters)
	}
	args := make([]string, 0, len(pollTypes))
	args = append(args, p.Prefix, p.Room, strconv.FormatBool(p.Durable), strconv.FormatInt(min(max(p.Patience.Milliseconds(), 1), 60_000), 10))
	for _, n := range p.Parameters {
		args = append(args, strconv.FormatInt(n, 10))
	}
	args = append(args, p.Visitor)
	for _, n := range []int64{p.Ticket, p.Place, p.End, p.Started} {
		args = append(args, strconv.FormatInt(n, 10))
	}
	args = append(args, strconv.FormatBool(p.Provisional), strconv.FormatBool(p.Enter), strconv.FormatBool(p.Join), strconv.FormatInt(p.Lot, 10))
	text, err := q.Query(ctx, "SELECT "+name+pollCall, args...)
	switch {
	case isMissing(err):
		return "", fmt.Errorf("weirsql: the tables and functions of schema %s are not there: run `%s`: %w", name, s.command(), err)
	case err != nil:
		return "", fmt.Errorf("weirsql: %w", err)
	}
	return text, nil
}

// pollCall is the call of the function, after the name of its schema.
var pollCall = func() string {
	typed := make([]string, len(pollTypes))
	for i, t := range pollTypes {
		typed[i] = fmt.Sprintf("$%d::%s", i+1, t)
	}
	return ".poll(" + strings.Join(typed, ", ") + ")"
}()

// Repeatable reports whether a call that failed with this error may succeed when it is repeated: there was no
// reply, or the server did nothing and would do it a little later.
func Repeatable(err error) bool { return err != nil && repeatable(stateOf(err)) }
