package room

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// opening is a room that opens in ten minutes.
func opening(t *testing.T, change ...func(*policy.WaitingRoom)) *world {
	t.Helper()
	def := policy.WaitingRoom{Admit: weir.PerSecond(1), Burst: 1, Opens: time.UnixMicro(1_790_000_000_000_000).Add(10 * time.Minute).UTC(), Joins: weir.PerSecond(1000), VisitorsPerAddress: 10_000, PollTimeout: time.Hour}
	for _, c := range change {
		c(&def)
	}
	return newWorld(t, def)
}

// said is the JSON of a response.
func said(t *testing.T, resp *http.Response) (r replyJSON) {
	t.Helper()
	if err := json.Unmarshal([]byte(body(resp)), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestOpening: before the opening nobody is admitted, and nobody learns a place. At the opening, those who have come are admitted
// in an order that says nothing of when they came; those who come later are behind all of them, in order of arrival.
func TestOpening(t *testing.T) {
	w := opening(t)
	const early, late = 200, 20
	tickets := make([]string, 0, early+late)
	for i := range early {
		w.after(2 * time.Second)
		resp := w.ask(request{header: jsonOnly()})
		got := said(t, resp)
		if got.State != "before" || got.OpensAt != "2026-09-21T14:23:20Z" || got.Place != 0 || got.Ahead != nil || got.Waiting != int64(i+1) || got.ExpectedWait != nil {
			t.Fatalf("visitor %d: %+v", i, got)
		}
		tickets = append(tickets, got.Ticket)
		if i%7 == 0 { // some poll
			tickets[i/2] = poller(t, w, tickets[i/2], "before")
		}
	}
	for _, ticket := range tickets {
		v, err := w.room.signer.verify(ticket, "agent ", w.reading())
		if err != nil || v.place != 0 || v.firstAhead != 0 {
			t.Fatalf("a ticket tells the lot: %+v, %v", v, err)
		}
	}
	w.now = w.def.Opens.UnixMicro()
	for range late {
		w.after(10 * time.Millisecond)
		got := said(t, w.ask(request{header: jsonOnly()}))
		if got.State != "waiting" || got.Place < int64(len(tickets))-2 {
			t.Fatalf("one who came late: %+v", got)
		}
		tickets = append(tickets, got.Ticket)
	}
	order := make([]int, 0, len(tickets)) // by place
	places := map[int64]int{}
	for i := range tickets {
		resp := w.askOnce(request{header: poll(), ticket: tickets[i]})
		got := said(t, resp)
		if got.State == "admitted" {
			places[0] = i
			continue
		}
		places[got.Place] = i
	}
	for place := range int64(len(tickets)) {
		if i, ok := places[place]; ok {
			order = append(order, i)
		}
	}
	if len(order) != len(tickets) {
		t.Fatalf("%d have places, of %d", len(order), len(tickets))
	}
	if !slices.Equal(order[early:], []int{200, 201, 202, 203, 204, 205, 206, 207, 208, 209, 210, 211, 212, 213, 214, 215, 216, 217, 218, 219}) {
		t.Errorf("those who came late: %v", order[early:])
	}
	if r := correlation(order[:early]); math.Abs(r) > 0.25 { // 3.5 deviations of a fair draw of 200
		t.Errorf("who came first is first: a correlation of %.2f: %v", r, order[:early])
	}
}

// poller polls, and returns the next ticket.
func poller(t *testing.T, w *world, ticket, state string) string {
	t.Helper()
	w.room.polls.Reset(idOf(t, w, ticket))
	got := said(t, w.askOnce(request{header: poll(), ticket: ticket}))
	if got.State != state || got.Ticket == "" {
		t.Fatalf("%+v", got)
	}
	return got.Ticket
}

func idOf(t *testing.T, w *world, ticket string) string {
	t.Helper()
	v, err := w.room.signer.verify(ticket, "agent ", w.reading())
	if err != nil {
		t.Fatal(err)
	}
	return v.id
}

// correlation is that of the elements of a permutation of 0 to n-1 with their positions.
func correlation(order []int) float64 {
	n := float64(len(order))
	sum := 0.0
	for i, v := range order {
		sum += (float64(i) - (n-1)/2) * (float64(v) - (n-1)/2)
	}
	return sum / (n * (n*n - 1) / 12)
}

// TestLotsAreFair: the lots of many visitors are spread evenly, and another secret gives others.
func TestLotsAreFair(t *testing.T) {
	one, other := signer{"sale", secrets(t, secretA)}, signer{"sale", secrets(t, secretB)}
	var buckets [10]int
	const n = 20_000
	for i := range n {
		id := fmt.Sprint("visitor", i)
		lot := one.lot(id)
		if lot < 1 || lot > MostLot || lot != one.lot(id) || lot == other.lot(id) {
			t.Fatalf("%s: %d", id, lot)
		}
		buckets[(lot-1)*10/MostLot]++
	}
	for i, got := range buckets {
		if got < n/10-250 || got > n/10+250 { // 6 deviations
			t.Errorf("a tenth has %d lots: %d", i, got)
		}
	}
}

// TestOpeningAfterALoss: visitors who came before the opening keep their lots when the queue loses its state, before the opening
// and after it.
func TestOpeningAfterALoss(t *testing.T) {
	for _, after := range []time.Duration{time.Minute, 10*time.Minute + time.Second} {
		w := opening(t)
		var tickets []string
		for range 30 {
			tickets = append(tickets, said(t, w.ask(request{header: jsonOnly()})).Ticket)
		}
		want := map[string]int64{}
		for _, v := range w.line.(*Memory).state.queue {
			want[v.id] = v.place
		}
		w.start(true)
		w.after(time.Minute)
		if after > 10*time.Minute {
			w.now = w.def.Opens.UnixMicro() + second
		}
		for _, ticket := range tickets {
			v, err := w.room.signer.verify(ticket, "agent ", w.reading())
			if err != nil {
				t.Fatal(err)
			}
			a, err := w.line.Poll(t.Context(), Poll{ID: v.id, Ticket: v.state, Place: v.place, Started: v.started, Lot: w.room.signer.lot(v.id)})
			if err != nil || a.State != Waiting || a.Place != want[v.id] {
				t.Errorf("%v: %+v, want the place %d: %v", after, a, want[v.id], err)
			}
		}
	}
}

// TestPause: while a room is paused nobody is admitted, also not for the time of the pause when it ends; places are kept, and the
// page says so.
func TestPause(t *testing.T) {
	def := policy.WaitingRoom{Admit: weir.PerSecond(1), Burst: 1, Pause: true, Announce: "Back <soon> at noon", Name: "sale"}
	w := newWorld(t, def)
	first := said(t, w.ask(request{header: jsonOnly()}))
	second := said(t, w.ask(request{header: jsonOnly()}))
	if first.State != "waiting" || first.Place != 1 || !first.Paused || second.Place != 2 || second.ExpectedWait != nil || second.Announcement != "Back <soon> at noon" {
		t.Errorf("%+v, %+v", first, second)
	}
	page := body(w.ask(request{header: html()}))
	if !strings.Contains(page, "Nobody gets in for the moment.") || !strings.Contains(page, "Back &lt;soon&gt; at noon") {
		t.Error(page)
	}
	for range 3 {
		w.after(30 * time.Second)
		first.Ticket, second.Ticket = poller(t, w, first.Ticket, "waiting"), poller(t, w, second.Ticket, "waiting")
	}
	w.def.Pause, w.def.Announce = false, ""
	if err := w.line.(*Memory).Set(SpecOf(w.def)); err != nil {
		t.Fatal(err)
	}
	w.start(false)
	poller(t, w, first.Ticket, "admitted")
	if got := said(t, w.askOnce(request{header: poll(), ticket: second.Ticket})); got.State != "waiting" || got.Place != 1 || got.Paused {
		t.Errorf("the second one at the end of the pause: %+v", got)
	}
	w.after(time.Second)
	poller(t, w, second.Ticket, "admitted")
}

// TestDrain: a room that is drained gives no new places, and waiting visitors are admitted.
func TestDrain(t *testing.T) {
	w := newWorld(t, policy.WaitingRoom{Admit: weir.PerSecond(1), Burst: 1, Inside: 1})
	if resp := w.ask(request{header: html()}); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.StatusCode)
	}
	waiting := said(t, w.ask(request{header: jsonOnly()}))
	fresh := w.askOnce(request{header: jsonOnly()}) // has a ticket, and no place yet
	w.def.Drain = true
	w.start(false)
	for name, q := range map[string]request{"a browser": {header: html()}, "an app": {header: jsonOnly()}, "a POST": {method: "POST"}, "a first ticket": {header: jsonOnly(), ticket: fresh.Header.Get("Weir-Ticket")}} {
		if resp := w.askOnce(q); resp.Header.Get("Weir-Room") != "closed" || resp.Header.Get("Weir-Ticket") != "" || resp.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %v", name, resp.StatusCode, resp.Header)
		}
	}
	if s := w.room.Stats(); s.Closed != 4 {
		t.Errorf("%+v", s)
	}
	poller(t, w, waiting.Ticket, "waiting")
	for range 6 { // the one inside has left after five minutes
		w.after(time.Minute)
		if got := said(t, w.askOnce(request{header: poll(), ticket: waiting.Ticket})); got.State == "admitted" {
			return
		} else if got.Ticket != "" {
			waiting.Ticket = got.Ticket
		}
	}
	t.Error("the one who waited is not admitted")
}

// TestOpeningPages: the page before the opening says when it opens, in each language, and reloads itself once it has.
func TestOpeningPages(t *testing.T) {
	w := opening(t)
	for language, want := range map[string]string{"en": "gets a place by lot", "de": "durch das Los", "es": "por sorteo", "fr": "tirage au sort"} {
		h := html()
		h["Accept-Language"] = language
		resp := w.ask(request{header: h})
		page := body(resp)
		if resp.Header.Get("Weir-Room") != "before" || resp.StatusCode != 503 || !strings.Contains(page, want) || !strings.Contains(page, `data-state="before"`) || strings.Contains(page, "{{") || strings.Contains(page, "in order of arrival") {
			t.Errorf("%s: %d %s", language, resp.StatusCode, page)
		}
	}
	for _, w1 := range languages() {
		for _, text := range []string{w1.early, w1.opening, w1.here, w1.opens, w1.lot, w1.paused} {
			if text == "" {
				t.Errorf("%s lacks a text", w1.lang)
			}
		}
	}
}

// TestDelayBefore: far from the opening, visitors poll as others do. Near to it, they poll after it, never later than a
// visitor may.
func TestDelayBefore(t *testing.T) {
	r := opening(t).room
	for _, left := range []time.Duration{time.Second, 20 * time.Second, 35 * time.Second, time.Hour} {
		for _, n := range []int64{0, 10, 100_000} {
			for range 100 {
				d := r.delayBefore(left, Standing{Waiting: n + 1, Ahead: n})
				if d > policy.LongestPoll || d < min(left, 1600*time.Millisecond) {
					t.Fatalf("%v before, %d waiting: %v", left, n, d)
				}
			}
		}
	}
}
