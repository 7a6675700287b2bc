package weirsql

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/internal/scripted"
)

// An exchange is requests that are one call of carry_out, from the first attempt to the last.
//
// A call has the number of its lane and an expiry by the server's clock: it is repeated as it is, and
// carried out once.
type exchange struct {
	store    *Store
	lane     *lane
	requests []*request
	end      time.Time // of the last caller
	sent     time.Time // the first attempt with this number
	tries    int
	over     bool
	charges  int
	failure  error // of the latest attempt

	number  int64
	expiry  int64       // by the server's clock, or unknown
	locks   bool        // a charge may change a state
	unsure  bool        // an attempt with this number may have been carried out
	times   []int64     // at which windows of calendars are needed, besides those of now
	strange []*calendar // by which other versions of the limits go
}

// carry carries requests out: it makes attempts until there is a reply, or the last caller has left.
func (s *Store) carry(l *lane, requests []*request) {
	x := newExchange(s, l, requests)
	ctx, cancel := context.WithDeadline(s.ctx, x.end)
	defer cancel()
	for !x.over {
		if x.failure != nil {
			// whether the context has ended is seen below
			_ = pause.For(ctx, min(time.Millisecond<<min(x.tries, 6), 50*time.Millisecond))
		}
		if ctx.Err() != nil || x.abandoned() {
			x.finish(x.unanswered())
			return
		}
		x.tries++
		x.receive(x.attempt())
	}
}

func newExchange(s *Store, l *lane, requests []*request) *exchange {
	x := &exchange{store: s, lane: l, requests: requests}
	for _, r := range requests {
		if r.end.After(x.end) {
			x.end = r.end
		}
		for i := range r.charges {
			x.locks = x.locks || r.charges[i].op != weir.OpPeek
		}
		x.charges += len(r.charges)
	}
	return x
}

// abandoned reports whether all callers have left: no attempt is made for none of them.
func (x *exchange) abandoned() bool {
	return !slices.ContainsFunc(x.requests, func(r *request) bool { return !r.left.Load() })
}

// unanswered is the error for requests without a reply.
func (x *exchange) unanswered() error {
	err := fmt.Errorf("weirsql: no reply: %w", context.DeadlineExceeded)
	switch {
	case x.store.ctx.Err() != nil:
		return errClosed
	case x.failure != nil:
		return because(err, x.failure)
	}
	return err
}

// finish ends all requests.
func (x *exchange) finish(err error) {
	x.over = true
	for _, r := range x.requests {
		r.finish(err)
	}
}

// attempt sends the call once. It waits no longer than Options.Timeout says: a connection may be dead
// without a sign of it.
func (x *exchange) attempt() (string, error) {
	s := x.store
	// It waits for a reply even when all callers have left: a driver would close the connection otherwise.
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout(x.charges))
	defer cancel()
	if x.number == 0 {
		x.lane.number++
		x.number, x.expiry, x.sent = x.lane.number, s.clock.expiry(x.end), time.Now()
	}
	return s.querier.Query(ctx, "SELECT "+s.schema+".carry_out($1::bigint, $2::bigint, $3::bigint, $4::boolean, $5::text[], $6::text[], $7::bytea[], $8::bigint[], $9::text[])", x.args()...)
}

// longAgo is by how many milliseconds the charges of a caller that has left expire sooner than the call.
// The call keeps its number and shape, as an earlier attempt may have been carried out; if none was,
// these charges are late.
const longAgo = 1 << 50

// args writes the call down: see carry.sql.
func (x *exchange) args() []string {
	lane := x.lane.id
	if !x.locks {
		lane = 0
	}
	var ids, defs []string
	for _, r := range x.requests {
		for i := range r.charges {
			ids = append(ids, r.charges[i].id)
			if def := r.charges[i].limit.def; !slices.Contains(defs, def) {
				defs = append(defs, def)
			}
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var numbers []byte
	var papers []string
	group := int64(0)
	for _, r := range x.requests {
		early := int64((x.end.Sub(r.end) + time.Millisecond - 1) / time.Millisecond)
		if r.left.Load() {
			early = longAgo
		}
		last := 0
		for i := range r.charges {
			c := &r.charges[i]
			key, _ := slices.BinarySearch(ids, c.id)
			if c.group > 0 && c.group != last {
				group++ // the groups of each request are its own
			}
			last = c.group
			of := group
			if c.group == 0 {
				of = 0
			}
			for _, v := range [...]int64{int64(key) + 1, int64(slices.Index(defs, c.limit.def)) + 1, int64(c.op), c.cost, of, c.more, early} {
				numbers = append(strconv.AppendInt(numbers, v, 10), ',')
			}
			papers = append(papers, c.paper)
		}
	}
	for i, id := range ids {
		ids[i] = `\x` + hex.EncodeToString([]byte(id))
	}
	return []string{
		strconv.FormatInt(lane, 10), strconv.FormatInt(x.number, 10), strconv.FormatInt(x.expiry, 10), strconv.FormatBool(x.store.opts.Durable),
		array(defs), array(x.calendars()), array(ids), "{" + string(numbers[:len(numbers)-1]) + "}", array(papers),
	}
}

// array writes texts as an array of PostgreSQL.
func array(texts []string) string {
	b := []byte{'{'}
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		for _, c := range []byte(text) {
			if c == '"' || c == '\\' {
				b = append(b, '\\')
			}
			b = append(b, c)
		}
		b = append(b, '"')
	}
	return string(append(b, '}'))
}

// receive reads the result of an attempt.
func (x *exchange) receive(text string, err error) {
	x.failure = nil
	if err == nil {
		x.store.failure.Store(nil)
		x.read(text)
		return
	}
	state := stateOf(err)
	switch {
	case state == stateWindows:
		if !x.lacking(lackingOf(err)) {
			x.finish(fmt.Errorf("weirsql: the windows that are needed are not found: %w", err))
		}
	case isMissing(err):
		x.finish(fmt.Errorf("weirsql: the tables and functions of schema %s are not there, or this user may not use them: run `%s`: %w", x.store.schema, x.store.opts.Schema.command(), err))
	case repeatable(state):
		x.failure = err
		x.store.failure.Store(&err)
		x.unsure = x.unsure || state == "" && x.expiry != unknown
	case len(x.requests) > 1: // one of them may be the reason
		for _, r := range x.requests {
			x.store.carry(x.lane, []*request{r})
		}
		x.over = true
	case state == stateForeign || strings.HasPrefix(state, "22"):
		x.finish(fmt.Errorf("%w: %w", weir.ErrCharge, err))
	default:
		x.finish(fmt.Errorf("weirsql: %w", err))
	}
}

// The errors of the functions.
const (
	stateWindows = "WR002" // windows are needed that were not sent
	stateForeign = "WR003" // a row holds what the functions cannot read
)

// repeatable reports whether a call may succeed when it is repeated: there was no reply, or the server
// did nothing and would do it a little later. The number of a call makes repeating it harmless.
func repeatable(state string) bool {
	if len(state) != 5 {
		return true
	}
	switch state {
	case "25006", "55P03", "57014": // a standby, a row that is locked, a statement that was cancelled
		return true
	}
	switch state[:2] {
	case "08", "40", "53", "57", "58": // connections, deadlocks, resources, operators, files
		return true
	}
	return false
}

// read gives each charge its result.
func (x *exchange) read(text string) {
	head, rest, _ := strings.Cut(text, ";")
	words := strings.Fields(head)
	if len(words) == 2 {
		x.nothing(words[0], words[1])
		return
	}
	n, err := numbers(words, 4)
	replies := strings.Split(rest, ";")
	if err != nil || len(replies) != x.charges {
		x.finish(errReply)
		return
	}
	x.store.clock.see(n[0], x.sent)
	x.store.inexact.Add(uint64(n[3]))
	if n[1] > 0 {
		x.store.steps.Stepped(n[1], scripted.Span(n[2]))
	}
	var again []*request
	for _, r := range x.requests {
		for i := range r.charges {
			r.charges[i].read(replies[0])
			replies = replies[1:]
		}
		switch {
		case r.charges[0].err != errLate:
			r.finish(nil)
		case r.waits(time.Now()): // late by the server's clock: now that is known
			again = append(again, r)
		default:
			r.finish(errLate)
		}
	}
	x.over = true
	if again != nil {
		x.store.carry(x.lane, again)
	}
}

// nothing reads the reply to a call that was not carried out.
func (x *exchange) nothing(why, reading string) {
	now, err := strconv.ParseInt(reading, 10, 64)
	if err != nil {
		x.finish(errReply)
		return
	}
	switch why {
	case "LATE":
		// What was known of the server's clock was wrong, or nothing. Where an earlier attempt may have been
		// carried out, this is the end: its reply is lost.
		x.store.clock.set(now)
		if x.unsure {
			x.finish(errUnsure)
		}
		x.number = 0
	case "LOCK":
		x.locks = true
	case "STALE":
		x.finish(errUnsure)
	default:
		x.finish(errReply)
	}
}

var (
	errReply  = errors.New("weirsql: this is no reply of the stored functions")
	errUnsure = errors.New("weirsql: no reply in time: the charge may have been carried out or not")
)

// numbers reads whole numbers.
func numbers(words []string, n int) ([]int64, error) {
	if len(words) != n {
		return nil, errReply
	}
	all := make([]int64, n)
	for i := range all {
		var err error
		if all[i], err = strconv.ParseInt(words[i], 10, 64); err != nil {
			return nil, errReply
		}
	}
	return all, nil
}

// read reads the reply to a charge.
func (c *charge) read(text string) {
	c.err = nil
	words := strings.Split(text, " ")
	switch words[0] {
	case "LATE":
		c.err = errLate
		return
	case "EXPIRED":
		c.err = fmt.Errorf("limit %q: %w", c.name, weir.ErrExpired)
		return
	case "NOCOUNT":
		c.err = fmt.Errorf("%w: limit %q: only the count of a FixedWindow can be given back without a receipt", weir.ErrCharge, c.name)
		c.decision = weir.Decision{RetryAfter: weir.Never, By: c.name, Source: weir.SourceStore}
		return
	}
	n, err := numbers(words[:min(3, len(words))], 3)
	if err != nil {
		c.err = err
		return
	}
	c.decision = weir.Decision{
		Allowed:    n[0] == 0,
		Limit:      c.limit.capacity,
		Remaining:  n[1],
		RetryAfter: scripted.Span(n[0]),
		ResetAfter: scripted.Span(n[2]),
		By:         c.name,
		Source:     weir.SourceStore,
	}
	if n[1] == most && c.limit.capacity > most {
		c.decision.Remaining = c.limit.capacity
	}
	words = words[3:]
	if (c.op == weir.OpReserve || c.op == weir.OpTakeSome) && len(words) > 0 {
		v, err := strconv.ParseInt(words[0], 10, 64)
		if err != nil {
			c.err = errReply
			return
		}
		if c.op == weir.OpReserve {
			c.delay = scripted.Span(v)
		} else {
			c.taken = v
		}
		words = words[1:]
	}
	if c.receipt = ""; len(words) > 0 {
		c.receipt = weir.Receipt(words[0])
	}
}

// lackingOf returns what a call lacked: a time or the name of a calendar.
func lackingOf(err error) string {
	_, text, _ := strings.Cut(err.Error(), "lacks ")
	text, _, _ = strings.Cut(text, " ")
	return strings.TrimSuffix(text, "\"")
}
