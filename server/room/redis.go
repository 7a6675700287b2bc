package room

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

	"github.com/weirflow/weir/weirredis"
)

//go:embed line.lua
var lineLua string

// RedisOptions are what NewRedis is given.
type RedisOptions struct {
	Name     string        // of the room: gateways that use the same share one line
	Prefix   string        // of all keys; "weir:" where it is empty
	Deadline time.Duration // for an answer; 0 means 20 ms

	// ClockKey is for tests: a hash in which the script reads the time, as s and us, in place of the server's clock.
	ClockKey string
}

// Redis is a Line in Redis, for all gateways that use it. Each question is one script, in one trip, on the server's clock; what it does is in
// line.lua. The keys expire an hour after nobody could be in the room any more. A question that gets no answer is not repeated: the visitor asks again.
type Redis struct {
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

// NewRedis returns a Line over a client, which stays the caller's, and must live until Close has returned.
func NewRedis(e weirredis.Evaler, s Spec, o RedisOptions) (*Redis, error) {
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
	r := &Redis{evaler: e, script: &weirredis.Script{Source: source, SHA: hex.EncodeToString(sum[:])}, deadline: o.Deadline}
	for _, part := range []string{"about", "line", "lapses", "inside", "ends"} {
		r.keys = append(r.keys, o.Prefix+"{room/"+o.Name+"}:"+part)
	}
	m := s.micros()
	for _, n := range []int64{
		s.Bucket.Rate.N, int64(s.Bucket.Rate.Per / tick), s.Bucket.Burst, m.inside, m.idle, m.session, m.enter, m.lapse, m.maxWaiting,
		patience, gather, window, most,
	} {
		r.numbers = append(r.numbers, strconv.FormatInt(n, 10))
	}
	return r, nil
}

var errClosed = errors.New("room: the line is closed")

// Ask is Line's: it returns at the deadline at the latest.
func (r *Redis) Ask(ctx context.Context, q Question) (Answer, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return Answer{}, errClosed
	}
	r.asking.Add(1)
	r.mu.Unlock()
	defer r.asking.Done()
	ctx, cancel := context.WithTimeout(ctx, r.deadline)
	defer cancel()
	bit := func(b bool) string {
		if b {
			return "1"
		}
		return "0"
	}
	args := make([]string, 0, len(r.numbers)+8)
	args = append(append(args, r.numbers...), q.ID, strconv.Itoa(int(q.Held)), strconv.FormatInt(q.Place, 10), strconv.FormatInt(q.End, 10),
		strconv.FormatInt(q.Era, 10), bit(q.Kept), bit(q.Enter), bit(q.Join))
	c := weirredis.Call{Script: r.script, Keys: r.keys, Args: args}
	text, err := r.evaler.Eval(ctx, c)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		c.Send = true
		text, err = r.evaler.Eval(ctx, c)
	}
	if err != nil {
		return Answer{}, fmt.Errorf("room: %w", err)
	}
	return parseAnswer(text)
}

// parseAnswer reads what line.lua replies.
func parseAnswer(text string) (Answer, error) {
	words := strings.Fields(text)
	if len(words) != 14 {
		return Answer{}, errors.New("room: the reply of the script is not understood")
	}
	var n [14]int64
	for i, w := range words {
		v, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			return Answer{}, fmt.Errorf("room: the reply of the script: %w", err)
		}
		n[i] = v
	}
	if n[0] < 0 || n[0] > int64(Full) {
		return Answer{}, errors.New("room: the reply of the script has a state that is not known")
	}
	return Answer{
		State: State(n[0]), Place: n[1], Ahead: n[2], Waiting: n[3], Inside: n[4], Counted: n[5], Span: n[6], End: n[7], Era: n[8], Now: n[9],
		Entered: n[10] == 1, Lapsed: n[11], Missed: n[12], Left: n[13],
	}, nil
}

// Close is Line's.
func (r *Redis) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.asking.Wait()
	return nil
}
