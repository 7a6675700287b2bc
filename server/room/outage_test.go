package room

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestWithoutTheQueue: while the queue is unavailable nobody is admitted, places are kept, and new
// visitors get one.
func TestWithoutTheQueue(t *testing.T) {
	w := newWorld(t, oneADay())
	inside := cookieOf(w.ask(request{header: html()}))
	waiting := cookieOf(w.ask(request{header: html()}))
	w.out = true
	var page *http.Response
	for range 10 { // for longer than a ticket lasts
		w.after(30 * time.Second)
		page = w.ask(request{header: html(), cookie: waiting})
		if text := body(page); page.StatusCode != 503 || !strings.Contains(text, "Your place is kept") || strings.Contains(text, "end of the queue") {
			t.Fatalf("%d %s", page.StatusCode, text)
		}
		waiting = cookieOf(page)
		in := w.ask(request{header: html(), cookie: inside})
		if in.StatusCode != 200 {
			t.Fatalf("who is inside: %d", in.StatusCode)
		}
		if next := cookieOf(in); next != "" {
			inside = next
		}
	}
	newcomer := cookieOf(w.ask(request{header: html()}))
	if a := toldBy(t, w.ask(request{header: poll(), cookie: newcomer})); a.State != "kept" || a.Text == nil {
		t.Errorf("%+v", a)
	}
	if resp := w.ask(request{method: "POST", header: html()}); resp.StatusCode != 429 {
		t.Errorf("%d", resp.StatusCode)
	}
	w.out = false
	w.after(time.Second)
	for i, cookie := range []string{newcomer, waiting} {
		if a := toldBy(t, w.ask(request{header: poll(), cookie: cookie})); a.State != "waiting" {
			t.Errorf("%d: %+v", i, a)
		}
	}
	if a := toldBy(t, w.ask(request{header: poll(), cookie: newcomer})); a.Place != 2 {
		t.Errorf("who came meanwhile: %+v", a)
	}
	w.after(2 * time.Second)
	if resp := w.ask(request{header: html(), cookie: inside}); resp.StatusCode != 200 || w.room.Stats().Inside != 1 {
		t.Errorf("who is inside: %d %+v", resp.StatusCode, w.room.Stats())
	}
	if text := w.log.String(); strings.Count(text, "store unavailable") != 1 || strings.Count(text, "available again") != 1 {
		t.Errorf("%s", text)
	}
	w.room.settings.OnFailure, w.out = "allow", true
	if resp := w.ask(request{header: html()}); resp.StatusCode != 200 {
		t.Errorf("with on_failure: allow: %d", resp.StatusCode)
	}
	if a := toldBy(t, w.ask(request{header: poll(), cookie: waiting})); a.State != "admitted" {
		t.Errorf("%+v", a)
	}
}

// TestVisitorsDoNotWaitForADeadQueue: after three polls without a response, one visitor in a quarter of a
// second waits for the queue, and all others are answered at once. When it is back, so are the visitors.
func TestVisitorsDoNotWaitForADeadQueue(t *testing.T) {
	w := newWorld(t, oneADay())
	w.ask(request{header: html()})
	waiting := cookieOf(w.ask(request{header: html()}))
	w.out, w.polls = true, 0
	polled := func(visitors int, want int) {
		t.Helper()
		w.polls = 0
		for range visitors {
			if a := toldBy(t, w.ask(request{header: poll(), cookie: cookieOf(w.ask(request{header: html()}))})); a.State != "kept" {
				t.Fatalf("%+v", a)
			}
		}
		if w.polls != want {
			t.Errorf("%d polls waited for the queue, want %d", w.polls, want)
		}
	}
	polled(8, 3)
	polled(8, 0)
	w.after(250 * time.Millisecond)
	polled(8, 1)
	w.out = false
	w.after(250 * time.Millisecond)
	if a := toldBy(t, w.ask(request{header: poll(), cookie: waiting})); a.State != "waiting" {
		t.Errorf("%+v", a)
	}
}

// TestBreakerAfterAStepBack: a clock that steps back does not keep a room's breaker open.
func TestBreakerAfterAStepBack(t *testing.T) {
	var b breaker
	const now = int64(time.Hour)
	for range 2 * breakAfter {
		b.polled(now, true)
	}
	if b.allows(now + 1) {
		t.Error("it is closed")
	}
	if early := now / 2; !b.allows(early) || b.allows(early) {
		t.Error("it does not let one poll through")
	}
}

// TestPollTimeout: a visitor who does not poll for poll_timeout loses the place, and the next
// response says so. Later visitors move up.
func TestPollTimeout(t *testing.T) {
	w := newWorld(t, oneADay())
	w.ask(request{header: html()})
	gone, stays := cookieOf(w.ask(request{header: html()})), cookieOf(w.ask(request{header: html()}))
	for range 5 {
		w.after(30 * time.Second)
		stays = cookieOf(w.ask(request{header: html(), cookie: stays}))
	}
	if a := toldBy(t, w.ask(request{header: poll(), cookie: stays})); a.Place != 1 {
		t.Errorf("%+v", a)
	}
	if a := toldBy(t, w.ask(request{header: poll(), cookie: gone})); a.State != "unknown" || a.TicketRefused != "expired" {
		t.Errorf("%+v", a)
	}
	if resp := w.ask(request{header: html(), cookie: gone}); !strings.Contains(body(resp), "end of the queue") {
		t.Errorf("%d", resp.StatusCode)
	}
	if s := w.room.Stats(); s.Lapsed != 1 {
		t.Errorf("%+v", s)
	}
}
