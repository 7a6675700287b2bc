package resp

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirflow/weir/server/hook"
	"github.com/weirflow/weir/server/outstanding"
	"github.com/weirflow/weir/server/resp/wire"
)

// longestTurn is how long a request may wait for its turn at a limit with a queue.
const longestTurn = time.Minute

// enterForm is how requests are written.
const enterForm = "WEIR.ENTER PATH [METHOD m] [HOST h] [CLIENT address] [HEADER name value] [LENGTH n] [HOLD ms]"

// enter is WEIR.ENTER: it decides about a request by the routes of the policy, as the gateway does, and keeps its
// places at concurrency limits and adaptive limits until WEIR.LEAVE.
func (c *conn) enter(args [][]byte) {
	e, hold, problem := entryOf(args[1:])
	if problem != "" {
		c.reply.Error("ERR " + problem + ": write " + enterForm)
		return
	}
	f := c.face
	a, err := f.hook.EnterHeld(c.context(), f.policy.Now(), e, f.places, c.caller(), hold)
	var wrong *hook.EntryError
	switch {
	case errors.As(err, &wrong), errors.Is(err, outstanding.ErrPlacesFull):
		c.reply.Error("ERR " + err.Error())
		return
	case err != nil:
		c.decisionError(err)
		return
	}
	r := &c.reply
	r.Map(6)
	number := func(name string, n int64) { r.Text(name); r.Int(n) }
	allowed := int64(0)
	if a.Allowed {
		allowed, a.RetryAfter = 1, 0
	}
	number("allowed", allowed)
	number("status", int64(a.Status))
	number("retry_after_ms", milliseconds(a.RetryAfter))
	number("hold_ms", milliseconds(a.Hold))
	r.Text("refused_by")
	r.Text(a.Limit)
	r.Text("place")
	r.Text(a.Place)
}

// entryOf parses a request. problem is what is wrong with it; empty for nothing.
func entryOf(words [][]byte) (e *hook.Entry, hold time.Duration, problem string) {
	e, hold = &hook.Entry{Path: string(words[0]), Headers: map[string]string{}}, defaultKeep
	seen := map[string]bool{}
	for words = words[1:]; len(words) > 0; {
		word := strings.ToLower(string(words[0]))
		if seen[word] {
			return nil, 0, visible(words[0]) + " is written twice"
		}
		needs := 2
		if word == "header" {
			needs = 3
		}
		if len(words) < needs {
			return nil, 0, "syntax error at '" + visible(words[0]) + "'"
		}
		value := string(words[1])
		n, number := wire.ParseInt(words[1])
		switch word {
		case "method":
			e.Method = value
		case "host":
			e.Host = value
		case "client":
			e.Client = value
		case "length":
			if e.Length = &n; !number {
				return nil, 0, "LENGTH is not a whole number"
			}
		case "hold":
			if hold = time.Duration(n) * time.Millisecond; !number || n < 1 || n > longestKeep.Milliseconds() {
				return nil, 0, fmt.Sprintf("HOLD is not 1 to %d milliseconds", longestKeep.Milliseconds())
			}
		case "header":
			word += " " + strings.ToLower(value)
			if e.Headers[value] = string(words[2]); seen[word] {
				return nil, 0, "the header field '" + visible(words[1]) + "' is written twice"
			}
		default:
			return nil, 0, "syntax error at '" + visible(words[0]) + "'"
		}
		seen[word], words = true, words[needs:]
	}
	return e, hold, ""
}

// leavePlace is WEIR.LEAVE place [ok|ignored|dropped]: the request has ended.
func (c *conn) leavePlace(args [][]byte) {
	word := ""
	if len(args) > 2 {
		word = strings.ToLower(string(args[2]))
	}
	outcome, ok := outstanding.Outcome(word)
	if !ok || len(args) > 3 {
		c.reply.Error("ERR write WEIR.LEAVE PLACE [ok|ignored|dropped]")
		return
	}
	if err := c.face.places.Leave(c.session.user, string(args[1]), outcome); err != nil {
		c.reply.Error("ERR " + err.Error())
		return
	}
	c.reply.Simple("OK")
}

// caller is the client as a holder of reservations and places.
func (c *conn) caller() outstanding.Caller {
	return outstanding.Caller{Name: c.session.user, Address: c.raw.RemoteAddr().String()}
}
