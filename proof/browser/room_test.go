package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// sizes are those of the pictures: a phone and a desktop, light and dark.
func looks() map[string]map[string]any {
	size := func(w, h int) map[string]any { return map[string]any{"width": w, "height": h} }
	all := map[string]map[string]any{}
	for _, scheme := range []string{"light", "dark"} {
		all["phone-"+scheme] = map[string]any{"viewport": size(390, 844), "deviceScaleFactor": 2, "isMobile": true, "hasTouch": true, "colorScheme": scheme, "locale": "en-GB"}
		all["desk-"+scheme] = map[string]any{"viewport": size(1280, 800), "colorScheme": scheme, "locale": "en-GB"}
	}
	return all
}

// room returns a policy with a waiting room.
func roomPolicy(up, room, rest string) string {
	return rest + `
waiting_rooms: { sale: { joins: 100000/s, visitors_per_address: 100000, ` + room + ` } }
upstreams: { shop: { url: "` + up + `" } }
routes: [{ match: /sale/, upstream: shop, waiting_room: sale }]
`
}

func secretFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const inside = `document.title === 'The sale'`

// place is what the page shows.
func (p *page) place() int {
	p.t.Helper()
	n, err := strconv.Atoi(strings.ReplaceAll(p.text("#weir-place"), ",", ""))
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// TestJoinMoveEnter: a visitor joins behind others, sees the place move without a reload of the
// page, while one of two gateways is killed, and is admitted. Later visitors are not.
func TestJoinMoveEnter(t *testing.T) {
	b, redis, up, secret := startBrowser(t), servers.StartRedis(t, servers.RedisOptions{Persist: true}), startShop(t), secretFile(t)
	policy := func(admit string) string {
		return roomPolicy(up, admit+`, store: shared, secret_file: `+secret, `stores: { shared: { url: "`+redis.URL()+`", deadline: 10s } }`)
	}
	gateways := []*gateway{startWeir(t, policy("admit: 1/d, burst: 1")), startWeir(t, policy("admit: 1/d, burst: 1"))}
	front := startBalancer(t, gateways...)
	if _, place := join(t, front.URL+"/sale/"); place != 0 {
		t.Fatalf("the first one has place %d", place)
	}
	const others = 60
	for range others {
		join(t, front.URL+"/sale/")
	}
	p, status := b.open(t, "visitor", front.URL+"/sale/?item=7", map[string]any{"locale": "en-GB"})
	if at := p.place(); status != 503 || at != others+1 || p.text("#weir-ahead") != fmt.Sprint(others) {
		t.Fatalf("status %d, place %d, ahead %s", status, at, p.text("#weir-ahead"))
	}
	late, _ := join(t, front.URL+"/sale/")
	p.eval(`window.here = true`, nil) // it is gone after a reload of the page
	for _, g := range gateways {
		g.change(t, policy("admit: 4/s, burst: 1"))
	}
	p.until(`Number(document.getElementById('weir-place').textContent) < 50`)
	gateways[0].Kill()
	p.until(`Number(document.getElementById('weir-place').textContent) < 30`)
	var same bool
	var title string
	p.eval(`window.here === true`, &same)
	p.eval(`document.title`, &title)
	if !same || !strings.HasPrefix(title, "(") {
		t.Errorf("the page was loaded again: %v, or its title does not show the place: %s", !same, title)
	}
	if wait := p.text("#weir-wait"); !strings.Contains(wait, "minute") {
		t.Errorf("the expected wait: %q", wait)
	}
	p.until(inside)
	var where string
	p.eval(`location.pathname + location.search`, &where)
	if where != "/sale/?item=7" {
		t.Errorf("the visitor is at %s", where)
	}
	for _, c := range p.cookies() {
		if !c.HTTPOnly || c.SameSite != "Lax" || c.Path != "/" {
			t.Errorf("%+v", c)
		}
	}
	p.must(map[string]any{"do": "go", "url": front.URL + "/sale/"}, nil)
	p.until(inside) // still
	p.quiet(front.URL)
	if late == "" {
		t.Error("an app got no ticket")
	}
}

// quiet checks that the page made no request to other hosts, and that the browser reported no
// error.
func (p *page) quiet(at string) {
	p.t.Helper()
	var seen struct{ Requests, Complaints []string }
	p.must(map[string]any{"do": "seen"}, &seen)
	for _, r := range seen.Requests {
		if !strings.HasPrefix(r, at+"/") {
			p.t.Errorf("the page asked %s", r)
		}
	}
	if len(seen.Complaints) > 0 {
		p.t.Errorf("the browser complains: %q", seen.Complaints)
	}
}

// TestInvalidTickets: a visitor with a forged ticket, an expired one, or one of another browser
// joins the end of the queue, and the page says so. The same ticket in its own browser keeps the
// place.
func TestInvalidTickets(t *testing.T) {
	b, up := startBrowser(t), startShop(t)
	g := startWeir(t, roomPolicy(up, "admit: 1/d, burst: 1, idle: 1s", ""))
	at := "http://" + g.Gateway + "/sale/"
	p, status := b.open(t, "first", at, nil)
	p.until(inside)
	if status != 200 || len(p.cookies()) != 1 {
		t.Fatalf("%d %v", status, p.cookies())
	}
	old := p.cookies()[0]
	q, _ := b.open(t, "waiting", at, nil)
	good := q.cookies()[0]
	if q.place() != 1 {
		t.Fatalf("place %d", q.place())
	}
	again := func(c cookie) cookie { c.Expires = -1; return c }
	forged := again(good)
	forged.Value = good.Value[:40] + string(good.Value[40]^1) + good.Value[41:]
	select { // a ticket for inside is valid for a second
	case <-time.After(1500 * time.Millisecond):
	case <-t.Context().Done():
	}
	for i, c := range []struct {
		name    string
		cookie  cookie
		options map[string]any
	}{
		{"forged", forged, nil},
		{"expired", again(old), nil},
		{"another client's", again(good), map[string]any{"userAgent": "Another/1.0"}},
	} {
		r, status := b.open(t, c.name, at, c.options, c.cookie)
		if at := r.place(); status != 503 || at != i+2 || !strings.Contains(r.text(".notice[role=alert]"), "end of the queue") {
			t.Errorf("%s: status %d, place %d, %q", c.name, status, at, r.text(".notice[role=alert]"))
		}
	}
	r, _ := b.open(t, "the same", at, nil, again(good))
	if r.place() != 1 {
		t.Errorf("with its own ticket: place %d", r.place())
	}
	for _, line := range []string{`reason="forged"`, `reason="expired"`, `reason="client"`} {
		if !strings.Contains(g.Metrics(t), `weir_room_tickets_refused_total{`+line+`,room="sale"} 1`) {
			t.Errorf("not counted: %s", line)
		}
	}
	for _, secret := range []string{good.Value, "127.0.0.1:1", "Another"} {
		if strings.Contains(strings.ReplaceAll(g.Output(), g.Gateway, ""), secret) && secret != "127.0.0.1:1" {
			t.Errorf("the log has %s", secret)
		}
	}
}

// TestWithoutAScript: the page refreshes itself, and the visitor is admitted.
func TestWithoutAScript(t *testing.T) {
	b, up := startBrowser(t), startShop(t)
	policy := func(admit string) string { return roomPolicy(up, admit, "") }
	g := startWeir(t, policy("admit: 1/d, burst: 1"))
	at := "http://" + g.Gateway + "/sale/"
	join(t, at)
	p, _ := b.open(t, "visitor", at, map[string]any{"javaScriptEnabled": false})
	if p.place() != 1 {
		t.Errorf("place %d", p.place())
	}
	g.change(t, policy("admit: 1000/s, burst: 1"))
	end := time.After(servers.Patience)
	for p.text("h1") != "Welcome to the sale" {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-end:
			t.Fatal("the page does not refresh itself")
		}
	}
}

// TestStoreIsDown: while the store is unavailable, places are kept, the page says so, and nobody is
// admitted. When it is back, the visitor has the same place.
func TestStoreIsDown(t *testing.T) {
	b, redis, up, secret := startBrowser(t), servers.StartRedis(t, servers.RedisOptions{Persist: true}), startShop(t), secretFile(t)
	g := startWeir(t, roomPolicy(up, `admit: 1/d, burst: 1, store: shared, secret_file: `+secret, `stores: { shared: { url: "`+redis.URL()+`", deadline: 500ms } }`))
	at := "http://" + g.Gateway + "/sale/"
	join(t, at)
	p, _ := b.open(t, "visitor", at, nil)
	if p.place() != 1 {
		t.Fatalf("place %d", p.place())
	}
	redis.Kill()
	p.until(`document.getElementById('weir-status').textContent.includes('Your place is kept')`)
	p.shot("kept")
	q, _ := b.open(t, "who comes now", at, nil)
	if !strings.Contains(q.text("#weir-status"), "Your place is kept") {
		t.Errorf("%q", q.text("#weir-status"))
	}
	if err := redis.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.until(`document.getElementById('weir-place').textContent === '1'`)
	q.must(map[string]any{"do": "go", "url": at}, nil)
	q.until(`document.getElementById('weir-place').textContent === '2'`)
}

// TestLooks: on a phone and on a desktop, light and dark, nothing is cut off, all text is readable,
// and the page makes no request to other hosts.
func TestLooks(t *testing.T) {
	b, up := startBrowser(t), startShop(t)
	policy := func(admit string) string { return roomPolicy(up, admit, "") }
	g := startWeir(t, policy("admit: 1/d, burst: 1"))
	at := "http://" + g.Gateway + "/sale/"
	join(t, at)
	for range 1236 {
		join(t, at)
	}
	pages := map[string]*page{}
	for name, options := range looks() {
		p, _ := b.open(t, name, at, options)
		pages[name] = p
		p.shot(name + "-first")
		bad := cookie{Name: "weir-room-sale", Value: "AAAA", Domain: "127.0.0.1", Path: "/", Expires: -1, SameSite: "Lax"}
		r, _ := b.open(t, name+" refused", at, options, bad)
		r.shot(name + "-refused")
		for _, p := range []*page{p, r} {
			var wide bool
			p.eval(`document.documentElement.scrollWidth > innerWidth`, &wide)
			if wide {
				t.Errorf("%s: the page is wider than the window", name)
			}
			var faint []string
			p.eval(contrast, &faint)
			if len(faint) > 0 {
				t.Errorf("%s: hard to read: %q", name, faint)
			}
			p.quiet("http://" + g.Gateway)
		}
	}
	german, _ := b.open(t, "german", at, map[string]any{"locale": "de-DE"})
	if german.text("h1") != "Sie stehen in der Warteschlange" {
		t.Errorf("in German: %s", german.text("h1"))
	}
	german.shot("desk-german")
	g.change(t, policy("admit: 60/s, burst: 1"))
	for name, p := range pages {
		p.until(inside + ` || Number(document.getElementById('weir-place').textContent.replace(',', '')) < 1230`)
		p.shot(name + "-moving")
	}
	for name, p := range pages {
		p.until(inside)
		p.shot(name + "-inside")
	}
}

// contrast finds texts whose contrast with their background is below 4.5, the minimum of WCAG for
// small text.
const contrast = `(() => {
  const parts = c => c.match(/[\d.]+/g).map(Number)
  const light = c => { const [r, g, b] = parts(c).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b }
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if ((parts(c)[3] ?? 1) > 0) return c } return 'rgb(255,255,255)' }
  const faint = []
  for (const e of document.querySelectorAll('body *')) {
    if (!e.innerText || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x)
    if ((a + .05) / (b + .05) < 4.5) faint.push(e.innerText)
  }
  return faint
})()`
