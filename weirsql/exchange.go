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
	order    []sentCharge // their charges, in the order of the replies
	keys     int          // if all of them are for take or take_key: how many keys they have; otherwise 0
	end      time.Time    // of the last caller
	sent     time.Time    // the first attempt with this number
	tries    int
	over     bool
	failure  error // of the latest attempt

	number  int64
	expiry  int64       // by the server's clock, or unknown
	locks   bool        // a charge may change a state
	unsure  bool        // an attempt with this number may have been carried out
	general bool        // carry_out has to decide: take cannot
	times   []int64     // at which windows of calendars are needed, besides those of now
	strange []*calendar // by which other versions of the limits go
}

// A sentCharge is a charge of an exchange, with its request.
type sentCharge struct {
	*charge
	of *request
}

// early is by how many milliseconds the charge expires sooner than the call. If its caller has left, it is late:
// the call keeps its number and shape, as an earlier attempt may have been carried out.
func (c sentCharge) early(end time.Time) int64 {
	if c.of.left.Load() {
		return longAgo
	}
	return int64((end.Sub(c.of.end) + time.Millisecond - 1) / time.Millisecond)
}

// longAgo is longer than any call has.
const longAgo = 1 << 50

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
			x.order = append(x.order, sentCharge{&r.charges[i], r})
		}
	}
	if !slices.ContainsFunc(x.order, func(c sentCharge) bool { return !c.plain() }) {
		x.sort()
	}
	return x
}

// sort orders charges by their keys, as take needs them, if each key has one limit.
func (x *exchange) sort() {
	sorted := slices.Clone(x.order)
	slices.SortStableFunc(sorted, func(a, b sentCharge) int { return strings.Compare(a.id, b.id) })
	keys := 1
	for i := range sorted[1:] {
		switch a, b := sorted[i], sorted[i+1]; {
		case a.id != b.id:
			keys++
		case a.limit.def != b.limit.def:
			return
		}
	}
	x.order, x.keys = sorted, keys
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
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout(len(x.order)))
	defer cancel()
	if x.number == 0 {
		x.lane.number++
		x.number, x.expiry, x.sent = x.lane.number, s.clock.expiry(x.end), time.Now()
	}
	switch {
	case x.keys == 1 && !x.unsure && !x.general:
		return s.querier.Query(ctx, "SELECT "+s.schema+".take_key($1::bigint, $2::bigint, $3::bigint, $4::boolean, $5::boolean, $6::text, $7::bytea, $8::bigint, $9::bigint, $10::bigint, $11::bigint, $12::bigint[])", x.keyArgs()...)
	case x.keys > 0 && !x.unsure && !x.general:
		return s.querier.Query(ctx, "SELECT "+s.schema+".take($1::bigint, $2::bigint, $3::bigint, $4::boolean, $5::text[], $6::bytea[], $7::bigint[])", x.takeArgs()...)
	}
	return s.querier.Query(ctx, "SELECT "+s.schema+".carry_out($1::bigint, $2::bigint, $3::bigint, $4::boolean, $5::text[], $6::text[], $7::bytea[], $8::bigint[], $9::text[])", x.args()...)
}

// takeArgs writes the call down for take.sql.
func (x *exchange) takeArgs() []string {
	ids, defs := make([]string, 0, x.keys), make([]string, 0, x.keys)
	var numbers []byte
	for i := 0; i < len(x.order); {
		first, n := x.order[i], 1
		for i+n < len(x.order) && x.order[i+n].id == first.id {
			n++
		}
		ids, defs = append(ids, hexadecimal(first.id)), append(defs, first.limit.def)
		numbers = number(numbers, int64(n))
		for _, v := range first.limit.plain {
			numbers = number(numbers, v)
		}
		for _, c := range x.order[i : i+n] {
			numbers = number(number(numbers, c.cost), c.early(x.end))
		}
		i += n
	}
	return append(x.head(x.lane.id), array(defs), array(ids), "{"+string(numbers[:len(numbers)-1])+"}")
}

// keyArgs writes the call down for key.sql.
func (x *exchange) keyArgs() []string {
	limit := x.order[0].limit
	args := append(x.head(x.lane.id), strconv.FormatBool(x.lane.refused), limit.def, hexadecimal(x.order[0].id))
	for _, v := range limit.plain {
		args = append(args, strconv.FormatInt(v, 10))
	}
	var charges []byte
	for _, c := range x.order {
		charges = number(number(charges, c.cost), c.early(x.end))
	}
	return append(args, "{"+string(charges[:len(charges)-1])+"}")
}

// head is what all functions begin with.
func (x *exchange) head(lane int64) []string {
	return []string{strconv.FormatInt(lane, 10), strconv.FormatInt(x.number, 10), strconv.FormatInt(x.expiry, 10), strconv.FormatBool(x.store.opts.Durable)}
}

// hexadecimal writes an id as an element of an array.
func hexadecimal(id string) string { return `\x` + hex.EncodeToString([]byte(id)) }

// args writes the call down for carry.sql.
func (x *exchange) args() []string {
	lane := x.lane.id
	if !x.locks {
		lane = 0
	}
	var ids, defs []string
	for _, c := range x.order {
		ids = append(ids, c.id)
		if !slices.Contains(defs, c.limit.def) {
			defs = append(defs, c.limit.def)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var numbers []byte
	var papers []string
	group, last := int64(0), sentCharge{}
	for _, c := range x.order {
		if c.group > 0 && (c.of != last.of || c.group != last.group) {
			group++ // the groups of each request are its own
		}
		last = c
		of := group
		if c.group == 0 {
			of = 0
		}
		key, _ := slices.BinarySearch(ids, c.id)
		for _, v := range [...]int64{int64(key) + 1, int64(slices.Index(defs, c.limit.def)) + 1, int64(c.op), c.cost, of, c.more, c.early(x.end)} {
			numbers = number(numbers, v)
		}
		papers = append(papers, c.paper)
	}
	for i, id := range ids {
		ids[i] = hexadecimal(id)
	}
	return append(x.head(lane), array(defs), array(x.calendars()), array(ids), "{"+string(numbers[:len(numbers)-1])+"}", array(papers))
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
	case state == stateLater: // this reply had been given up
		x.finish(errUnsure)
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
	stateLater   = "WR005" // a later attempt of the call was carried out
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
	if text == "OTHER" {
		x.general = true
		return
	}
	head, rest, _ := strings.Cut(text, ";")
	words := strings.Fields(head)
	if len(words) == 2 {
		x.nothing(words[0], words[1])
		return
	}
	n, err := numbers(words, 4)
	replies := strings.Split(rest, ";")
	if err != nil || len(replies) != len(x.order) {
		x.finish(errReply)
		return
	}
	x.store.clock.see(n[0], x.sent)
	x.store.inexact.Add(uint64(n[3]))
	if n[1] > 0 {
		x.store.steps.Stepped(n[1], scripted.Span(n[2]))
	}
	x.lane.refused = false
	for i, c := range x.order {
		c.read(replies[i])
		x.lane.refused = x.lane.refused || c.err == nil && !c.decision.Allowed
	}
	var again []*request
	for _, r := range x.requests {
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
	if (c.op == weir.OpReserve || c.op == weir.OpTakeSome || c.op == weir.OpPeek) && len(words) > 0 {
		v, err := strconv.ParseInt(words[0], 10, 64)
		if err != nil {
			c.err = errReply
			return
		}
		switch c.op {
		case weir.OpReserve:
			c.delay = scripted.Span(v)
		case weir.OpPeek:
			c.used = v
		default:
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
