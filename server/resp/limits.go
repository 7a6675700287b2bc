package resp

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/outstanding"
	"github.com/weirflow/weir/server/resp/wire"
)

// Bounds of how long a reservation is kept for WEIR.SETTLE.
const (
	defaultKeep = time.Minute
	longestKeep = time.Hour
)

// take is WEIR.TAKE limit parts part... [COST n] [PLAN plan] [AND limit parts part...]...
func (c *conn) take(args [][]byte) {
	if asks, _, ok := c.asks(args[1:], false); ok {
		a, err := asks.engine.Take(c.context(), asks.all)
		c.answered(asks, a, err, "")
	}
}

// peek is WEIR.PEEK, which charges nothing.
func (c *conn) peek(args [][]byte) {
	if asks, _, ok := c.asks(args[1:], false); ok {
		a, err := asks.engine.Peek(c.context(), asks.all)
		c.answered(asks, a, err, "")
	}
}

// reserve is WEIR.RESERVE, as WEIR.TAKE with [WITHIN ms] [KEEP ms] at the end: a charge to be settled or
// cancelled.
func (c *conn) reserve(args [][]byte) {
	asks, times, ok := c.asks(args[1:], true)
	if !ok {
		return
	}
	ctx := c.context()
	a, err := asks.engine.Reserve(ctx, asks.all, times.within)
	id := ""
	if err == nil && a.Allowed {
		if id, err = c.face.reservations.Add(ctx, c.caller(), a, times.keep); err != nil {
			c.reply.Error("ERR " + err.Error())
			return
		}
	}
	c.answered(asks, a, err, id)
}

// settle is WEIR.SETTLE id actual...: the true costs of a reservation, in the order of its limits.
func (c *conn) settle(args [][]byte) {
	costs := make([]int64, 0, len(args)-2)
	for _, text := range args[2:] {
		n, ok := wire.ParseInt(text)
		if !ok || n < 0 {
			c.reply.Error("ERR a cost is a whole number of at least 0")
			return
		}
		costs = append(costs, n)
	}
	c.end(string(args[1]), costs)
}

// cancel is WEIR.CANCEL id: the reserved work was not done.
func (c *conn) cancel(args [][]byte) { c.end(string(args[1]), nil) }

// end ends a reservation with true costs, or nil for none of them.
func (c *conn) end(id string, costs []int64) {
	ctx := c.context()
	err := c.face.reservations.Settle(ctx, c.session.user, id, costs)
	var wrong *outstanding.CostsError
	switch {
	case errors.As(err, &wrong):
		c.reply.Error("ERR " + wrong.Error() + ": " + wrong.Fix())
	case err != nil:
		c.reply.Error("ERR " + err.Error())
	default:
		c.reply.Simple("OK")
	}
}

// times are those of a reservation.
type times struct{ within, keep time.Duration }

// asksForm is how limits are written; reserveForm is what may follow in WEIR.RESERVE.
const (
	asksForm    = "LIMIT NUMPARTS PART... [COST n] [PLAN plan] [AND LIMIT NUMPARTS PART...]"
	reserveForm = " [WITHIN ms] [KEEP ms]"
)

// asksError writes an error about the form of limits.
func (c *conn) asksError(problem string, reserves bool) {
	form := asksForm
	if reserves {
		form += reserveForm
	}
	c.reply.Error("ERR " + problem + ": write " + form)
}

// An asked is the limits of a command, and the engine that has them: the policy's, or that of named
// limits.
type asked struct {
	all    []policy.Ask
	engine *policy.Engine
	named  bool
}

// asks parses limits with their keys and costs, and finds their engine. It reports false after an error.
func (c *conn) asks(words [][]byte, reserves bool) (asked, times, bool) {
	all, t, ok := c.parseAsks(words, reserves)
	if !ok {
		return asked{}, t, false
	}
	of, ok := c.engineOf(all)
	return of, t, ok
}

// engineOf finds the engine of limits, and takes the marks of named limits off. It reports false after
// an error.
func (c *conn) engineOf(all []policy.Ask) (asked, bool) {
	of := asked{all: all, engine: c.face.policy.Engine(), named: strings.HasPrefix(all[0].Limit, namedMark)}
	for i := range all {
		a := &all[i]
		named := strings.HasPrefix(a.Limit, namedMark)
		if named != of.named {
			c.reply.Error("ERR a named limit and a limit of the policy cannot be charged together: send a command for each")
			return of, false
		}
		if !named {
			continue
		}
		engine, l := c.face.named.use(a.Limit)
		switch {
		case l == nil:
			c.reply.Error("NOLIMIT there is no limit " + visible([]byte(a.Limit)) + ": WEIR.INIT creates it")
			return of, false
		case len(a.Key) != len(l.of.Key):
			c.reply.Error("ERR the keys of " + visible([]byte(a.Limit)) + " have " + strconv.Itoa(len(l.of.Key)) + " parts: PARTS of WEIR.INIT says how many")
			return of, false
		}
		of.engine, a.Limit = engine, l.of.Name
	}
	return of, true
}

// parseAsks parses limits with their keys and costs. It reports false after an error.
func (c *conn) parseAsks(words [][]byte, reserves bool) (asks []policy.Ask, t times, ok bool) {
	t.keep = defaultKeep
	for {
		if len(words) < 2 {
			c.asksError("a limit is missing", reserves)
			return nil, t, false
		}
		parts, number := wire.ParseInt(words[1])
		if !number || parts < 0 || parts > int64(len(words)-2) {
			c.asksError("the number of parts of the key comes after the limit, and then the parts", reserves)
			return nil, t, false
		}
		ask := policy.Ask{Limit: string(words[0]), Key: texts(words[2 : 2+parts]), OwnCost: true}
		words = words[2+parts:]
		again := false
		for len(words) > 0 && !again {
			word := strings.ToLower(string(words[0]))
			if again = word == "and"; again {
				words = words[1:]
				continue
			}
			if len(words) < 2 {
				c.asksError("syntax error at '"+visible(words[0])+"'", reserves)
				return nil, t, false
			}
			if problem := option(words[0], words[1], &ask, &t, reserves); problem != "" {
				c.asksError(problem, reserves)
				return nil, t, false
			}
			words = words[2:]
		}
		if asks = append(asks, ask); !again {
			return asks, t, true
		}
	}
}

// option parses an option of an ask. It returns what is wrong with it; empty for nothing.
func option(name, value []byte, ask *policy.Ask, t *times, reserves bool) (problem string) {
	word := strings.ToLower(string(name))
	n, number := wire.ParseInt(value)
	most := longestKeep.Milliseconds()
	switch {
	case word == "plan":
		ask.Plan = string(value)
	case word == "cost":
		if ask.Cost, ask.OwnCost = n, false; !number {
			return "COST is not a whole number"
		}
	case word == "within" && reserves:
		if t.within = time.Duration(n) * time.Millisecond; n < 0 {
			t.within = -1
		}
		if !number || n < -1 || n > most {
			return fmt.Sprintf("WITHIN is not -1 to %d milliseconds", most)
		}
	case word == "keep" && reserves:
		if t.keep = time.Duration(n) * time.Millisecond; !number || n < 1 || n > most {
			return fmt.Sprintf("KEEP is not 1 to %d milliseconds", most)
		}
	default:
		return "syntax error at '" + visible(name) + "'"
	}
	return ""
}

// answered writes the decision about limits of the policy.
func (c *conn) answered(of asked, a *policy.Answer, err error, id string) {
	if err != nil {
		c.decisionError(err)
		return
	}
	r, d := &c.reply, a.Decision
	fields := []struct {
		name  string
		value int64
	}{
		{"allowed", 0}, {"limit", d.Limit}, {"remaining", d.Remaining}, {"retry_after_ms", milliseconds(d.RetryAfter)},
		{"reset_after_ms", milliseconds(d.ResetAfter)}, {"delay_ms", milliseconds(a.Delay)},
	}
	if a.Allowed {
		fields[0].value = 1
	}
	n := len(fields) + 1
	if id != "" {
		n++
	}
	r.Map(n)
	for _, f := range fields {
		r.Text(f.name)
		r.Int(f.value)
	}
	r.Text("refused_by")
	if of.named && a.Limit != "" {
		r.Text(namedMark + a.Limit)
	} else {
		r.Text(a.Limit)
	}
	if id != "" {
		r.Text("id")
		r.Text(id)
	}
}

// milliseconds rounds up; never is -1.
func milliseconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
