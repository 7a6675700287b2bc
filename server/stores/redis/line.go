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

	"github.com/weirflow/weir/server/room"
	"github.com/weirflow/weir/weirredis"
)

//go:embed line.lua
var lineLua string

// LineOptions are the settings of NewLine.
type LineOptions struct {
	Name     string        // of the room: gateways that use the same name share one queue
	Prefix   string        // of all keys; default: weir:
	Deadline time.Duration // of a question; default: 20 ms

	// ClockKey is for tests: a hash in which the script reads the time, as s and us, in place of the server's clock.
	ClockKey string
}

// Line is the queue of a waiting room in Redis, for all gateways that use it. Each question is one script and one round trip, on the server's
// clock; line.lua is the script. The keys expire an hour after nobody could be in the room any more. A question without an answer is not
// repeated: the visitor's page asks again.
type Line struct {
	evaler   weirredis.Evaler
	script   *weirredis.Script
	keys     []string
	numbers  []string
	deadline time.Duration

	mu     sync.Mutex
	closed bool
	asking sync.WaitGroup
}

// clockLine is the line that reads the server's clock.
const clockLine = "local clock = redis.call('TIME')\n"

const defaultDeadline = 20 * time.Millisecond

// NewLine returns a Line over a client, which stays the caller's and must live until Close has returned.
func NewLine(e weirredis.Evaler, s room.Spec, o LineOptions) (*Line, error) {
	if o.Name == "" || strings.ContainsAny(o.Name+o.Prefix, "{}") {
		return nil, fmt.Errorf("room: a line in Redis needs a name, and neither that nor the prefix may have braces, which name slots")
	}
	if o.Prefix == "" {
		o.Prefix = "weir:"
	}
	if o.Deadline == 0 {
		o.Deadline = defaultDeadline
	}
	source := lineLua
	if o.ClockKey != "" {
		source = strings.Replace(source, clockLine, fmt.Sprintf("local clock = redis.call('HMGET', %q, 's', 'us')\n", o.ClockKey), 1)
	}
	sum := sha1.Sum([]byte(source))
	l := &Line{evaler: e, script: &weirredis.Script{Source: source, SHA: hex.EncodeToString(sum[:])}, deadline: o.Deadline}
	for _, part := range []string{"about", "line", "lapses", "inside", "ends"} {
		l.keys = append(l.keys, o.Prefix+"{room/"+o.Name+"}:"+part)
	}
	for _, n := range s.Parameters() {
		l.numbers = append(l.numbers, strconv.FormatInt(n, 10))
	}
	return l, nil
}

var errClosed = errors.New("room: the line is closed")

// Ask is Line's: it returns at the deadline at the latest.
func (l *Line) Ask(ctx context.Context, q room.Question) (room.Answer, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return room.Answer{}, errClosed
	}
	l.asking.Add(1)
	l.mu.Unlock()
	defer l.asking.Done()
	ctx, cancel := context.WithTimeout(ctx, l.deadline)
	defer cancel()
	bit := func(b bool) string {
		if b {
			return "1"
		}
		return "0"
	}
	args := make([]string, 0, len(l.numbers)+8)
	args = append(append(args, l.numbers...), q.ID, strconv.Itoa(int(q.Held)), strconv.FormatInt(q.Place, 10), strconv.FormatInt(q.End, 10),
		strconv.FormatInt(q.Era, 10), bit(q.Kept), bit(q.Enter), bit(q.Join))
	c := weirredis.Call{Script: l.script, Keys: l.keys, Args: args}
	text, err := l.evaler.Eval(ctx, c)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		c.Send = true
		text, err = l.evaler.Eval(ctx, c)
	}
	if err != nil {
		return room.Answer{}, fmt.Errorf("room: %w", err)
	}
	return parseAnswer(text)
}

// parseAnswer reads what line.lua replies.
func parseAnswer(text string) (room.Answer, error) {
	words := strings.Fields(text)
	if len(words) != 14 {
		return room.Answer{}, errors.New("room: the reply of the script is not understood")
	}
	var n [14]int64
	for i, w := range words {
		v, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			return room.Answer{}, fmt.Errorf("room: the reply of the script: %w", err)
		}
		n[i] = v
	}
	if n[0] < 0 || n[0] > int64(room.Full) {
		return room.Answer{}, errors.New("room: the reply of the script has a state that is not known")
	}
	return room.Answer{
		State: room.State(n[0]), Place: n[1], Ahead: n[2], Waiting: n[3], Inside: n[4], Counted: n[5], Span: n[6], End: n[7], Era: n[8], Now: n[9],
		Entered: n[10] == 1, Lapsed: n[11], Missed: n[12], Left: n[13],
	}, nil
}

// Close is Line's.
func (l *Line) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.asking.Wait()
	return nil
}
