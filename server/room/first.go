package room

import (
	"net/http"
	"slices"
)

// A visitor's first request takes no place and no seat: it is given a ticket, and the next request
// that brings the ticket joins the queue, or enters. So a client that does not keep its ticket, and
// would be another visitor with each request, fills neither the queue nor the room. Nothing is
// remembered of a first request.

// firstTicket is the state of a ticket whose visitor has not come back with it yet. No queue sees it.
const firstTicket TicketState = 3

// ticketRefusals are why an earlier ticket was invalid. A first ticket carries the index of one to
// the next response, which tells the visitor.
var ticketRefusals = []string{"", "forged", "client", "expired"}

// isFirst reports whether the visitor has not been given a place yet.
func (v *visit) isFirst() bool { return !v.hasTicket || v.ticket.state == firstTicket }

// giveFirst responds to a visitor without a ticket. A browser is sent to the same page, and comes
// back at once.
func (v *visit) giveFirst() {
	now := v.room.clock()
	t := ticket{
		state: firstTicket, id: v.ticket.id, place: now, made: now, expires: now + micros64(v.room.settings.PollTimeout),
		sessionEnd: int64(max(0, slices.Index(ticketRefusals, v.ticketRefusal))),
	}
	h := v.w.Header()
	switch {
	case v.wantsHTML:
		v.setTicket(h, t)
		v.setHeaders("new")
		h.Set("Location", samePage(v.req))
		v.w.WriteHeader(http.StatusSeeOther)
	case v.wantsJSON:
		v.writeReply(v.room.status(), reply{State: "new", ticket: &t})
	default:
		v.setTicket(h, t)
		v.refuseVisit("new", 0)
	}
}

// samePage is a reference to the page of a request. A path that begins with two slashes would name
// another host; browsers read a backslash as a slash.
func samePage(req *http.Request) string {
	target := req.URL.RequestURI()
	if len(target) > 1 && (target[1] == '/' || target[1] == '\\') {
		return "/." + target
	}
	return target
}

// readFirst reads a ticket of a visitor who comes back for the first time.
func (v *visit) readFirst() {
	if n := v.ticket.sessionEnd; n > 0 && n < int64(len(ticketRefusals)) {
		v.ticketRefusal = ticketRefusals[n]
	}
	v.ticket.sessionEnd = 0
}
