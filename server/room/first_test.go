package room

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/policy"
)

// TestPostsWithoutCookiesFillNoRoom is the case that was found: with `inside: 100`, POSTs without cookies took
// 100 places in 40 s.
func TestPostsWithoutCookiesFillNoRoom(t *testing.T) {
	w := newWorld(t, policy.WaitingRoom{Admit: weir.PerSecond(1000), Inside: 100})
	for range 400 {
		if resp := w.askOnce(request{method: "POST"}); resp.StatusCode != 429 || body(resp) != "refused" {
			t.Fatalf("%d", resp.StatusCode)
		}
		w.after(100 * time.Millisecond)
	}
	if w.came != 0 {
		t.Errorf("%d came through", w.came)
	}
	resp := w.ask(request{header: html(), address: "10.0.0.2"})
	if s := w.room.Stats(); resp.StatusCode != 200 || s.Inside != 1 || s.Waiting != 0 {
		t.Errorf("%d, %+v", resp.StatusCode, s)
	}
}

// TestOneAddressHasABound: however its clients behave, one address has at most visitors_per_address
// waiting or inside, and a client that does not send its ticket back has none. Visitors of other
// addresses still enter.
func TestOneAddressHasABound(t *testing.T) {
	random := seeds.Of(t.Name())
	for range 40 {
		def := policy.WaitingRoom{Admit: weir.PerSecond(int64(1 + random.IntN(50))), Inside: int64(30 + random.IntN(100)), Joins: weir.PerSecond(1000)}
		def.VisitorsPerAddress = int64(1 + random.IntN(20))
		w := newWorld(t, def)
		var kept []request // tickets that the attacker kept
		for range 300 {
			w.after(time.Duration(random.IntN(2000)) * time.Millisecond)
			q := attack(random, kept)
			resp := w.askOnce(q)
			if ticket := resp.Header.Get("Weir-Ticket"); ticket != "" && random.IntN(2) == 0 {
				q.ticket, q.cookie = ticket, ""
				kept = append(kept, q)
			} else if cookie := cookieOf(resp); cookie != "" && random.IntN(2) == 0 {
				q.ticket, q.cookie = "", cookie
				kept = append(kept, q)
			}
			s := w.room.Stats()
			if n := s.Waiting + s.Inside; n > def.VisitorsPerAddress || n > int64(len(kept)) {
				t.Fatalf("%d wait or are inside; one address may bring %d, and kept %d tickets", n, def.VisitorsPerAddress, len(kept))
			}
		}
		w.after(time.Minute)
		if resp := w.ask(request{header: html(), address: "10.0.0.2"}); resp.StatusCode != 200 {
			t.Errorf("another address: %d, %+v", resp.StatusCode, w.room.Stats())
		}
	}
}

// attack returns a request of a client that wants the whole room: new, or with a ticket of an
// earlier response.
func attack(random *rand.Rand, kept []request) request {
	q := request{method: []string{"GET", "GET", "POST", "HEAD", "OPTIONS"}[random.IntN(5)]}
	if len(kept) > 0 && random.IntN(3) > 0 {
		old := kept[random.IntN(len(kept))]
		q.ticket, q.cookie = old.ticket, old.cookie
	}
	q.header = []map[string]string{nil, html(), jsonOnly(), poll(), {"Accept": "*/*"}}[random.IntN(5)]
	return q
}

// TestSeatsEnd: a visitor counts until the ticket has expired, and not longer.
func TestSeatsEnd(t *testing.T) {
	def := policy.WaitingRoom{Admit: weir.PerSecond(1000), Inside: 100, VisitorsPerAddress: 2, Idle: time.Minute}
	w := newWorld(t, def)
	var tickets []string
	for range 2 {
		tickets = append(tickets, w.ask(request{header: jsonOnly()}).Header.Get("Weir-Ticket"))
	}
	if a := toldBy(t, w.ask(request{header: jsonOnly()})); a.State != "too_many_visitors" {
		t.Errorf("%+v", a)
	}
	if s := w.room.Stats(); s.TooManyVisitors != 1 {
		t.Errorf("%+v", s)
	}
	w.after(50 * time.Second)
	w.ask(request{header: jsonOnly(), ticket: tickets[0]}) // one stays
	w.after(15 * time.Second)
	if resp := w.ask(request{header: jsonOnly()}); resp.StatusCode != 200 {
		t.Errorf("one has left: %d", resp.StatusCode)
	}
	if a := toldBy(t, w.ask(request{header: jsonOnly()})); a.State != "too_many_visitors" {
		t.Errorf("%+v", a)
	}
}

// TestSeatsHaveABound: in memory.
func TestSeatsHaveABound(t *testing.T) {
	s := newSeats()
	for i := range int64(maxSeats + 1000) {
		if !s.take(fmt.Sprint(i), fmt.Sprint("a", i%7), 0, 1000+i, 1<<40) {
			t.Fatal("refused")
		}
	}
	if len(s.byID) != maxSeats || s.byEnd.Len() != maxSeats || len(s.byAddress) != 7 {
		t.Errorf("%d, %d, %d", len(s.byID), s.byEnd.Len(), len(s.byAddress))
	}
	s.expire(1 << 50)
	if len(s.byID) != 0 || s.byEnd.Len() != 0 || len(s.byAddress) != 0 {
		t.Errorf("%d, %d, %d", len(s.byID), s.byEnd.Len(), len(s.byAddress))
	}
}

// TestFirstResponse: a browser is redirected to the same page, an app gets JSON, and other clients
// get the route's response, each with a ticket. If an older ticket was invalid, the next response
// says why.
func TestFirstResponse(t *testing.T) {
	w := newWorld(t, oneADay())
	browser := w.askOnce(request{header: html()})
	if browser.StatusCode != http.StatusSeeOther || browser.Header.Get("Location") != "/sale/" || cookieOf(browser) == "" || browser.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v", browser.StatusCode, browser.Header)
	}
	app := w.askOnce(request{header: jsonOnly()})
	if a := toldBy(t, app); app.StatusCode != 503 || a.State != "new" || a.Ticket == "" || a.Ticket != app.Header.Get("Weir-Ticket") {
		t.Errorf("%d %+v", app.StatusCode, a)
	}
	if other := w.askOnce(request{method: "POST"}); other.StatusCode != 429 || cookieOf(other) == "" {
		t.Errorf("%d %v", other.StatusCode, other.Header)
	}
	w.ask(request{header: jsonOnly()}) // is inside
	for range 2 {                      // the same first ticket is one visitor
		if a := toldBy(t, w.askOnce(request{header: jsonOnly(), ticket: app.Header.Get("Weir-Ticket")})); a.State != "waiting" || a.Waiting != 1 {
			t.Errorf("%+v", a)
		}
	}
	if a := toldBy(t, w.ask(request{header: jsonOnly(), ticket: strings.Repeat("A", 150)})); a.State != "waiting" || a.TicketRefused != "forged" {
		t.Errorf("%+v", a)
	}
}

// TestSamePage: no path makes the redirect of a first response lead to another host.
func TestSamePage(t *testing.T) {
	parts := []string{"/", "\\", "//", "evil.example", ".", "..", "?", "@", ":", "%2f", "%5c", "a"}
	random := seeds.Of(t.Name())
	at, err := url.Parse("http://shop.example/")
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range slices.Concat([]string{"//evil.example/x", "/\\evil.example", "/a?b=c"}, drawn(random, parts)) {
		req := httptest.NewRequest("GET", "/", nil)
		if req.URL, err = url.ParseRequestURI(target); err != nil {
			continue
		}
		page := strings.ReplaceAll(samePage(req), "\\", "/") // as browsers read it
		to, err := at.Parse(page)
		if err != nil || to.Host != "shop.example" {
			t.Errorf("%q leads to %q: %v, %v", target, page, to, err)
		}
	}
}

// drawn returns paths of random parts.
func drawn(random *rand.Rand, parts []string) (all []string) {
	for range 5_000 {
		text := "/"
		for range random.IntN(5) {
			text += parts[random.IntN(len(parts))]
		}
		all = append(all, text)
	}
	return all
}
