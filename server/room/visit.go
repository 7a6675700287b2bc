package room

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Weir's own headers. Browsers need neither: they have a cookie.
const (
	headerTicket = "Weir-Ticket" // a ticket, both ways, for apps
	// in a request, poll: only report the state; in a response of the room, the state
	headerRoom = "Weir-Room"
)

// visit is one request of a visitor.
type visit struct {
	room   *Room
	client Client
	w      http.ResponseWriter
	req    *http.Request
	refuse Refusal

	boundTo        string // the part of the client that a ticket is bound to
	ticket         ticket // the visitor's, or one with a new id
	hasTicket      bool   // the visitor sent a valid ticket
	ticketInHeader bool   // the ticket came in a header; or none came, and the client is no browser
	ticketRefusal  string // why the ticket was invalid: forged, client, expired, finished
	wantsHTML      bool   // a browser navigates to a page
	wantsJSON      bool   // an app asks for JSON
	pollOnly       bool   // the request only asks for the state
	mayJoin        bool   // the visitor may join the queue
	isPreview      bool   // the page is shown to an operator, without its script
}

// newVisit reads the visitor's ticket and wishes from a request.
func (r *Room) newVisit(req *http.Request, c Client) *visit {
	v := &visit{room: r, client: c, req: req}
	reads := req.Method == http.MethodGet || req.Method == http.MethodHead
	v.pollOnly = req.Method == http.MethodGet && req.Header.Get(headerRoom) == "poll"
	accept := req.Header["Accept"]
	v.wantsHTML = reads && !v.pollOnly && accepts(accept, "text/html") && !isSubresource(req.Header)
	v.wantsJSON = v.pollOnly || !v.wantsHTML && (accepts(accept, "application/json") || accepts(accept, "application/problem+json"))
	ahead := strings.Contains(req.Header.Get("Sec-Purpose")+req.Header.Get("Purpose"), "prefetch")
	v.mayJoin = req.Method == http.MethodGet && (v.wantsHTML || v.wantsJSON) && !ahead
	switch r.settings.Bind {
	case "agent":
		v.boundTo = "agent " + req.UserAgent()
	case "address":
		v.boundTo = "address " + c.Address
	}
	v.findTicket(c)
	if !v.hasTicket {
		v.ticket = ticket{id: newID()}
		v.ticketInHeader = v.ticketInHeader || !v.wantsHTML && !v.pollOnly
	}
	req.Header.Del(headerTicket)
	req.Header.Del(headerRoom)
	return v
}

// findTicket reads the ticket: the header takes precedence over the cookie.
func (v *visit) findTicket(c Client) {
	texts := []string{}
	if text := v.req.Header.Get(headerTicket); text != "" {
		texts, v.ticketInHeader = append(texts, text), true
	} else {
		for _, cookie := range v.req.CookiesNamed(v.room.cookieName(c.Secure)) {
			if len(texts) < 4 {
				texts = append(texts, cookie.Value)
			}
		}
	}
	var wrong error
	for _, text := range texts {
		t, err := v.room.signer.verify(text, v.boundTo, v.room.clock())
		if err == nil {
			v.ticket, v.hasTicket = t, true
			if t.state == firstTicket {
				v.readFirst()
			}
			return
		}
		wrong = err
	}
	switch {
	case errors.Is(wrong, errExpired):
		v.ticketRefusal = "expired"
		v.room.counts.expired.Add(1)
	case errors.Is(wrong, errClient):
		v.ticketRefusal = "client"
		v.room.counts.client.Add(1)
	case wrong != nil:
		v.ticketRefusal = "forged"
		v.room.counts.forged.Add(1)
	}
}

// isSubresource reports whether a browser loads a part of a page, and does not navigate to one.
// Browsers without Sec-Fetch-Dest are judged by Accept.
func isSubresource(h http.Header) bool {
	switch h.Get("Sec-Fetch-Dest") {
	case "", "document", "iframe", "frame":
		return false
	}
	return true
}

// accepts reports whether a client accepts a media type by name.
func accepts(accept []string, name string) bool {
	for _, field := range accept {
		for item := range strings.SplitSeq(field, ",") {
			t, parameters, err := mime.ParseMediaType(item)
			if err != nil || t != name {
				continue
			}
			if q, err := strconv.ParseFloat(parameters["q"], 64); err != nil || q > 0 {
				return true
			}
		}
	}
	return false
}

// isTrusted reports whether the visitor is inside by the ticket alone, without a poll.
func (v *visit) isTrusted() bool {
	return v.hasTicket && v.ticket.state == InsideTicket && !v.pollOnly && v.room.clock() < v.ticket.trustedUntil
}

// cookieName is the name of the ticket's cookie. Over TLS, the prefix __Host- binds it to this
// host, and no page without TLS can set it.
func (r *Room) cookieName(secure bool) string {
	if secure {
		return "__Host-weir-room-" + r.settings.Name
	}
	return "weir-room-" + r.settings.Name
}

// setTicket sends a ticket to the visitor.
func (v *visit) setTicket(h http.Header, t ticket) string {
	text := v.room.signer.sign(t, v.boundTo)
	cookie := http.Cookie{
		Name: v.room.cookieName(v.client.Secure), Value: text, Path: "/", HttpOnly: true, Secure: v.client.Secure, SameSite: http.SameSiteLaxMode,
		MaxAge: int(max(1, (t.expires-t.made+second-1)/second)),
	}
	h.Add("Set-Cookie", cookie.String())
	if v.ticketInHeader {
		h.Set(headerTicket, text)
	}
	return text
}

// passOn lets the request go on. A renewed ticket is sent with its response.
func (v *visit) passOn(t ticket) (http.ResponseWriter, bool) {
	if t == v.ticket {
		return v.w, true
	}
	return &ticketWriter{ResponseWriter: v.w, visit: v, ticket: t}, true
}

// ticketWriter adds a ticket to an upstream's response. Shared caches must not store that response.
type ticketWriter struct {
	http.ResponseWriter
	visit       *visit
	ticket      ticket
	wroteHeader bool
}

// WriteHeader implements http.ResponseWriter.
func (i *ticketWriter) WriteHeader(status int) {
	if !i.wroteHeader && (status >= 200 || status == http.StatusSwitchingProtocols) {
		i.wroteHeader = true
		h := i.Header()
		i.visit.setTicket(h, i.ticket)
		makePrivate(h)
	}
	i.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (i *ticketWriter) Write(b []byte) (int, error) {
	if !i.wroteHeader {
		i.WriteHeader(http.StatusOK)
	}
	return i.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController: flushing, and hijacking upgraded connections.
func (i *ticketWriter) Unwrap() http.ResponseWriter { return i.ResponseWriter }

// makePrivate forbids shared caches to store a response.
func makePrivate(h http.Header) {
	var kept []string
	for _, field := range h["Cache-Control"] {
		for item := range strings.SplitSeq(field, ",") {
			item = strings.TrimSpace(item)
			name, _, _ := strings.Cut(strings.ToLower(item), "=")
			switch name {
			case "no-store":
				return
			case "", "private", "public", "s-maxage":
			default:
				kept = append(kept, item)
			}
		}
	}
	h.Set("Cache-Control", strings.Join(append([]string{"private"}, kept...), ", "))
	// some caches prefer these to Cache-Control
	for _, name := range []string{"CDN-Cache-Control", "Surrogate-Control"} {
		if h.Get(name) != "" {
			h.Set(name, "private")
		}
	}
}

// reply is what the room responds with.
type reply struct {
	State     string
	Place     int64
	Ahead     int64
	Waiting   int64
	PollAfter time.Duration
	wait      time.Duration // 0 is unknown
	opensIn   time.Duration // before the opening
	first     int64
	ticket    *ticket // to send; may be nil
}

// replyJSON is a reply as JSON.
type replyJSON struct {
	State         string `json:"state"`
	Place         int64  `json:"place,omitempty"`
	Ahead         *int64 `json:"ahead,omitempty"`
	Waiting       int64  `json:"waiting,omitempty"`
	ExpectedWait  *int64 `json:"expected_wait,omitempty"` // in seconds; absent if unknown
	PollAfter     int64  `json:"poll_after,omitempty"`    // in seconds
	TicketRefused string `json:"ticket_refused,omitempty"`
	Ticket        string `json:"ticket,omitempty"`
	OpensAt       string `json:"opens_at,omitempty"`     // before the opening
	Paused        bool   `json:"paused,omitempty"`       // nobody is admitted for the moment
	Announcement  string `json:"announcement,omitempty"` // of the operator
	Text          *lines `json:"text,omitempty"`         // for the script of the page
}

// show responds to a waiting visitor: with the page, with JSON, or with a refusal.
func (v *visit) show(t reply) {
	switch {
	case v.wantsHTML:
		v.showPage(t)
	case v.pollOnly:
		v.writeReply(http.StatusOK, t)
	case v.wantsJSON:
		v.writeReply(v.room.status(), t)
	default:
		v.refuseVisit("refused", t.PollAfter)
	}
}

// status is that of responses to waiting visitors: the request was not executed.
func (r *Room) status() int { return r.settings.Status }

// writeReply writes a reply as JSON.
func (v *visit) writeReply(status int, t reply) {
	if !v.wantsJSON {
		v.refuseVisit(t.State, t.PollAfter)
		return
	}
	h := v.w.Header()
	body := replyJSON{State: t.State, Place: t.Place, Waiting: t.Waiting, PollAfter: seconds(t.PollAfter), TicketRefused: v.ticketRefusal}
	if t.State == "waiting" {
		body.Ahead = &t.Ahead
		if t.wait > 0 {
			wait := seconds(t.wait)
			body.ExpectedWait = &wait
		}
	}
	switch t.State {
	case "before":
		body.OpensAt = v.room.settings.Opens.UTC().Format(time.RFC3339)
		fallthrough
	case "waiting", "kept":
		body.Paused, body.Announcement = v.room.settings.Pause, v.room.settings.Announce
		if v.pollOnly {
			l := v.lines(t)
			body.Text = &l
		}
	}
	if t.ticket != nil {
		if text := v.setTicket(h, *t.ticket); v.ticketInHeader {
			body.Ticket = text
		}
	}
	if t.State != "admitted" {
		h.Set("Retry-After", strconv.FormatInt(seconds(t.PollAfter), 10))
	}
	v.setHeaders(t.State)
	h.Set("Content-Type", "application/json")
	v.w.WriteHeader(status)
	if v.req.Method != http.MethodHead {
		json.NewEncoder(v.w).Encode(body) //nolint:errcheck // the client has disconnected
	}
}

// setHeaders sets the headers of all responses of a room.
func (v *visit) setHeaders(state string) {
	h := v.w.Header()
	h.Set(headerRoom, state)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Robots-Tag", "noindex")
}

// refuseVisit responds to a visitor who gets no place: as the route says, or with JSON.
func (v *visit) refuseVisit(state string, after time.Duration) {
	if v.wantsJSON {
		status := http.StatusServiceUnavailable
		if state == "too_many_joins" || state == "too_many_visitors" {
			status = http.StatusTooManyRequests
		}
		v.writeReply(status, reply{State: state, PollAfter: after})
		return
	}
	v.setHeaders(state)
	v.w.Header().Set("Retry-After", strconv.FormatInt(max(1, seconds(after)), 10))
	if v.client.Plain && v.req.Method == http.MethodGet && accepts(v.req.Header["Accept"], "*/*") && v.req.Header.Get("Sec-Fetch-Dest") == "" {
		v.explain()
		return
	}
	v.refuse(v.w)
}

// explain responds to a program that says nothing of what it reads, such as curl: with what this is, and how
// to get a place.
func (v *visit) explain() {
	h := v.w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	v.w.WriteHeader(http.StatusTooManyRequests)
	r := v.room
	fmt.Fprintf(v.w, "This is the waiting room %q: visitors are let in by and by, in order of arrival.\n", r.settings.Name)
	if r.untilOpening(r.clock()) > 0 {
		fmt.Fprintf(v.w, "It opens at %s. Visitors who have a place by then are drawn by lot.\n", r.settings.Opens.UTC().Format(time.RFC3339))
	}
	if r.settings.Drain {
		io.WriteString(v.w, "It is being closed: it gives no new places.\n")
		return
	}
	if r.settings.Pause {
		io.WriteString(v.w, "It is paused: nobody is let in for the moment.\n")
	}
	if r.settings.Announce != "" {
		fmt.Fprintf(v.w, "%s\n", r.settings.Announce)
	}
	io.WriteString(v.w, `This request has no place in the queue. A browser gets one by itself. Another program gets one if it
accepts JSON and sends the ticket of each response with the next request:

    curl -L -c ticket -b ticket -H 'Accept: application/json' URL

Repeat that after as many seconds as Retry-After says. When it is your turn, the request passes.
`)
}

// refuseJoin responds to a visitor from an address with too many joins.
func (v *visit) refuseJoin() {
	v.room.counts.tooManyJoins.Add(1)
	v.refuseVisit("too_many_joins", v.room.longestDelay())
}

// refuseClosed responds to a visitor without a place while the room is drained.
func (v *visit) refuseClosed() {
	v.room.counts.closed.Add(1)
	v.refuseVisit("closed", v.room.longestDelay())
}

// refuseVisitor responds to a visitor from an address with too many visitors in the room.
func (v *visit) refuseVisitor() {
	v.room.counts.tooManyVisitors.Add(1)
	v.refuseVisit("too_many_visitors", v.room.longestDelay())
}

// seconds rounds up to whole seconds.
func seconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }
