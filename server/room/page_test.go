package room

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
)

// TestCookies: over TLS a cookie is bound to this host.
func TestCookies(t *testing.T) {
	w := newWorld(t, oneADay())
	for secure, want := range map[bool]string{true: "__Host-weir-room-sale", false: "weir-room-sale"} {
		c := w.ask(request{header: html(), secure: secure}).Cookies()[0]
		if c.Name != want || c.Secure != secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" || c.MaxAge <= 0 {
			t.Errorf("%+v", c)
		}
	}
	plain := w.ask(request{header: html()}).Cookies()[0]
	if resp := w.ask(request{header: poll(), secure: true, cookie: plain.Name + "=" + plain.Value}); toldBy(t, resp).State != "unknown" {
		t.Error("a cookie that came without TLS is believed over TLS")
	}
}

// TestBinding: by default a ticket is valid from another address, and not in another browser; with
// bind it is the other way round.
func TestBinding(t *testing.T) {
	for bind, want := range map[string][2]string{"agent": {"waiting", "unknown"}, "address": {"unknown", "waiting"}, "none": {"waiting", "waiting"}} {
		def := oneADay()
		def.Bind = bind
		w := newWorld(t, def)
		w.ask(request{header: jsonOnly()})
		ticket := w.ask(request{header: jsonOnly(), agent: "A"}).Header.Get("Weir-Ticket")
		moved := toldBy(t, w.ask(request{header: poll(), ticket: ticket, agent: "A", address: "10.9.9.9"})).State
		other := toldBy(t, w.ask(request{header: poll(), ticket: ticket, agent: "B"})).State
		if moved != want[0] || other != want[1] {
			t.Errorf("%s: from another address %s, in another browser %s", bind, moved, other)
		}
	}
}

func TestExpectedWait(t *testing.T) {
	for _, c := range []struct {
		ahead, counted, span int64
		want                 time.Duration
	}{
		{0, 0, 60 * second, 0},
		{9, 10, 10 * second, 10*time.Second + tick},
		{9, 10, minMeasured - 1, 0},
		{1 << 40, 1, 60 * second, 0}, // more than a day
		{999, 300, 60 * second, 200*time.Second + tick},
		{1<<62 - 1, 1, 1 << 62, 0},
	} {
		if got := expectedWait(Standing{Ahead: c.ahead, Counted: c.counted, Span: c.span}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestPauses: the delays between polls keep what visitors are promised, and the load that the
// documents state.
func TestPauses(t *testing.T) {
	r := &Room{}
	load := func(n int64) (perSecond float64) {
		for i := range n {
			d := r.pollDelay(i)
			if d < shortestDelay*4/5 || d >= policy.LongestPoll {
				t.Fatalf("a pause of %v", d)
			}
			perSecond += 1 / d.Seconds()
		}
		return perSecond
	}
	for n, most := range map[int64]float64{100: 50, 10_000: 550, 100_000: 3700} {
		if got := load(n); got > most {
			t.Errorf("%d who wait ask %.0f times a second, and not %.0f", n, got, most)
		}
	}
	if maxWaitStep <= micros64(policy.LongestPoll) || recoveryTime <= micros64(policy.LongestPoll) {
		t.Error("a visitor who polls when the page says so loses the place")
	}
}

func TestWords(t *testing.T) {
	for _, w := range languages() {
		for _, text := range []string{w.title, w.text, w.place, w.ahead, w.wait, w.next, w.soon, w.unknown, w.minute, w.hour, w.kept, w.turn, w.cookies, w.refused} {
			if text == "" || strings.Contains(text, "%") {
				t.Errorf("%s: %q", w.lang, text)
			}
		}
		for _, text := range []string{w.minutes, w.hours} {
			if strings.Count(text, "%d") != 1 {
				t.Errorf("%s: %q", w.lang, text)
			}
		}
		if strings.Count(w.keep, "%s") != 1 {
			t.Errorf("%s: %q", w.lang, w.keep)
		}
	}
	en := languages()[0]
	for d, want := range map[time.Duration]string{
		0: "not known yet", time.Second: "less than a minute", 50 * time.Second: "about a minute", 61 * time.Second: "about 2 minutes",
		11 * time.Minute: "about 15 minutes", 58 * time.Minute: "about an hour", 121 * time.Minute: "about 3 hours",
	} {
		if got := en.about(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	if got := en.number(1234567); got != "1,234,567" {
		t.Error(got)
	}
	w := newWorld(t, oneADay())
	w.ask(request{header: html()})
	for accept, want := range map[string]string{"de-AT,en;q=0.5": "de", "xx, fr;q=0.1": "fr", "": "en", strings.Repeat("x,", 5000) + "de": "en"} {
		h := html()
		h["Accept-Language"] = accept
		if got := w.ask(request{header: h}).Header.Get("Content-Language"); got != want {
			t.Errorf("%.20q: %s", accept, got)
		}
	}
}

// TestOwnPage: an operator's page is a template. Its problems are reported at the start, and texts
// in it are escaped.
func TestOwnPage(t *testing.T) {
	def := oneADay()
	def.Name, def.Title, def.Text, def.Status = "sale", "<script>alert(1)</script>", "a & b", 200
	w := newWorld(t, def)
	o := Options{Room: def, Queue: w, Secrets: secrets(t, secretA), Log: w.room.log, Clock: w.room.clock}
	for page, want := range map[string]string{"{{.Tilte}}": "can't evaluate field Tilte", "{{": "unclosed action"} {
		o.Page = []byte(page)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", page, err)
		}
	}
	o.Page = []byte(`<!doctype html>{{.Head}}<title>{{.Title}}</title><b id="weir-place">{{.Place}}</b>{{.Script}}`)
	next, err := w.room.Next(o)
	if err != nil {
		t.Fatal(err)
	}
	w.room = next
	w.ask(request{header: html()})
	resp := w.ask(request{header: html()})
	text := body(resp)
	if resp.StatusCode != 200 || strings.Contains(text, "<script>alert") || !strings.Contains(text, `<b id="weir-place">1</b><script nonce=`) {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	nonce := strings.SplitN(strings.SplitN(text, `nonce="`, 2)[1], `"`, 2)[0]
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "script-src 'nonce-"+nonce+"'") || strings.Contains(csp, "unsafe") {
		t.Error(csp)
	}
}
