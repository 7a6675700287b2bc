package room

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// world is some gateways with one room, on a clock that stands still until it is set.
type world struct {
	t *testing.T

	clock sync.Mutex
	now   int64

	out  bool // the queue is unavailable
	log  *lockedBuffer
	def  policy.WaitingRoom
	line Queue
	room *Room
	came int // requests that reached the upstream

	polls int // that reached the queue
}

// lockedBuffer is a log in memory.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func newWorld(t *testing.T, def policy.WaitingRoom) *world {
	w := &world{t: t, now: 1_790_000_000_000_000, log: &lockedBuffer{}, def: def}
	w.def.Name = "sale"
	w.start(true)
	return w
}

// start makes the room, with an empty queue if fresh is set, as after a crash.
func (w *world) start(fresh bool) {
	if fresh {
		var err error
		if w.line, err = NewMemory(SpecOf(w.def), w.reading); err != nil {
			w.t.Fatal(err)
		}
	}
	r, err := New(Options{Room: w.def, Queue: w, Secrets: secrets(w.t, secretA), Log: slog.New(slog.NewTextHandler(w.log, nil)), Clock: w.reading})
	if err != nil {
		w.t.Fatal(err)
	}
	w.room = r
	w.t.Cleanup(func() { r.Close() })
}

func (w *world) Poll(ctx context.Context, q Poll) (Standing, error) {
	w.polls++
	if w.out {
		return Standing{}, errors.New("no answer")
	}
	return w.line.Poll(ctx, q)
}

func (w *world) Close() error { return nil }

// after moves the clock.
func (w *world) after(d time.Duration) {
	w.clock.Lock()
	defer w.clock.Unlock()
	w.now += int64(d / tick)
}

// reading reads the clock. The tables of joins evict idle keys in goroutines of their own.
func (w *world) reading() int64 {
	w.clock.Lock()
	defer w.clock.Unlock()
	return w.now
}

// request is one for the sale.
type request struct {
	method, ticket, cookie, agent string
	address                       string
	header                        map[string]string
	secure                        bool
	answers                       map[string]string // header fields of the upstream
}

func html() map[string]string { return map[string]string{"Accept": "text/html,application/xhtml+xml"} }
func jsonOnly() map[string]string {
	return map[string]string{"Accept": "application/json"}
}
func poll() map[string]string {
	return map[string]string{"Accept": "application/json", "Weir-Room": "poll"}
}

// ask makes a request, repeats it with the ticket that a first request gets, and returns the
// response.
func (w *world) ask(q request) *http.Response {
	resp := w.askOnce(q)
	if resp.Header.Get("Weir-Room") != "new" {
		return resp
	}
	if given := resp.Header.Get("Weir-Ticket"); given != "" {
		q.ticket, q.cookie = given, ""
	} else {
		q.ticket, q.cookie = "", cookieOf(resp)
	}
	return w.askOnce(q)
}

// askOnce makes one request, and returns the response. The upstream behind the room responds with
// "inside".
func (w *world) askOnce(q request) *http.Response {
	if q.method == "" {
		q.method = "GET"
	}
	r := httptest.NewRequest(q.method, "/sale/", nil)
	r.Header.Set("User-Agent", q.agent)
	for k, v := range q.header {
		r.Header.Set(k, v)
	}
	if q.ticket != "" {
		r.Header.Set("Weir-Ticket", q.ticket)
	}
	if q.cookie != "" {
		r.Header.Set("Cookie", q.cookie)
	}
	rec := httptest.NewRecorder()
	if q.address == "" {
		q.address = "10.0.0.1"
	}
	next, ok := w.room.Serve(rec, r, Client{Address: q.address, Secure: q.secure}, func(rw http.ResponseWriter) {
		rw.WriteHeader(429)
		rw.Write([]byte("refused"))
	})
	if ok {
		w.came++
		for k := range r.Header {
			if strings.HasPrefix(k, "Weir-") {
				w.t.Errorf("the upstream is shown %s", k)
			}
		}
		for k, v := range q.answers {
			next.Header().Set(k, v)
		}
		next.Write([]byte("inside"))
	}
	return rec.Result()
}

func body(resp *http.Response) string {
	var b bytes.Buffer
	b.ReadFrom(resp.Body)
	return b.String()
}

func toldBy(t *testing.T, resp *http.Response) (a replyJSON) {
	t.Helper()
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	return a
}

// cookieOf returns the cookie that a browser sends back.
func cookieOf(resp *http.Response) string {
	var all []string
	for _, c := range resp.Cookies() {
		all = append(all, c.Name+"="+c.Value)
	}
	return strings.Join(all, "; ")
}

func oneADay() policy.WaitingRoom {
	return policy.WaitingRoom{Admit: weir.PerDay(1), Burst: 1, Joins: weir.PerSecond(1000)}
}

func TestWhoIsAskedWhat(t *testing.T) {
	w := newWorld(t, oneADay())
	first := w.ask(request{header: html()})
	if first.StatusCode != 200 || w.came != 1 || first.Header.Get("Cache-Control") != "private" || first.Header.Get("Weir-Ticket") != "" {
		t.Fatalf("who comes first: %d %v", first.StatusCode, first.Header)
	}
	for _, c := range []struct {
		name   string
		q      request
		status int
		kind   string
		place  bool
	}{
		{"a browser", request{header: html()}, 503, "text/html; charset=utf-8", true},
		{"an app", request{header: jsonOnly()}, 503, "application/json", true},
		{"a browser looking ahead", request{header: map[string]string{"Accept": "text/html", "Sec-Purpose": "prefetch;prerender"}}, 429, "", false},
		{"a browser asking for a picture", request{header: map[string]string{"Accept": "text/html,image/png", "Sec-Fetch-Dest": "image"}}, 429, "", false},
		{"curl", request{header: map[string]string{"Accept": "*/*"}}, 429, "", false},
		{"HEAD", request{method: "HEAD", header: html()}, 429, "", false},
		{"POST", request{method: "POST", header: html()}, 429, "", false},
		{"POST of an app", request{method: "POST", header: jsonOnly()}, 503, "application/json", false},
		{"a question without a ticket", request{header: poll()}, 200, "application/json", false},
		{"a forged ticket", request{header: jsonOnly(), ticket: "AAAA"}, 503, "application/json", true},
	} {
		before := w.room.Stats().Waiting
		resp := w.ask(c.q)
		got := w.room.Stats().Waiting > before
		if resp.StatusCode != c.status || c.kind != "" && resp.Header.Get("Content-Type") != c.kind || got != c.place || (cookieOf(resp) != "") != c.place {
			t.Errorf("%s: %d %s, a place: %v", c.name, resp.StatusCode, resp.Header, got)
		}
		if resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Retry-After") == "" || resp.Header.Get("Weir-Room") == "" {
			t.Errorf("%s: %v", c.name, resp.Header)
		}
	}
	if w.came != 1 {
		t.Errorf("%d came to the upstream", w.came)
	}
	preflight := request{method: "OPTIONS", header: map[string]string{"Origin": "https://a", "Access-Control-Request-Method": "GET"}}
	if resp := w.ask(preflight); resp.StatusCode != 200 || w.came != 2 {
		t.Errorf("a preflight: %d", resp.StatusCode)
	}
}

// TestInsideWithoutPolling: a visitor inside passes by the ticket alone for a while, then one
// request checks the queue, and after idling the visitor has left.
func TestInsideWithoutPolling(t *testing.T) {
	def := oneADay()
	def.Idle, def.Session = 100*time.Second, 250*time.Second
	w := newWorld(t, def)
	resp := w.ask(request{header: html()})
	cookie := cookieOf(resp)
	w.out = true
	if resp := w.ask(request{method: "POST", cookie: cookie}); resp.StatusCode != 200 || cookieOf(resp) != "" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	w.out = false
	for range 2 {
		w.after(99 * time.Second)
		resp := w.ask(request{header: html(), cookie: cookie, answers: map[string]string{"Cache-Control": "public, max-age=60", "CDN-Cache-Control": "max-age=9"}})
		if cookie = cookieOf(resp); resp.StatusCode != 200 || cookie == "" || resp.Header.Get("Cache-Control") != "private, max-age=60" ||
			resp.Header.Get("CDN-Cache-Control") != "private" {
			t.Fatalf("%d %v", resp.StatusCode, resp.Header)
		}
	}
	w.after(53 * time.Second) // the session is over
	if resp := w.ask(request{header: html(), cookie: cookie}); resp.StatusCode != 503 || !strings.Contains(body(resp), "end of the queue") {
		t.Errorf("after the session: %d", resp.StatusCode)
	}
	if s := w.room.Stats(); s.Expired != 1 || s.Left != 1 || s.Entered != 1 {
		t.Errorf("%+v", s)
	}
}

// TestAnEndedVisitIsNotRepeated: when an admitted visitor has left, neither its ticket nor the one of its
// place in the queue is valid for another place.
func TestAnEndedVisitIsNotRepeated(t *testing.T) {
	def := oneADay()
	def.Admit, def.Inside, def.Idle = weir.PerSecond(1000), 1, 10*time.Second
	w := newWorld(t, def)
	w.ask(request{header: jsonOnly()})
	waiting := w.ask(request{header: jsonOnly()}).Header.Get("Weir-Ticket")
	w.after(10 * time.Second)
	in := w.ask(request{header: jsonOnly(), ticket: waiting})
	if in.StatusCode != 200 {
		t.Fatalf("%d %s", in.StatusCode, body(in))
	}
	again := w.ask(request{header: jsonOnly(), ticket: waiting}) // the same visitor again
	if again.StatusCode != 200 || w.room.Stats().Inside != 1 || w.room.Stats().Entered != 2 {
		t.Errorf("%d, %+v", again.StatusCode, w.room.Stats())
	}
	other := w.ask(request{header: jsonOnly()}).Header.Get("Weir-Ticket")
	w.after(11 * time.Second)
	if resp := w.ask(request{header: jsonOnly(), ticket: other}); resp.StatusCode != 200 {
		t.Errorf("the next one: %d", resp.StatusCode)
	}
	resp := w.ask(request{header: jsonOnly(), ticket: waiting}) // its ticket has not expired, but its visit has ended
	if a := toldBy(t, resp); resp.StatusCode != 503 || a.Place != 1 || a.TicketRefused != "finished" {
		t.Errorf("%d %+v", resp.StatusCode, a)
	}
}

// TestRestart: a gateway with its queue in memory crashes. Visitors with tickets get their places
// back, in order, whichever polls first, and those inside stay. Nobody is admitted before they
// could poll.
func TestRestart(t *testing.T) {
	def := oneADay()
	def.Admit, def.Burst = weir.PerSecond(1), 1
	w := newWorld(t, def)
	inside := w.ask(request{header: jsonOnly()}).Header.Get("Weir-Ticket")
	var tickets []string
	for range 5 {
		w.after(tick)
		tickets = append(tickets, w.ask(request{header: jsonOnly()}).Header.Get("Weir-Ticket"))
	}
	w.after(100 * time.Millisecond)
	w.start(true)
	late := w.ask(request{header: jsonOnly()}) // the first visitor that the new gateway sees: it cannot know of the others
	if late.StatusCode != 200 {
		t.Errorf("%d", late.StatusCode)
	}
	if resp := w.ask(request{header: jsonOnly(), ticket: inside}); resp.StatusCode != 200 {
		t.Errorf("who was inside: %d", resp.StatusCode)
	}
	newcomer := ""
	for _, i := range []int{4, 2, 0, 3, 1} {
		resp := w.ask(request{header: jsonOnly(), ticket: tickets[i]})
		if resp.StatusCode != 503 {
			t.Fatalf("%d", resp.StatusCode)
		}
		tickets[i] = resp.Header.Get("Weir-Ticket")
		if newcomer == "" {
			newcomer = w.ask(request{header: jsonOnly()}).Header.Get("Weir-Ticket")
		}
		w.after(5 * time.Second)
	}
	for i, ticket := range append(tickets, newcomer) {
		if a := toldBy(t, w.ask(request{header: poll(), ticket: ticket})); a.State != "waiting" || a.Place != int64(i+1) {
			t.Errorf("number %d: %+v", i+1, a)
		}
	}
	w.after(22 * time.Second) // 45 s after the start the queue moves again: two had their turns by now
	for i, want := range []string{"admitted", "admitted", "admitted", "waiting", "waiting", "waiting"} {
		if a := toldBy(t, w.ask(request{header: poll(), ticket: append(tickets, newcomer)[i]})); a.State != want {
			t.Errorf("number %d: %+v, want %s", i+1, a, want)
		}
	}
}

// TestBounds: the queue is full; an address has too many visitors; a visitor polls too often.
func TestBounds(t *testing.T) {
	def := oneADay()
	def.MaxWaiting, def.Joins = 3, weir.PerMinute(5)
	w := newWorld(t, def)
	for range 4 {
		w.ask(request{header: jsonOnly()})
	}
	resp := w.ask(request{header: jsonOnly()})
	if a := toldBy(t, resp); resp.StatusCode != 503 || a.State != "full" || cookieOf(resp) != "" {
		t.Errorf("%d %+v", resp.StatusCode, a)
	}
	resp = w.ask(request{header: jsonOnly()})
	if a := toldBy(t, resp); resp.StatusCode != 429 || a.State != "too_many_joins" {
		t.Errorf("%d %+v", resp.StatusCode, a)
	}
	if resp := w.ask(request{header: html(), address: "10.0.0.2"}); resp.StatusCode != 429 || body(resp) != "refused" {
		t.Errorf("%d", resp.StatusCode)
	}
	def.MaxWaiting = 0
	w = newWorld(t, def)
	w.ask(request{header: jsonOnly()})
	ticket := w.ask(request{header: jsonOnly()}).Header.Get("Weir-Ticket")
	for range 9 { // and the first with the ticket
		w.ask(request{header: poll(), ticket: ticket})
	}
	resp = w.ask(request{header: poll(), ticket: ticket})
	if a := toldBy(t, resp); resp.StatusCode != 429 || a.State != "too_often" {
		t.Errorf("%d %+v", resp.StatusCode, a)
	}
	if s := w.room.Stats(); s.PollsTooOften != 1 || s.Lapsed != 0 {
		t.Errorf("%+v", s)
	}
}

// TestConcurrentPolls is for the race detector: visitors poll concurrently while the room's
// settings change, and there are never more inside than allowed.
func TestConcurrentPolls(t *testing.T) {
	def := oneADay()
	def.Admit, def.Burst, def.Inside = weir.PerSecond(1000), 1000, 20
	m, err := NewMemory(SpecOf(def), nil)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 200 {
				a, err := m.Poll(t.Context(), Poll{ID: fmt.Sprint(i, j), Join: true, Enter: true})
				if err != nil || a.Inside > 20 {
					t.Errorf("%+v, %v", a, err)
				}
				if i == 0 && j%20 == 0 {
					if err := m.Set(SpecOf(def)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
}

// TestChangeOfTheRate: a raised rate does not apply to the time since the last poll.
func TestChangeOfTheRate(t *testing.T) {
	def := oneADay()
	w := newWorld(t, def)
	for range 11 {
		w.ask(request{header: jsonOnly()})
	}
	w.after(50 * time.Second)
	def.Name, def.Admit = "sale", weir.PerSecond(1)
	if err := w.line.(*Memory).Set(SpecOf(def)); err != nil {
		t.Fatal(err)
	}
	w.ask(request{header: jsonOnly()})
	if s := w.room.Stats(); s.Waiting != 11 {
		t.Errorf("%+v", s)
	}
	w.after(5 * time.Second)
	w.ask(request{header: jsonOnly()})
	if s := w.room.Stats(); s.Waiting != 7 {
		t.Errorf("%+v", s)
	}
}
