// Package room is a waiting room in front of a route. Visitors are admitted in order of arrival, by
// rate and by number inside, and see their place in the queue meanwhile. A Queue keeps the visitors
// who wait and who are inside. Each visitor carries a signed ticket, which restores the place after
// a restart.
package room

import (
	"context"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/policy"
)

// Options are the parameters of New.
type Options struct {
	Room    policy.WaitingRoom
	Queue   Queue
	Secrets Secrets
	Page    []byte // the operator's own page, a template; default: the built-in one
	Log     *slog.Logger
	Clock   func() int64 // microseconds since the Unix epoch; default: the machine's clock
}

// A Room admits visitors or makes them wait. It is safe for concurrent use.
type Room struct {
	settings policy.WaitingRoom // with defaults filled in
	queue    Queue
	signer   signer
	page     *template.Template
	log      *slog.Logger
	clock    func() int64
	*persistent
}

// persistent is the part of a room that survives a reload of the policy.
type persistent struct {
	joins     *keyed.Limiter[string] // per client address
	polls     *keyed.Limiter[string] // per visitor
	seats     *seats
	counts    counts
	storeDown atomic.Bool // the latest poll failed
	breaker   breaker
}

// How many addresses and visitors one gateway keeps; beyond it, the least restricted one is
// evicted.
const (
	maxAddresses = 1 << 17
	maxPollers   = 1 << 17
)

// pollLimit is how often one visitor may poll. Visitors who respect poll_after stay far below it.
func pollLimit() weir.Limit { return weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10} }

func joinLimit(r weir.Rate) weir.Limit { return weir.TokenBucket{Rate: r, Burst: r.N} }

// New returns a room. The error is about its parameters or its page.
func New(o Options) (*Room, error) {
	l := &persistent{seats: newSeats()}
	var err error
	var clock func() int64 // in nanoseconds
	if o.Clock != nil {
		clock = func() int64 { return o.Clock() * int64(tick) }
	}
	if l.joins, err = keyed.New[string](joinLimit(o.Room.WithDefaults().Joins), keyed.Options{MaxKeys: maxAddresses, Clock: clock}); err != nil {
		return nil, err
	}
	if l.polls, err = keyed.New[string](pollLimit(), keyed.Options{MaxKeys: maxPollers, Clock: clock}); err != nil {
		return nil, errors.Join(err, l.joins.Close())
	}
	r, err := build(o, l)
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return r, nil
}

// Next returns a room with other options that continues the counters of this one. This one stays
// unchanged.
func (r *Room) Next(o Options) (*Room, error) { return build(o, r.persistent) }

func build(o Options, l *persistent) (*Room, error) {
	r := &Room{settings: o.Room.WithDefaults(), queue: o.Queue, log: o.Log, clock: o.Clock, persistent: l}
	r.signer = signer{o.Room.Name, o.Secrets}
	if len(o.Secrets.keys) == 0 || o.Queue == nil || o.Log == nil {
		return nil, errors.New("room: a room needs a queue, a secret and a log")
	}
	if r.clock == nil {
		r.clock = func() int64 { return time.Now().UnixMicro() }
	}
	var err error
	r.page, err = parsePage(o.Page)
	return r, err
}

// Use activates a room that Next returned: it changes the limit on joins, which both rooms share.
func (r *Room) Use() error { return r.joins.SetLimit(joinLimit(r.settings.Joins)) }

// Close releases the room's limiters. The queue is the caller's to close.
func (r *Room) Close() error { return r.close() }

func (l *persistent) close() error { return errors.Join(l.joins.Close(), l.polls.Close()) }

// A Client is the sender of a request, as far as the gateway knows.
type Client struct {
	Address string // from policy.ClientKey
	Secure  bool   // the request came over TLS
	Plain   bool   // the route has no response of its own to refused requests
}

// Refusal writes the route's response to refused requests.
type Refusal func(w http.ResponseWriter)

// Serve decides about a request. For a visitor inside it returns true and the writer for the
// upstream's response. Otherwise it has written a response. It removes Weir's own headers from the
// request.
func (r *Room) Serve(w http.ResponseWriter, req *http.Request, c Client, refuse Refusal) (http.ResponseWriter, bool) {
	if isPreflight(req) {
		return w, true
	}
	v := r.newVisit(req, c)
	v.w, v.refuse = w, refuse
	switch {
	case v.isTrusted():
		return v.passOn(v.ticket)
	case v.hasTicket && !r.polls.Take(v.ticket.id, 1).Allowed:
		if v.ticket.state == InsideTicket {
			return v.passOn(v.ticket)
		}
		r.counts.pollsTooOften.Add(1)
		if v.wantsHTML {
			v.show(reply{State: "kept", PollAfter: r.longestDelay()})
			return nil, false
		}
		v.writeReply(http.StatusTooManyRequests, reply{State: "too_often", PollAfter: shortestDelay})
		return nil, false
	case !v.hasTicket && v.pollOnly:
		v.writeReply(http.StatusOK, reply{State: "unknown", PollAfter: r.longestDelay()})
		return nil, false
	case r.settings.Drain && v.isFirst():
		v.refuseClosed()
		return nil, false
	case !v.hasTicket && !r.joins.Take(c.Address, 1).Allowed:
		v.refuseJoin()
		return nil, false
	case !v.hasTicket:
		v.giveFirst()
		return nil, false
	}
	return v.decide(req.Context())
}

// isPreflight reports whether a request is a CORS preflight. Browsers never send a ticket with one.
func isPreflight(req *http.Request) bool {
	return req.Method == http.MethodOptions && req.Header.Get("Origin") != "" && req.Header.Get("Access-Control-Request-Method") != ""
}

// decide polls the queue and responds by the result.
func (v *visit) decide(ctx context.Context) (http.ResponseWriter, bool) {
	first := v.isFirst()
	if first && !v.takeSeat() {
		v.refuseVisitor()
		return nil, false
	}
	q := Poll{ID: v.ticket.id, Enter: !v.pollOnly, Join: first && v.mayJoin && !v.pollOnly}
	if !first {
		q.Ticket, q.Place, q.End, q.Started, q.Provisional = v.ticket.state, v.ticket.place, v.ticket.sessionEnd, v.ticket.started, v.ticket.provisional
	}
	a, err := v.pollQueue(ctx, q)
	if err == nil && a.State == Unknown && !first && v.mayJoin && !v.pollOnly {
		v.ticketRefusal = "finished"
		v.room.counts.finished.Add(1)
		if v.room.settings.Drain {
			v.refuseClosed()
			return nil, false
		}
		if !v.room.joins.Take(v.client.Address, 1).Allowed {
			v.refuseJoin()
			return nil, false
		}
		v.room.seats.leave(v.ticket.id)
		v.ticket = ticket{id: newID()}
		if !v.takeSeat() {
			v.refuseVisitor()
			return nil, false
		}
		a, err = v.pollQueue(ctx, Poll{ID: v.ticket.id, Enter: true, Join: true})
	}
	if err != nil {
		return v.decideWithoutStore(ctx)
	}
	v.keepSeat(a)
	switch a.State {
	case Inside:
		if a.Entered {
			v.room.counts.entered.Add(1)
		}
		t := v.insideTicket(a)
		if v.pollOnly {
			v.writeReply(http.StatusOK, reply{State: "admitted", ticket: &t})
			return nil, false
		}
		return v.passOn(t)
	case Admitted:
		v.writeReply(http.StatusOK, reply{State: "admitted", ticket: v.waitingTicket(a)})
	case Waiting:
		v.showWaiting(a)
	case Full:
		v.room.counts.full.Add(1)
		v.refuseVisit("full", v.room.longestDelay())
	case Unknown:
		if v.pollOnly {
			v.writeReply(http.StatusOK, reply{State: "unknown", PollAfter: v.room.longestDelay()})
		} else {
			v.refuseVisit("refused", v.room.longestDelay())
		}
	}
	return nil, false
}

// pollQueue polls the queue and counts the events that it reports.
func (v *visit) pollQueue(ctx context.Context, q Poll) (Standing, error) {
	r := v.room
	if !r.breaker.allows(r.clock()) {
		r.counts.storeFailures.Add(1)
		return Standing{}, errOpen
	}
	q.Lot = r.signer.lot(q.ID)
	a, err := r.queue.Poll(ctx, q)
	if ctx.Err() == nil { // a visitor who leaves says nothing about the queue
		r.breaker.polled(r.clock(), err != nil)
	}
	if err != nil {
		if ctx.Err() == nil {
			r.counts.storeFailures.Add(1)
			if !r.storeDown.Swap(true) {
				r.log.Warn("waiting room: store unavailable", "room", r.settings.Name, "on_failure", r.settings.OnFailure, "error", err)
			}
		}
		return a, err
	}
	if r.storeDown.Load() && r.storeDown.Swap(false) {
		r.log.Info("waiting room: store available again", "room", r.settings.Name)
	}
	r.counts.note(a)
	if q.Join && a.State == Waiting {
		r.counts.joined.Add(1)
	}
	return a, nil
}

// decideWithoutStore decides while the queue is unavailable: visitors inside stay, waiting ones
// keep their places, and new ones get one.
func (v *visit) decideWithoutStore(ctx context.Context) (http.ResponseWriter, bool) {
	r := v.room
	if ctx.Err() != nil {
		return nil, false // the client has disconnected
	}
	now := r.clock()
	t := v.ticket
	t.provisional, t.made = true, now
	if v.isFirst() {
		t.state, t.place = WaitingTicket, now
		if r.untilOpening(now) > 0 {
			t.place = 0 // drawn by lot
		}
	}
	switch {
	case v.hasTicket && t.state == InsideTicket:
		left := t.sessionEnd - now
		t.expires, t.trustedUntil = now+min(micros64(r.settings.Idle), left), now+min(r.trustTime(), left, trustWhileDown)
		if !v.pollOnly {
			return v.passOn(t)
		}
		v.writeReply(http.StatusOK, reply{State: "admitted", ticket: &t})
	case r.settings.OnFailure == "allow" && !v.pollOnly:
		return v.w, true
	case r.settings.OnFailure == "allow":
		v.writeReply(http.StatusOK, reply{State: "admitted"})
	case !v.mayJoin:
		v.refuseVisit("refused", r.longestDelay())
	default:
		t.expires = now + micros64(r.settings.PollTimeout)
		v.show(reply{State: "kept", PollAfter: r.pollDelay(800), ticket: &t})
	}
	return nil, false
}

// takeSeat reports whether the visitor's address may bring one more.
func (v *visit) takeSeat() bool {
	r, now := v.room, v.room.clock()
	return r.seats.take(v.ticket.id, v.client.Address, now, now+micros64(r.settings.PollTimeout), r.settings.VisitorsPerAddress)
}

// keepSeat counts the visitor for as long as the ticket that they are given is good.
func (v *visit) keepSeat(a Standing) {
	r, now := v.room, v.room.clock()
	switch a.State {
	case Inside:
		r.seats.keep(v.ticket.id, v.client.Address, now, now+min(micros64(r.settings.Idle), a.End-a.Now))
	case Waiting, Admitted:
		r.seats.keep(v.ticket.id, v.client.Address, now, now+micros64(r.settings.PollTimeout))
	default:
		r.seats.leave(v.ticket.id)
	}
}

// showWaiting shows a visitor the place in the queue.
func (v *visit) showWaiting(a Standing) {
	t := v.waitingTicket(a)
	if left := v.room.untilOpening(a.Now); left > 0 {
		v.show(reply{State: "before", Waiting: a.Waiting, opensIn: left, PollAfter: v.room.delayBefore(left, a), ticket: t})
		return
	}
	wait := expectedWait(a)
	if v.room.settings.Pause {
		wait = 0 // not known
	}
	v.show(reply{
		State: "waiting", Place: a.Ahead + 1, Ahead: a.Ahead, Waiting: a.Waiting, wait: wait, first: int64(t.firstAhead),
		PollAfter: v.room.pollDelay(a.Ahead), ticket: t,
	})
}

// waitingTicket is the ticket of a visitor who waits or was admitted.
func (v *visit) waitingTicket(a Standing) *ticket {
	r, now := v.room, v.room.clock()
	t := ticket{
		state: WaitingTicket, id: v.ticket.id, place: a.Place, started: a.Started, made: now, expires: now + micros64(r.settings.PollTimeout),
		firstAhead: max(v.ticket.firstAhead, uint32(min(a.Ahead, 1<<31))),
	}
	if a.State == Admitted {
		t.place = v.ticket.place
	}
	if r.untilOpening(a.Now) > 0 { // a ticket can be read, and a visitor who knew the lot could come again for a better one
		t.place, t.firstAhead = 0, 0
	}
	return &t
}

// untilOpening is how long it is until the room opens, at a reading of a clock; at most 0 if it is open.
func (r *Room) untilOpening(now int64) time.Duration {
	if r.settings.Opens.IsZero() {
		return 0
	}
	return time.Duration(r.settings.Opens.UnixMicro()-now) * tick
}

// insideTicket is the ticket of a visitor inside. It converts times of the queue to this gateway's
// clock.
func (v *visit) insideTicket(a Standing) ticket {
	r, now := v.room, v.room.clock()
	left := a.End - a.Now
	return ticket{
		state: InsideTicket, id: v.ticket.id, sessionEnd: a.End, started: a.Started, made: now,
		expires: now + min(micros64(r.settings.Idle), left), trustedUntil: now + min(r.trustTime(), left),
	}
}

func micros64(d time.Duration) int64 { return int64(d / tick) }

// trustWhileDown is the trust time while the queue is unavailable: short, so that the queue soon
// learns again which visitors are inside.
const trustWhileDown = 2 * second

// trustTime is how long the ticket of a visitor inside is valid without a poll. The queue keeps the
// visitor inside for much longer.
func (r *Room) trustTime() int64 { return min(micros64(r.settings.Idle)/10, 30*second) }
