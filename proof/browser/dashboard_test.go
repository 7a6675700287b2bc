package browser

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

const adminToken = "0123456789abcdef0123456789abcdef"

// dashboardPolicy has a limit by a name that clients choose, and one that is rolled out.
func dashboardPolicy(t *testing.T) string {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(adminToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return `
admin: { token_file: ` + token + `, recent: 1000 }
limits:
  per-user: { key: header.user-id, token_bucket: { rate: 1/h, burst: 2 }, on_missing: skip }
  new: { key: header.user-id, token_bucket: { rate: 1/h, burst: 1000 }, on_missing: skip, roll_out: 10% }
routes: [{ match: /, limits: [per-user, new], respond: { body: ok } }]
`
}

// hostile is a name that would be an element, and turns the direction of a text.
const hostile = "<img src=x onerror=window.broken=1>\u202eevil"

// load sends requests of some users until the test ends.
func load(t *testing.T, at string) {
	t.Helper()
	end := make(chan struct{})
	var wg sync.WaitGroup
	t.Cleanup(func() { close(end); wg.Wait() })
	wg.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			req, err := http.NewRequest(http.MethodGet, at, nil)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("User-Id", []string{"anna", hostile}[i%2])
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		}
	})
}

// click presses the button, in the dialog if there is one, with a text.
func (p *page) click(text string) {
	p.t.Helper()
	script := `(() => { const all = [...(document.querySelector('dialog[open]') || document).querySelectorAll('button')]
		const b = all.find(b => b.textContent === ` + quoted(text) + ` && !b.disabled); b?.click(); return Boolean(b) })()`
	p.until(script)
}

func quoted(s string) string { return strconv.Quote(s) }

// TestDashboardActions: what the other test does not do: each period of the chart, a key that the list of the most refused
// leads to, its earlier refusals, a grant, a ban that is lifted in the list, reloading the file, writing a policy to it, the
// candidate's promotion, usage, keys that are no JSON, and signing out.
func TestDashboardActions(t *testing.T) {
	candidate := filepath.Join(t.TempDir(), "next.yaml")
	b := startBrowser(t)
	policy := dashboardPolicy(t)
	if err := os.WriteFile(candidate, []byte(servers.FreePorts+strings.Replace(policy, "rate: 1/h, burst: 2 }", "rate: 1/h, burst: 1 }", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startWeir(t, policy, "--candidate", candidate)
	load(t, "http://"+g.Gateway+"/")
	p, _ := b.open(t, "operator", "http://"+g.Admin+"/#/overview", map[string]any{"locale": "en-GB"})
	says := func(text string) { p.t.Helper(); p.until(`document.body.innerText.includes(` + quoted(text) + `)`) }
	p.until(`document.querySelector('input[name=token]') !== null`)
	p.eval(`document.querySelector('input[name=token]').value = `+quoted(adminToken)+`; document.querySelector('form').requestSubmit()`, nil)
	for _, period := range []string{"15 min", "1 h", "24 h", "5 min"} {
		p.click(period)
		p.until(`[...document.querySelectorAll('button[aria-pressed=true]')].map(b => b.textContent).join() === ` + quoted(period))
	}
	p.until(`/a decision takes\s+[0-9.]+ [nµm]s\s+99 %: [0-9.]+ [nµm]?s/.test(document.querySelector('.tiles').innerText)`)

	p.eval(`location.hash = '#/keys/per-user'`, nil)
	p.until(`document.querySelectorAll('main .bar').length > 0`)
	p.eval(`document.querySelector('input[type=checkbox]').click()`, nil)
	p.until(`(() => { const b = document.querySelector('button[aria-label="Look up anna"]'); b?.click(); return Boolean(b) })()`)
	says("would be refused now")
	says("2 of 2 used, so 0 left")
	p.until(`[...document.querySelectorAll('caption')].find(c => c.textContent === 'Latest refusals')?.parentElement.querySelectorAll('tbody tr').length > 0`)
	p.click("Grant…")
	p.click("Apply")
	says("An operator has given this key a grant.")
	p.until(`(() => { const rows = [...document.querySelectorAll('section.card')].at(-1).querySelectorAll('tbody tr'); rows[0]?.querySelector('button').click(); return rows.length === 1 })()`)
	says("Lifted.")
	p.eval(`document.querySelector('input[name=key]').value = '[oops'; document.querySelector('main form').requestSubmit()`, nil)
	says("This is not a JSON array of texts.")

	p.eval(`location.hash = '#/usage'`, nil)
	p.until(`document.querySelector('input[name=plan]') !== null`)
	p.eval(`document.querySelector('input[name=key]').value = 'anna'; document.querySelector('main form').requestSubmit()`, nil)
	says("Usage of anna")
	p.until(`[...document.querySelectorAll('tbody th')].some(th => th.innerText.startsWith('per-user'))`)

	p.eval(`location.hash = '#/policy'`, nil)
	says("Candidate on trial")
	p.until(`/requests, decided otherwise about [1-9]/.test(document.body.innerText)`)
	p.click("Promote…")
	p.click("Yes")
	says("The candidate is in force.")
	p.until(`document.querySelector('.code')?.textContent.includes('burst: 1 }')`)
	p.click("Reload the file")
	says("The file was read again.")
	p.until(`document.querySelector('.code')?.textContent.includes('burst: 2 }')`)
	p.click("Edit")
	p.eval(`(() => { const a = document.querySelector('textarea'); a.value = a.value.replace('burst: 2 }', 'burst: 7 }'); document.querySelector('input[name=save]').click() })()`, nil)
	p.click("Apply…")
	p.click("Yes")
	says("The policy is in force.")
	if text, err := os.ReadFile(g.File); err != nil || !strings.Contains(string(text), "burst: 7 }") {
		t.Errorf("%v: the file was not written:\n%s", err, text)
	}
	p.click("Sign out")
	says("Sign in")
	p.eval(`if (sessionStorage.length || document.querySelector('main table')) throw new Error('something is left after signing out')`, nil)
}

// TestDashboardRooms: an operator sees who waits, shows the page, and pauses, announces, drains and opens a room, which is written in
// the text of the policy.
func TestDashboardRooms(t *testing.T) {
	b := startBrowser(t)
	g := startWeir(t, dashboardPolicy(t)+`
waiting_rooms:
  sale: { admit: 1/d, burst: 1, secret_file: `+secretFile(t)+` }   # the sale
  other:
    admit: 1/d # one
    announce: 'it''s soon'
`)
	text, err := os.ReadFile(g.File)
	if err != nil {
		t.Fatal(err)
	}
	g.Write(t, strings.Replace(string(text), "routes: [", "routes: [{ match: /sale/, waiting_room: sale, respond: { body: ok } }, ", 1))
	p, _ := b.open(t, "operator", "http://"+g.Admin+"/#/rooms", map[string]any{"locale": "en-GB"})
	says := func(text string) { p.t.Helper(); p.until(`document.body.innerText.includes(` + quoted(text) + `)`) }
	p.until(`document.querySelector('input[name=token]') !== null`)
	p.eval(`document.querySelector('input[name=token]').value = `+quoted(adminToken)+`; document.querySelector('form').requestSubmit()`, nil)
	says("it's soon")
	servers.Poll(t, "the room is used", func() bool {
		_, place := join(t, "http://"+g.Gateway+"/sale/")
		return place == 3
	})
	card := `[...document.querySelectorAll('section.card')].find(c => c.querySelector('h2').textContent === 'sale')`
	// in presses a button of the card of the sale.
	in := func(button string) {
		t.Helper()
		p.until(`(() => { const b = [...` + card + `.querySelectorAll('button')].find(b => b.textContent === ` + quoted(button) + `); b?.click(); return Boolean(b) })()`)
	}
	p.until(`[...` + card + `.querySelectorAll('dt')].find(d => d.textContent === 'waiting').nextSibling.textContent === '3'`)
	p.serious("rooms")
	in("Show the page")
	p.until(`document.querySelector('iframe')?.src.includes('/ui/preview/')`)
	in("Pause…")
	p.click("Yes")
	in("Announce…")
	p.until(`(() => { const a = document.querySelector('dialog textarea'); if (a) a.value = 'Two: "tickets", {each}'; return Boolean(a) })()`)
	p.click("Apply")
	says(`Two: "tickets", {each}`)
	in("Drain…")
	p.click("Yes")
	in("Opens…")
	p.until(`(() => { const a = document.querySelector('dialog input'); if (a) a.value = '2190-01-02T03:04'; return Boolean(a) })()`)
	p.click("Apply")
	p.until(`/opens .*2190/.test(` + card + `.innerText) && /paused/.test(` + card + `.innerText) && /drained/.test(` + card + `.innerText)`)
	in("Resume…")
	p.click("Yes")
	p.until(`!/paused/.test(` + card + `.innerText)`)
	p.eval(`location.hash = '#/policy'`, nil)
	p.until(`document.querySelector('.code') !== null`)
	var policy string
	p.eval(`document.querySelector('.code').textContent`, &policy)
	for _, want := range []string{`pause: false, announce: "Two: \"tickets\", {each}", drain: true, opens: "2190-01-02T0`, `}   # the sale`, "admit: 1/d # one", "announce: 'it''s soon'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy has no %s:\n%s", want, policy)
		}
	}
	p.quiet("http://" + g.Admin)
}

// TestEditingFields: a field of an entry is set, changed and taken out in the text of a policy, which is otherwise left as it is written; a
// text that is written in another way is left to the operator.
func TestEditingFields(t *testing.T) {
	b, g := startBrowser(t), startWeir(t, dashboardPolicy(t))
	p, _ := b.open(t, "operator", "http://"+g.Admin+"/", nil)
	for _, c := range []struct{ text, field, value, want string }{
		{"w:\n  a: { x: 1 }\n  b: { x: 2 } # two\nz: 1\n", "pause", "true", "w:\n  a: { x: 1 }\n  b: { x: 2, pause: true } # two\nz: 1\n"},
		{"w:\n  b: {}\n", "pause", "true", "w:\n  b: { pause: true }\n"},
		{"w:\n  b: { pause: true, x: 'a, b' }\n", "pause", "false", "w:\n  b: { pause: false, x: 'a, b' }\n"},
		{"w:\n  b: { t: \"a, } b\", pause: true }\n", "pause", "null", "w:\n  b: { t: \"a, } b\" }\n"},
		{"w:\n  b: { announce: \"a, b\" }\n", "announce", "'c: \"d\"'", "w:\n  b: { announce: \"c: \\\"d\\\"\" }\n"},
		{"w:\n  # rooms\n  b:\n    x: 2\n    pause: true # for now\n  c: { x: 1 }\n", "pause", "false", "w:\n  # rooms\n  b:\n    x: 2\n    pause: false # for now\n  c: { x: 1 }\n"},
		{"w:\n  b:\n      x: 2\n", "pause", "true", "w:\n  b:\n      pause: true\n      x: 2\n"},
		{"w:\n  b:\n    x: 2\n    announce: it's\nz: {}\n", "announce", "null", "w:\n  b:\n    x: 2\nz: {}\n"},
		{"w:\n  c:\n    b:\n      x: 2\n", "pause", "true", ""},         // another b
		{"w:\n  b: { x: { y: 1 } }\n", "pause", "true", ""},             // nested
		{"w:\n  b: { x: 1,\n    y: 2 }\n", "pause", "true", ""},         // over two lines
		{"w: { b: { x: 1 } }\n", "pause", "true", ""},                   // a section in braces
		{"w:\n  b:\n    announce: |\n      a\n", "announce", "'c'", ""}, // a block of text
		{"v:\n  b: { x: 1 }\n", "pause", "true", ""},                    // no section
		{"w:\n  bb: { x: 1 }\n", "pause", "true", ""},                   // no entry
	} {
		var got *string
		p.eval(`import('/ui/edit.js').then(m => m.withField(`+strconv.Quote(c.text)+`, 'w', 'b', `+quoted(c.field)+`, `+c.value+`))`, &got)
		switch {
		case got == nil && c.want != "":
			t.Errorf("%q is not changed", c.text)
		case got != nil && *got != c.want:
			t.Errorf("%q became %q, want %q", c.text, *got, c.want)
		}
	}
}

// TestDashboardByKeyboard: with the keyboard alone, an operator signs in, skips to the content, goes to a page, looks a key up and
// bans it, and Escape closes a dialog. Each element that has the focus is visible.
func TestDashboardByKeyboard(t *testing.T) {
	b, g := startBrowser(t), startWeir(t, dashboardPolicy(t))
	p, _ := b.open(t, "operator", "http://"+g.Admin+"/", map[string]any{"locale": "en-GB"})
	p.until(`document.activeElement?.name === 'token'`)
	p.press(adminToken, "Enter")
	p.until(`document.querySelector('main table') !== null`)
	// tab presses Tab until the element that has the focus is as a script says.
	tab := func(script string) {
		t.Helper()
		for range 60 {
			p.press("", "Tab")
			var here bool
			p.eval(`(() => { const e = document.activeElement; const r = e.getBoundingClientRect()
				if (e !== document.body && (r.width === 0 || r.bottom < 0 || r.top > innerHeight)) throw new Error('the focus is out of sight: ' + e.outerHTML.slice(0, 200))
				return `+script+` })()`, &here)
			if here {
				return
			}
		}
		t.Fatalf("60 times Tab lead nowhere where %s", script)
	}
	p.eval(`document.activeElement.blur(); scrollTo(0, 0)`, nil)
	tab(`e.id === 'skip'`)
	p.press("", "Enter")
	p.until(`document.activeElement.id === 'main'`)
	p.eval(`document.activeElement.blur(); document.getElementById('skip').focus()`, nil)
	tab(`e.hash === '#/keys'`)
	p.press("", "Enter")
	p.until(`document.querySelector('input[name=key]') !== null`)
	tab(`e.name === 'key'`)
	p.press("anna", "Enter")
	p.until(`document.body.innerText.includes('would be admitted now')`)
	tab(`e.textContent === 'Ban…'`)
	p.press("", "Enter")
	p.until(`document.querySelector('dialog[open]') !== null`)
	p.press("", "Escape")
	p.until(`document.querySelector('dialog') === null`)
	tab(`e.textContent === 'Ban…'`)
	p.press("", "Enter")
	p.until(`document.activeElement?.name === 'for'`)
	p.press("", "Enter")
	p.until(`document.body.innerText.includes('An operator has banned this key.')`)
}

// TestDashboardLooksUpEmptyParts: a key with a part that requests do not have, which is empty, is looked up like
// any other; and a link with a wrong address leads to a page that works.
func TestDashboardLooksUpEmptyParts(t *testing.T) {
	b, g := startBrowser(t), startWeir(t, `
limits: { pair: { key: [client.ip, header.user-id], token_bucket: { rate: 1/h, burst: 1 } } }
routes: [{ match: /, limits: [pair], respond: { body: ok } }]
`)
	for range 3 {
		resp, err := http.Get("http://" + g.Gateway + "/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	p, _ := b.open(t, "operator", "http://"+g.Admin+"/#/constructor/%E0", map[string]any{"locale": "en-GB"})
	p.until(`document.querySelector('h1')?.textContent === 'Overview' && document.body.innerText.includes('token_bucket')`)
	p.eval(`location.hash = '#/keys/%'`, nil)
	p.until(`document.querySelector('h1')?.textContent === 'Keys'`)
	p.eval(`document.querySelector('input[type=checkbox]').click()`, nil)
	p.until(`[...document.querySelectorAll('td button')].some(b => { b.click(); return true })`)
	p.until(`document.body.innerText.includes('would be refused now')`)
}

// TestDashboardShowsNothingInvisible: what cannot be seen, or would cover its neighbours, is shown as its number.
func TestDashboardShowsNothingInvisible(t *testing.T) {
	b, g := startBrowser(t), startWeir(t, dashboardPolicy(t))
	p, _ := b.open(t, "operator", "http://"+g.Admin+"/", nil)
	var shown []string
	p.eval(`(async () => {
		const { plain } = await import('/ui/dom.js')
		return ['a\tb\nc', 'ä中🌍', '\u202ex', '\u009bx', '\u{e0041}x', '\u00adx', '\u3164', '\ud800x', 'e\u0301\u0301\u0301\u0301'].map(plain)
	})()`, &shown)
	want := []string{"a\tb\nc", "ä中🌍", `\u202ex`, `\u009bx`, `\u{e0041}x`, `\u00adx`, `\u3164`, `\ud800x`, "e\u0301\u0301" + `\u0301\u0301`}
	if !slices.Equal(shown, want) {
		t.Errorf("%q, want %q", shown, want)
	}
}

// serious reports the serious faults that axe finds on the page.
func (p *page) serious(name string) {
	p.t.Helper()
	axe, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		p.t.Fatalf("axe-core is not installed: make needs, or npm ci --ignore-scripts in proof/browser (%v)", err)
	}
	p.eval(string(axe), nil)
	var faults []string
	p.eval(`axe.run().then(r => r.violations.filter(v => v.impact === 'serious' || v.impact === 'critical').map(v => v.id + ' ' + v.nodes.map(n => n.target).join(' ')))`, &faults)
	for _, f := range faults {
		p.t.Errorf("%s: %s", name, f)
	}
}

// TestDashboardForADay: what a page keeps of a day of readings of 300 limits, one every two seconds, stays below
// 100 MB.
func TestDashboardForADay(t *testing.T) {
	b, g := startBrowser(t), startWeir(t, dashboardPolicy(t))
	p, _ := b.open(t, "operator", "http://"+g.Admin+"/", nil)
	var bytes int64
	p.eval(`(async () => {
		const { History } = await import('/ui/history.js')
		const h = window.kept = new History()
		for (let i = 0; i < 43200; i++) {
			h.add({ now_ms: i * 2000, limits: Array.from({ length: 300 }, (_, n) => ({ name: 'limit-' + n, allowed: i * n, granted: 0, exempt: 0, delayed: 0, limited: i, banned: 0, errors: 0 })) })
		}
		if (h.total.coarse.count < 1400) throw new Error('no day: ' + h.total.coarse.count)
		const { Latencies, duration } = await import('/ui/latency.js')
		const texts = [null, 0, 4.4e-8, 9.996e-4, 1.234e-3, 0.9996, 2, Infinity].map(duration).join()
		if (texts !== '–,0 ns,44 ns,1 ms,1.2 ms,1 s,2 s,> 1 s') throw new Error(texts)
		const l = window.latencies = new Latencies()
		for (let i = 1; i <= 43200; i++) { // half of what is new takes at most 1 ms, the rest up to 3 ms
			l.add({ now_ms: i * 2000, decision_latency: { seconds: [0.001, 0.003], counts: [i * 5, i * 10, i * 10] },
				stores: Array.from({ length: 300 }, (_, n) => ({ name: 's' + n, latency: { seconds: [0.001, 0.003], counts: [0, 0, i] } })) })
		}
		const got = [l.quantile('', 0.5), l.quantile('', 0.75), l.quantile('store s0', 0.5), l.quantile('store s299', 0.5), l.all.size, l.all.get('').length].join()
		if (got !== '0.001,0.002,Infinity,,200,61') throw new Error('latencies: ' + got)
		return performance.memory.usedJSHeapSize
	})()`, &bytes)
	if bytes > 100<<20 {
		t.Errorf("%d bytes", bytes)
	}
	t.Logf("%d bytes", bytes)
}
