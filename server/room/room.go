// Package room is a waiting room in front of a route: visitors are let in in the order in which they came, as fast as the policy says and as
// many as it says, and see their place in line meanwhile. Who waits and who is inside is kept by a Line; what a visitor carries is a
// signed ticket, with which a place outlives a restart.
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

// Options are what a Room is made with.
type Options struct {
	Room    policy.WaitingRoom
	Line    Line
	Secrets Secrets
	Page    []byte // a page of the operator's own, as a template; nil for ours
	Log     *slog.Logger
	Clock   func() int64 // microseconds since the Unix epoch; nil is the machine's
}

// A Room lets visitors in, or has them wait. It is safe for concurrent use.
type Room struct {
	def    policy.WaitingRoom // with its defaults
	line   Line
	signer signer
	page   *template.Template
	log    *slog.Logger
	clock  func() int64
	*lasting
}

// lasting is what of a room outlives a change of its policy.
type lasting struct {
	joins  *keyed.Limiter[string] // by the client's address
	asks   *keyed.Limiter[string] // by the visitor
	counts counts
	out    atomic.Bool // the line did not answer last time
}

// Bounds of what one gateway keeps of addresses and visitors, beyond which the least restricted is forgotten.
const (
	maxAddresses = 1 << 17
	maxAskers    = 1 << 17
)

// askLimit is how often one visitor may ask: those who poll as they are told stay far below it.
func askLimit() weir.Limit { return weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10} }

func joinLimit(r weir.Rate) weir.Limit { return weir.TokenBucket{Rate: r, Burst: r.N} }

// New returns a room. The error says what is wrong with its numbers, or with its page.
func New(o Options) (*Room, error) {
	l := &lasting{}
	var err error
	var clock func() int64 // in nanoseconds
	if o.Clock != nil {
		clock = func() int64 { return o.Clock() * int64(tick) }
	}
	if l.joins, err = keyed.New[string](joinLimit(o.Room.WithDefaults().Joins), keyed.Options{MaxKeys: maxAddresses, Clock: clock}); err != nil {
		return nil, err
	}
	if l.asks, err = keyed.New[string](askLimit(), keyed.Options{MaxKeys: maxAskers, Clock: clock}); err != nil {
		return nil, errors.Join(err, l.joins.Close())
	}
	r, err := build(o, l)
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return r, nil
}

// Next returns the room with other options, which goes on with what this one has counted. This one stays as it is.
func (r *Room) Next(o Options) (*Room, error) { return build(o, r.lasting) }

func build(o Options, l *lasting) (*Room, error) {
	r := &Room{def: o.Room.WithDefaults(), line: o.Line, log: o.Log, clock: o.Clock, lasting: l}
	r.signer = signer{o.Room.Name, o.Secrets}
	if len(o.Secrets.keys) == 0 || o.Line == nil || o.Log == nil {
		return nil, errors.New("room: a room needs a line, a secret and a log")
	}
	if r.clock == nil {
		r.clock = func() int64 { return time.Now().UnixMicro() }
	}
	var err error
	r.page, err = parsePage(o.Page)
	return r, err
}

// Use puts a room that Next returned in force: the bound on joins is changed, which all share.
func (r *Room) Use() error { return r.joins.SetLimit(joinLimit(r.def.Joins)) }

// Close ends what the room keeps beside its line.
func (r *Room) Close() error { return r.close() }

func (l *lasting) close() error { return errors.Join(l.joins.Close(), l.asks.Close()) }

// A Client is who sent a request, as far as the gateway knows.
type Client struct {
	Address string // as policy.ClientKey gives it
	Secure  bool   // it came over TLS
}

// Refusal writes the answer of the route for the refused.
type Refusal func(w http.ResponseWriter)

// Serve decides about a request. It returns true with where to write the answer to, for a visitor who is inside; otherwise the request
// was answered. It takes what is ours out of the request's header fields.
func (r *Room) Serve(w http.ResponseWriter, req *http.Request, c Client, refuse Refusal) (http.ResponseWriter, bool) {
	if isPreflight(req) {
		return w, true
	}
	v := r.meet(req, c)
	v.w, v.refuse = w, refuse
	switch {
	case v.calm():
		return v.pass(v.ticket)
	case v.known && !r.asks.Take(v.ticket.id, 1).Allowed:
		if v.ticket.held == Admitted {
			return v.pass(v.ticket)
		}
		r.counts.hasty.Add(1)
		if v.html {
			v.show(told{State: "kept", PollAfter: r.longest()})
			return nil, false
		}
		v.answer(http.StatusTooManyRequests, told{State: "too_often", PollAfter: shortPause})
		return nil, false
	case !v.known && v.poll:
		v.answer(http.StatusOK, told{State: "unknown", PollAfter: r.longest()})
		return nil, false
	case !v.known && !r.joins.Take(c.Address, 1).Allowed:
		v.turnAway()
		return nil, false
	}
	return v.enter(req.Context())
}

// isPreflight reports whether a browser asks what another origin may do. It never sends a ticket along.
func isPreflight(req *http.Request) bool {
	return req.Method == http.MethodOptions && req.Header.Get("Origin") != "" && req.Header.Get("Access-Control-Request-Method") != ""
}

// enter asks the line about a visitor.
func (v *visit) enter(ctx context.Context) (http.ResponseWriter, bool) {
	q := Question{ID: v.ticket.id, Enter: !v.poll, Join: !v.known && v.joins}
	if v.known {
		q.Held, q.Place, q.End, q.Era, q.Kept = v.ticket.held, v.ticket.place, v.ticket.end, v.ticket.era, v.ticket.kept
	}
	a, err := v.ask(ctx, q)
	if err == nil && a.State == Outside && v.known && v.joins && !v.poll {
		v.why = "finished"
		v.room.counts.finished.Add(1)
		if !v.room.joins.Take(v.client.Address, 1).Allowed {
			v.turnAway()
			return nil, false
		}
		v.ticket = ticket{id: newID()}
		a, err = v.ask(ctx, Question{ID: v.ticket.id, Enter: true, Join: true})
	}
	if err != nil {
		return v.without(ctx)
	}
	switch a.State {
	case Inside:
		if a.Entered {
			v.room.counts.entered.Add(1)
		}
		t := v.admitted(a)
		if v.poll {
			v.answer(http.StatusOK, told{State: "admitted", ticket: &t})
			return nil, false
		}
		return v.pass(t)
	case Called:
		v.answer(http.StatusOK, told{State: "admitted", ticket: v.waiting(a)})
	case Waiting:
		v.wait(a)
	case Full:
		v.room.counts.full.Add(1)
		v.refused("full", v.room.longest())
	case Outside:
		if v.poll {
			v.answer(http.StatusOK, told{State: "unknown", PollAfter: v.room.longest()})
		} else {
			v.refused("refused", v.room.longest())
		}
	}
	return nil, false
}

// ask asks the line, and counts what it noticed.
func (v *visit) ask(ctx context.Context, q Question) (Answer, error) {
	r := v.room
	a, err := r.line.Ask(ctx, q)
	if err != nil {
		if ctx.Err() == nil {
			r.counts.failed.Add(1)
			if !r.out.Swap(true) {
				r.log.Warn("waiting room: its store does not answer", "room", r.def.Name, "on_failure", r.def.OnFailure, "error", err)
			}
		}
		return a, err
	}
	if r.out.Load() && r.out.Swap(false) {
		r.log.Info("waiting room: its store answers again", "room", r.def.Name)
	}
	r.counts.note(a)
	if q.Join && a.State == Waiting {
		r.counts.joined.Add(1)
	}
	return a, nil
}

// without is what happens while the line does not answer: who is inside stays, who waits keeps the place, and who comes gets one.
func (v *visit) without(ctx context.Context) (http.ResponseWriter, bool) {
	r := v.room
	if ctx.Err() != nil {
		return nil, false // nobody is there to answer
	}
	now := r.clock()
	t := v.ticket
	t.kept, t.made = true, now
	switch {
	case v.known && t.held == Admitted:
		left := t.end - now
		t.expires, t.calmTill = now+min(micro(r.def.Idle), left), now+min(r.calm(), left, calmKept)
		if !v.poll {
			return v.pass(t)
		}
		v.answer(http.StatusOK, told{State: "admitted", ticket: &t})
	case r.def.OnFailure == "allow" && !v.poll:
		return v.w, true
	case r.def.OnFailure == "allow":
		v.answer(http.StatusOK, told{State: "admitted"})
	case !v.joins:
		v.refused("refused", r.longest())
	default:
		if !v.known {
			t.held, t.place = InLine, now
		}
		t.expires = now + micro(r.def.Lapse)
		v.show(told{State: "kept", PollAfter: r.pause(800), ticket: &t})
	}
	return nil, false
}

// wait shows a visitor the place in line.
func (v *visit) wait(a Answer) {
	t := v.waiting(a)
	v.show(told{
		State: "waiting", Place: a.Ahead + 1, Ahead: a.Ahead, Waiting: a.Waiting, wait: expected(a), first: int64(t.first),
		PollAfter: v.room.pause(a.Ahead), ticket: t,
	})
}

// waiting is the ticket of who waits, or was called.
func (v *visit) waiting(a Answer) *ticket {
	r, now := v.room, v.room.clock()
	t := ticket{
		held: InLine, id: v.ticket.id, place: a.Place, era: a.Era, made: now, expires: now + micro(r.def.Lapse),
		first: max(v.ticket.first, uint32(min(a.Ahead, 1<<31))),
	}
	if a.State == Called {
		t.place = v.ticket.place
	}
	return &t
}

// admitted is the ticket of who is inside. Times of the line are made those of this clock.
func (v *visit) admitted(a Answer) ticket {
	r, now := v.room, v.room.clock()
	left := a.End - a.Now
	return ticket{
		held: Admitted, id: v.ticket.id, end: a.End, era: a.Era, made: now,
		expires: now + min(micro(r.def.Idle), left), calmTill: now + min(r.calm(), left),
	}
}

func micro(d time.Duration) int64 { return int64(d / tick) }

// calmKept is that while the line does not answer: so that it soon knows again who is inside.
const calmKept = 2 * second

// calm is for how long an admitted ticket is good without asking the line: it knows that its visitor is inside for much longer.
func (r *Room) calm() int64 { return min(micro(r.def.Idle)/10, 30*second) }
