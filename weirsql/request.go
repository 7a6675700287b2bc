package weirsql

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/scripted"
)

// A request is the batch of one caller.
type request struct {
	charges []charge
	end     time.Time     // when its caller leaves
	left    atomic.Bool   // its caller left before: nothing more is sent for it
	done    chan struct{} // closed when it is complete
	err     error         // about all of it
}

// finish gives the caller the result, or the error.
func (r *request) finish(err error) {
	r.err = err
	close(r.done)
}

// wait waits for the reply, and returns an error if there is none. The caller may then leave: the
// goroutine that carries the request out has a copy of all that it needs.
func (s *Store) wait(ctx context.Context, r *request) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-r.done:
		return nil
	default:
		r.left.Store(true)
		return ctx.Err()
	}
}

// waits reports whether the caller still waits.
func (r *request) waits(now time.Time) bool { return !r.left.Load() && r.end.After(now) }

// fail gives all charges of a caller an error.
func (r *request) fail(batch []weir.Charge, err error) {
	for i := range r.charges {
		batch[r.charges[i].index].Err = err
	}
}

// A charge is a weir.Charge as the functions read it, and its result. It is a copy: the caller may have
// left when there is one.
type charge struct {
	index int // in the batch
	id    string
	limit *limit
	name  string
	op    weir.Op
	cost  int64
	group int
	more  int64 // Within of OpReserve; of a take, 1 where a receipt is wanted, 2 where it will be settled; of a peek, 3 for what is used
	paper string

	decision weir.Decision
	receipt  weir.Receipt
	delay    time.Duration
	taken    int64
	used     int64
	err      error
}

// plain reports whether the charge is one for take.sql.
func (c *charge) plain() bool {
	return c.limit.plain != nil && c.op == weir.OpTake && c.cost > 0 && c.cost <= c.limit.capacity && c.group == 0 && c.more == 0
}

// request makes a request of a batch. The charges of a group are side by side, where its first one is.
func (s *Store) request(batch []weir.Charge) (*request, error) {
	r := &request{charges: make([]charge, 0, len(batch))}
	first := map[int]int{}
	for i := range batch {
		c, err := s.charge(i, &batch[i])
		if err != nil {
			return nil, err
		}
		if c.group > 0 {
			if c.op != weir.OpTake {
				return nil, fmt.Errorf("%w: %v in a group, which is for takes", weir.ErrCharge, c.op)
			}
			if _, ok := first[c.group]; !ok {
				first[c.group] = i
			}
		}
		r.charges = append(r.charges, c)
	}
	if len(first) > 0 {
		at := func(c charge) int {
			if c.group == 0 {
				return c.index
			}
			return first[c.group]
		}
		slices.SortStableFunc(r.charges, func(a, b charge) int { return cmp.Compare(at(a), at(b)) })
	}
	return r, nil
}

// charge readies a charge. The error is what is wrong with it.
func (s *Store) charge(index int, of *weir.Charge) (c charge, err error) {
	l, err := s.limits.Of(of.Limit, compile)
	if err != nil {
		return c, fmt.Errorf("%w: limit %q: %w", weir.ErrCharge, of.Name, err)
	}
	c = charge{index: index, id: id(s.opts.Prefix, of.Name, of.Key), limit: l, name: of.Name, op: of.Op, cost: scripted.Cost(of.Cost), group: max(of.Group, 0)}
	switch of.Op {
	case weir.OpTake:
		switch {
		case of.Keep && of.Estimate:
			c.more = 2
		case of.Keep:
			c.more = 1
		}
	case weir.OpReserve:
		if c.more = scripted.Within(of.Within); of.Estimate {
			c.paper = "settled"
		}
	case weir.OpSettle:
		// work that is done must count: an error here would make the largest cost the cheapest one
		c.paper, c.cost = string(of.Receipt), min(c.cost, most)
		if c.paper != "" && !receipt.MatchString(c.paper) {
			return c, fmt.Errorf("%w: limit %q: this is no receipt of a charge in PostgreSQL", weir.ErrCharge, of.Name)
		}
		if of.Once != "" && of.OnceFor > 0 {
			c.paper += fmt.Sprintf("^%x^%d", sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(c.id), c.id, of.Once)), int64(min(of.OnceFor, maxOnce)/tick))
		}
	case weir.OpPeek:
		if of.Usage {
			c.more = 3
		}
	case weir.OpTakeSome, weir.OpCarry, weir.OpReset, weir.OpGiveBack:
	default:
		return c, fmt.Errorf("%w: %v is no operation", weir.ErrCharge, of.Op)
	}
	return c, nil
}

// receipt is what receipts look like: limit, cost, time and ticket, and for another version of the limit
// the limit, the amount, and the ticket.
var receipt = regexp.MustCompile(`^` + receiptLimit + `~\d{1,16}~\d{1,16}~` + receiptTicket + `(~` + receiptLimit + `~\d{1,16}~(` + receiptTicket + `|-))?$`)

const (
	receiptLimit  = `\{\d{1,2}(,-?\d{1,16}){1,8}\}[\w:/+-]*`
	receiptTicket = `\{(-?\d{1,40}(,-?\d{1,40}){0,15})?\}`
)

// maxOnce is how long a settlement is remembered at most.
const maxOnce = 365 * 24 * time.Hour

// maxKey is how long an id may be, in bytes: PostgreSQL's indexes have a bound.
const maxKey = 512

// id returns the id of a key's row. The parts are prefixed by their lengths, so that no two keys share
// one. A long one is replaced by its SHA-256.
func id(prefix, name, key string) string {
	b := make([]byte, 0, 8+len(prefix)+len(name)+len(key))
	b = append(b, 0)
	for _, part := range []string{prefix, name} {
		b = fmt.Appendf(b, "%d:%s", len(part), part)
	}
	b = append(b, key...)
	if len(b) > maxKey {
		sum := sha256.Sum256(b)
		return "\x01" + string(sum[:])
	}
	return string(b)
}

// deliver gives the caller the results.
func (r *request) deliver(batch []weir.Charge, out []weir.Decision) error {
	var first error
	for i := range r.charges {
		c := &r.charges[i]
		to := &batch[c.index]
		out[c.index] = c.decision
		to.Delay, to.Taken, to.Used, to.Err = c.delay, c.taken, c.used, c.err
		if c.op != weir.OpSettle {
			to.Receipt = c.receipt
		}
		if c.err != nil && first == nil {
			first = c.err
		}
	}
	return first
}
