package room

import (
	"encoding/json"
	"errors"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Header fields of ours. A browser needs neither: it has a cookie.
const (
	headerTicket = "Weir-Ticket" // a ticket, both ways, for apps
	headerRoom   = "Weir-Room"   // in a request, poll: only say how it stands; in an answer of a room, the state
)

// visit is one request of a visitor.
type visit struct {
	room   *Room
	client Client
	w      http.ResponseWriter
	req    *http.Request
	refuse Refusal

	bound  string // what of the client a ticket is bound to
	ticket ticket // that came, or with a new id
	known  bool   // it came
	byHand bool   // it came in a header field, or nothing came and the client is no browser
	why    string // a ticket that came was no good: forged, client, expired, finished
	html   bool   // a browser goes to a page
	data   bool   // a program asks for JSON
	poll   bool   // it only asks how it stands
	joins  bool   // it may get a place in line
}

// meet reads what a request says of its visitor.
func (r *Room) meet(req *http.Request, c Client) *visit {
	v := &visit{room: r, client: c, req: req}
	reads := req.Method == http.MethodGet || req.Method == http.MethodHead
	v.poll = req.Method == http.MethodGet && req.Header.Get(headerRoom) == "poll"
	accept := req.Header["Accept"]
	v.html = reads && !v.poll && accepts(accept, "text/html") && !isPart(req.Header)
	v.data = v.poll || !v.html && (accepts(accept, "application/json") || accepts(accept, "application/problem+json"))
	ahead := strings.Contains(req.Header.Get("Sec-Purpose")+req.Header.Get("Purpose"), "prefetch")
	v.joins = req.Method == http.MethodGet && (v.html || v.data) && !ahead
	switch r.def.Bind {
	case "agent":
		v.bound = "agent " + req.UserAgent()
	case "address":
		v.bound = "address " + c.Address
	}
	v.present(c)
	if !v.known {
		v.ticket = ticket{id: newID()}
		v.byHand = v.byHand || !v.html && !v.poll
	}
	req.Header.Del(headerTicket)
	req.Header.Del(headerRoom)
	return v
}

// present reads the ticket: a header field goes before a cookie.
func (v *visit) present(c Client) {
	texts := []string{}
	if text := v.req.Header.Get(headerTicket); text != "" {
		texts, v.byHand = append(texts, text), true
	} else {
		for _, cookie := range v.req.CookiesNamed(v.room.cookieName(c.Secure)) {
			if len(texts) < 4 {
				texts = append(texts, cookie.Value)
			}
		}
	}
	var wrong error
	for _, text := range texts {
		t, err := v.room.signer.verify(text, v.bound, v.room.clock())
		if err == nil {
			v.ticket, v.known = t, true
			return
		}
		wrong = err
	}
	switch {
	case errors.Is(wrong, errExpired):
		v.why = "expired"
		v.room.counts.expired.Add(1)
	case errors.Is(wrong, errClient):
		v.why = "client"
		v.room.counts.client.Add(1)
	case wrong != nil:
		v.why = "forged"
		v.room.counts.forged.Add(1)
	}
}

// isPart reports whether a browser asks for a part of a page, and not for one to go to. Browsers that do not say are believed by Accept.
func isPart(h http.Header) bool {
	switch h.Get("Sec-Fetch-Dest") {
	case "", "document", "iframe", "frame":
		return false
	}
	return true
}

// accepts reports whether a client asks for a type by name.
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

// calm reports whether the visitor is known to be inside without asking.
func (v *visit) calm() bool {
	return v.known && v.ticket.held == Admitted && !v.poll && v.room.clock() < v.ticket.calmTill
}

// cookieName is the name of a ticket's cookie. Over TLS a browser holds it to this host, and nothing that came without TLS can set it.
func (r *Room) cookieName(secure bool) string {
	if secure {
		return "__Host-weir-room-" + r.def.Name
	}
	return "weir-room-" + r.def.Name
}

// give hands a visitor a ticket.
func (v *visit) give(h http.Header, t ticket) string {
	text := v.room.signer.sign(t, v.bound)
	cookie := http.Cookie{
		Name: v.room.cookieName(v.client.Secure), Value: text, Path: "/", HttpOnly: true, Secure: v.client.Secure, SameSite: http.SameSiteLaxMode,
		MaxAge: int(max(1, (t.expires-t.made+second-1)/second)),
	}
	h.Add("Set-Cookie", cookie.String())
	if v.byHand {
		h.Set(headerTicket, text)
	}
	return text
}

// pass lets a request go on. A ticket that was renewed goes along with the answer.
func (v *visit) pass(t ticket) (http.ResponseWriter, bool) {
	if t == v.ticket {
		return v.w, true
	}
	return &inside{ResponseWriter: v.w, visit: v, ticket: t}, true
}

// inside writes the answer of an upstream to a visitor who is given a ticket with it. A cache that others use too must not keep that.
type inside struct {
	http.ResponseWriter
	visit  *visit
	ticket ticket
	begun  bool
}

// WriteHeader writes the header fields.
func (i *inside) WriteHeader(status int) {
	if !i.begun && (status >= 200 || status == http.StatusSwitchingProtocols) {
		i.begun = true
		h := i.Header()
		i.visit.give(h, i.ticket)
		keepPrivate(h)
	}
	i.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the body.
func (i *inside) Write(b []byte) (int, error) {
	if !i.begun {
		i.WriteHeader(http.StatusOK)
	}
	return i.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController flush, and hijack what is upgraded.
func (i *inside) Unwrap() http.ResponseWriter { return i.ResponseWriter }

// keepPrivate has shared caches not store an answer.
func keepPrivate(h http.Header) {
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
	for _, name := range []string{"CDN-Cache-Control", "Surrogate-Control"} { // which go before Cache-Control, for some
		if h.Get(name) != "" {
			h.Set(name, "private")
		}
	}
}

// told is what a visitor is told.
type told struct {
	State     string
	Place     int64
	Ahead     int64
	Waiting   int64
	PollAfter time.Duration
	wait      time.Duration // 0 is not known
	first     int64
	ticket    *ticket // to be given
}

// reply is told as programs read it.
type reply struct {
	State        string `json:"state"`
	Place        int64  `json:"place,omitempty"`
	Ahead        *int64 `json:"ahead,omitempty"`
	Waiting      int64  `json:"waiting,omitempty"`
	ExpectedWait *int64 `json:"expected_wait,omitempty"` // in seconds; not there where it is not known
	PollAfter    int64  `json:"poll_after,omitempty"`    // in seconds
	Refused      string `json:"ticket_refused,omitempty"`
	Ticket       string `json:"ticket,omitempty"`
	Text         *lines `json:"text,omitempty"` // for the page of a browser
}

// show answers who has to wait: with the page, with JSON, or with a refusal.
func (v *visit) show(t told) {
	switch {
	case v.html:
		v.showPage(t)
	case v.poll:
		v.answer(http.StatusOK, t)
	case v.data:
		v.answer(v.room.status(), t)
	default:
		v.refused("refused", t.PollAfter)
	}
}

// status is of an answer to who has to wait: the request was not carried out.
func (r *Room) status() int { return r.def.Status }

// answer writes JSON.
func (v *visit) answer(status int, t told) {
	if !v.data {
		v.refused(t.State, t.PollAfter)
		return
	}
	h := v.w.Header()
	body := reply{State: t.State, Place: t.Place, Waiting: t.Waiting, PollAfter: seconds(t.PollAfter), Refused: v.why}
	if t.State == "waiting" {
		body.Ahead = &t.Ahead
		if t.wait > 0 {
			wait := seconds(t.wait)
			body.ExpectedWait = &wait
		}
	}
	if v.poll && (t.State == "waiting" || t.State == "kept") {
		l := v.language().lines(t)
		body.Text = &l
	}
	if t.ticket != nil {
		if text := v.give(h, *t.ticket); v.byHand {
			body.Ticket = text
		}
	}
	if t.State != "admitted" {
		h.Set("Retry-After", strconv.FormatInt(seconds(t.PollAfter), 10))
	}
	v.headers(t.State)
	h.Set("Content-Type", "application/json")
	v.w.WriteHeader(status)
	if v.req.Method != http.MethodHead {
		json.NewEncoder(v.w).Encode(body) //nolint:errcheck // the client has gone
	}
}

// headers are those that all answers of a room have.
func (v *visit) headers(state string) {
	h := v.w.Header()
	h.Set(headerRoom, state)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Robots-Tag", "noindex")
}

// refused answers who gets no place: as the route says, or with JSON.
func (v *visit) refused(state string, after time.Duration) {
	if v.data {
		status := http.StatusServiceUnavailable
		if state == "turned_away" {
			status = http.StatusTooManyRequests
		}
		v.answer(status, told{State: state, PollAfter: after})
		return
	}
	v.headers(state)
	v.w.Header().Set("Retry-After", strconv.FormatInt(seconds(after), 10))
	v.refuse(v.w)
}

// turnAway answers whose address has brought too many visitors.
func (v *visit) turnAway() {
	v.room.counts.turnedAway.Add(1)
	v.refused("turned_away", v.room.longest())
}

// seconds are whole ones, rounded up.
func seconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }
