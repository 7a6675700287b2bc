package browser

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
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

func quoted(text string) string { return "'" + text + "'" }

// TestDashboard: the actions of the dashboard against a running server under load: a wrong token, the
// overview, hostile names, looking a key up, resetting, banning, lifting; checking, previewing and applying a policy;
// a roll-out; the language; a day of data; and axe finds nothing serious on any page.
func TestDashboard(t *testing.T) {
	b, g := startBrowser(t), startWeir(t, dashboardPolicy(t))
	load(t, "http://"+g.Gateway+"/")
	p, status := b.open(t, "operator", "http://"+g.Admin+"/", map[string]any{"locale": "en-GB"})
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	signIn := func(token string) {
		p.until(`document.querySelector('input[name=token]') !== null`)
		p.eval(`document.querySelector('input[name=token]').value = `+quoted(token)+`; document.querySelector('form').requestSubmit()`, nil)
	}
	says := func(text string) { p.t.Helper(); p.until(`document.body.innerText.includes(` + quoted(text) + `)`) }
	signIn("wrong-wrong-wrong-wrong")
	says("This token is not the one of the server.")
	signIn(adminToken)
	p.until(`[...document.querySelectorAll('tbody tr')].some(r => r.innerText.startsWith('per-user') && /[1-9]/.test(r.innerText))`)

	p.eval(`location.hash = '#/keys/per-user'`, nil)
	p.until(`document.querySelectorAll('main .bar').length > 0`)
	p.eval(`if (document.body.innerText.includes('anna')) throw new Error('a key is not masked'); document.querySelector('input[type=checkbox]').click()`, nil)
	says(`\\u202eevil`)
	p.eval(`if (window.broken || document.querySelector('main img')) throw new Error('a name became an element')`, nil)
	p.eval(`document.querySelector('input[name=key]').value = 'anna'; document.querySelector('main form').requestSubmit()`, nil)
	says("would be refused now")
	p.click("Ban…")
	p.click("Apply")
	says("An operator has banned this key.")
	p.click("Lift")
	says("would be refused now")
	p.click("Reset")
	p.click("Yes")
	says("The key was reset.")

	p.eval(`location.hash = '#/policy'`, nil)
	p.until(`document.querySelectorAll('.code span').length > 5`)
	p.click("Edit")
	change := func(from, to string) {
		p.eval(`(() => { const a = document.querySelector('textarea'); a.value = a.value.replace(`+quoted(from)+`, `+quoted(to)+`) })()`, nil)
	}
	change("burst: 2 }", "burts: 3 }")
	p.click("Check")
	says("did you mean burst?")
	change("burts: 3 }", "burst: 3 }")
	p.click("Check")
	says("token_bucket.burst from 2 to 3")
	p.click("Preview")
	says("requests, from")
	p.click("Apply…")
	p.click("Yes")
	says("The policy is in force.")
	p.until(`document.querySelector('.code')?.textContent.includes('burst: 3 }')`)
	p.eval(`(() => { const r = document.querySelector('input[type=range]'); r.value = 50; r.dispatchEvent(new Event('input')); r.parentElement.querySelector('button').click() })()`, nil)
	p.click("Yes")
	p.until(`document.querySelector('.code')?.textContent.includes('roll_out: 50%')`)

	for _, name := range []string{"overview", "keys", "policy", "usage"} {
		p.eval(`location.hash = '#/`+name+`'`, nil)
		p.until(`document.querySelector('nav [aria-current]')?.hash === '#/` + name + `'`)
		p.serious(name)
	}
	p.eval(`(() => { const s = document.querySelector('header select'); s.value = 'de'; s.dispatchEvent(new Event('change')) })()`, nil)
	says("Verbrauch")
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
		return performance.memory.usedJSHeapSize
	})()`, &bytes)
	if bytes > 100<<20 {
		t.Errorf("%d bytes", bytes)
	}
	t.Logf("%d bytes", bytes)
}
