package redis

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/internal/rediserror"
	"github.com/weirflow/weir/server/room"
	"github.com/weirflow/weir/weirredis"
)

//go:embed queue.lua
var queueLua string

// QueueOptions are the parameters of NewQueue.
type QueueOptions struct {
	Name     string        // of the room: gateways that use the same name share one queue
	Prefix   string        // of all keys; default: weir:
	Deadline time.Duration // of a poll; default: 20 ms

	// ClockKey is for tests: a hash in which the script reads the time, as s and us, in place of
	// the server's clock.
	ClockKey string
}

// Queue is the queue of a waiting room in Redis, for all gateways that use it. Each poll is one
// script (queue.lua) and one round trip, on the server's clock. The keys expire an hour after
// nobody could be in the room any more. A poll without a reply is repeated within its deadline, which
// changes nothing in the queue: a connection that is lost sends no visitor away. What the lost reply
// reported of entering and leaving visitors is missing in the counts.
type Queue struct {
	evaler     weirredis.Evaler
	script     *weirredis.Script
	keys       []string
	parameters []string
	deadline   time.Duration

	mu       sync.Mutex
	closed   bool
	inFlight sync.WaitGroup
}

// clockLine is the line that reads the server's clock.
const clockLine = "local clock = redis.call('TIME')\n"

const defaultDeadline = 20 * time.Millisecond

// NewQueue returns a Queue over a client, which stays the caller's and must live until Close has
// returned.
func NewQueue(e weirredis.Evaler, s room.Spec, o QueueOptions) (*Queue, error) {
	if o.Name == "" || strings.ContainsAny(o.Name+o.Prefix, "{}") {
		return nil, fmt.Errorf("room: a queue in Redis needs a name, and neither that nor the prefix may have braces, which name slots")
	}
	if o.Prefix == "" {
		o.Prefix = "weir:"
	}
	if o.Deadline == 0 {
		o.Deadline = defaultDeadline
	}
	source := queueLua
	if o.ClockKey != "" {
		source = strings.Replace(source, clockLine, fmt.Sprintf("local clock = redis.call('HMGET', %q, 's', 'us')\n", o.ClockKey), 1)
	}
	sum := sha1.Sum([]byte(source))
	l := &Queue{evaler: e, script: &weirredis.Script{Source: source, SHA: hex.EncodeToString(sum[:])}, deadline: o.Deadline}
	for _, part := range []string{"about", "line", "lapses", "inside", "ends"} {
		l.keys = append(l.keys, o.Prefix+"{room/"+o.Name+"}:"+part)
	}
	for _, n := range s.Parameters() {
		l.parameters = append(l.parameters, strconv.FormatInt(n, 10))
	}
	return l, nil
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
	bit := func(b bool) string {
		if b {
			return "1"
		}
		return "0"
	}
	args := make([]string, 0, len(r.parameters)+9)
	args = append(append(args, r.parameters...), q.ID, strconv.Itoa(int(q.Ticket)), strconv.FormatInt(q.Place, 10), strconv.FormatInt(q.End, 10),
		strconv.FormatInt(q.Started, 10), bit(q.Provisional), bit(q.Enter), bit(q.Join), strconv.FormatInt(q.Lot, 10))
	text, err := r.eval(ctx, weirredis.Call{Script: r.script, Keys: r.keys, Args: args})
	if err != nil {
		return room.Standing{}, fmt.Errorf("room: %w", err)
	}
	return room.ParseStanding(text)
}

// eval makes attempts until there is a reply, the server reports an error that would come again, or the context
// ends. Between attempts it waits as a weirredis.Store does: 2 ms after the first, and up to 50 ms.
func (r *Queue) eval(ctx context.Context, c weirredis.Call) (text string, err error) {
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		text, err = r.evaler.Eval(ctx, c)
		if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
			c.Send = true
			text, err = r.evaler.Eval(ctx, c)
		}
		if err == nil || !rediserror.Passing(err) || ctx.Err() != nil || pause.For(ctx, wait) != nil {
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
