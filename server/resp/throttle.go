package resp

import (
	"context"
	"fmt"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/cell"
	"github.com/weirflow/weir/server/resp/wire"
)

// throttleName is the name of the keys of CL.THROTTLE in a store. No limit of a policy has capitals, so
// that no key reaches one.
const throttleName = "CL.THROTTLE"

// throttle is CL.THROTTLE key max_burst count period [quantity].
func (c *conn) throttle(args [][]byte) {
	if len(args) != 5 && len(args) != 6 {
		c.cellError("Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]")
		return
	}
	numbers := [4]int64{3: 1}
	for i, text := range args[2:] {
		n, ok := wire.ParseInt(text)
		if !ok {
			c.cellError(fmt.Sprintf("Couldn't parse as integer: %.64q", text))
			return
		}
		numbers[i] = n
	}
	l, err := cell.Compile(numbers[0], numbers[1], numbers[2])
	if err != nil {
		c.cellError(err.Error())
		return
	}
	work, err := l.Work(numbers[3])
	if err != nil {
		c.cellError(err.Error())
		return
	}
	if c.session.settings.store != nil {
		c.throttleStored(args[1], l, numbers)
		return
	}
	backlog, added, refused := c.face.backlogs.Add(args[1], work, l.Longest)
	if refused != 0 {
		c.throttled(l.Refused(refused))
		return
	}
	c.throttled(l.Reply(added, backlog, work))
}

// cellError writes an error as redis-cell words it.
func (c *conn) cellError(text string) { c.reply.Error("Cell error: " + text) }

// throttled writes a reply of CL.THROTTLE.
func (c *conn) throttled(r cell.Reply) {
	limited := int64(0)
	if r.Limited {
		limited = 1
		c.batch.limited++
	} else {
		c.batch.admitted++
	}
	c.reply.Array(5)
	c.reply.Int(limited)
	c.reply.Int(r.Limit)
	c.reply.Int(r.Remaining)
	c.reply.Int(r.RetryAfter)
	c.reply.Int(r.ResetAfter)
}

// A storedBatch is the calls of CL.THROTTLE of a pipeline that a store has yet to decide about.
type storedBatch struct {
	limits  []cell.Limit
	charges []weir.Charge
	made    []weir.Decision
}

// mostStored bounds a storedBatch.
const mostStored = 64

// throttleStored decides about a call by a store, together with those that follow it in the pipeline.
func (c *conn) throttleStored(key []byte, l cell.Limit, n [4]int64) {
	if l.Calls < 1 {
		c.flushStored()
		c.throttled(l.Reply(false, 0, l.Each))
		return
	}
	b := &c.stored
	op := weir.OpTake
	if n[3] == 0 {
		op = weir.OpPeek
	}
	b.limits = append(b.limits, l)
	b.charges = append(b.charges, weir.Charge{
		Name: throttleName, Key: string(key), EachCall: true, Cost: n[3], Op: op,
		Limit: weir.TokenBucket{Rate: weir.Rate{N: n[1], Per: time.Duration(n[2]) * time.Second}, Burst: l.Calls},
	})
	if len(b.charges) == mostStored {
		c.flushStored()
	}
}

// flushStored decides about the calls that were collected, and writes their replies.
func (c *conn) flushStored() {
	b := &c.stored
	if len(b.charges) == 0 {
		return
	}
	b.made = append(b.made[:0], make([]weir.Decision, len(b.charges))...)
	c.detach()
	err := c.session.settings.store.Do(context.Background(), b.charges, b.made)
	for i := range b.charges {
		failed := b.charges[i].Err
		if failed == nil && err != nil && b.made[i] == (weir.Decision{}) {
			failed = err
		}
		if failed != nil {
			c.batch.failed++
			c.cellError(failed.Error())
			continue
		}
		c.throttled(b.limits[i].Decided(b.made[i].Allowed, b.made[i].Remaining, b.made[i].RetryAfter, b.made[i].ResetAfter))
	}
	b.limits, b.charges = b.limits[:0], b.charges[:0]
}
