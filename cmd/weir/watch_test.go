package main

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/weirflow/weir/sim"
)

const watchedPolicy = `
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
limits:
  per-user: { key: header.user, token_bucket: { rate: 1/h, burst: 2 } }
routes:
  - { match: /, limits: [per-user], respond: { status: 204 } }
`

// watched starts a server, and returns a function that sends it a request of a user.
func watched(t *testing.T) (admin string, visit func(user string)) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("watched.yaml", []byte(watchedPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	gateway, admin := served(t, "watched.yaml")
	return admin, func(user string) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+gateway, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User", user)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
}

// TestWatch: weir watch prints the decisions that were asked for, and ends after --count of them.
func TestWatch(t *testing.T) {
	admin, visit := watched(t)
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"refusals with keys": {[]string{"--decision", "deny", "--keys", "--count", "1"}, []string{"deny", "per-user", "ann", "0 of 2 left", "retry after 59m"}},
		"masked":             {[]string{"--count", "3"}, []string{"per-user", "#", "of 2 left"}},
		"json":               {[]string{"--count", "2", "--json", "--key", "ann", "--keys"}, []string{`"decision":"`, `"key":["ann"]`}},
	} {
		t.Run(name, func(t *testing.T) {
			done, out := make(chan struct{}), ""
			go func() {
				defer close(done)
				var errs string
				_, out, errs = weir(t, "", append([]string{"watch", "--admin", "http://" + admin}, c.args...)...)
				out += errs
			}()
			for {
				select {
				case <-done:
					for _, want := range c.want {
						if !strings.Contains(out, want) {
							t.Errorf("%q is not in:\n%s", want, out)
						}
					}
					if strings.Contains(out, "ann") != (name != "masked") {
						t.Errorf("keys are shown, or not, where they should not be:\n%s", out)
					}
					return
				case <-time.After(20 * time.Millisecond): // until it watches, nothing is seen
					visit("ann")
				}
			}
		})
	}
	if code, _, errs := weir(t, "", "watch", "--admin", "http://"+admin, "--limit", "none"); code != 1 || !strings.Contains(errs, `there is no limit "none"`) {
		t.Errorf("%d: %s", code, errs)
	}
	if code, _, errs := weir(t, "", "watch", "--admin", "http://127.0.0.1:1"); code != 1 || !strings.Contains(errs, "nothing listens there") {
		t.Errorf("%d: %s", code, errs)
	}
}

// TestNothingHostileInATerminal: what a client has put into a key is ASCII in the JSON of weir watch and weir replay,
// and escaped in weir explain.
func TestNothingHostileInATerminal(t *testing.T) {
	const hostile = "\x1b[2J\u009b31m\u202eevil"
	var out strings.Builder
	if err := new(watching).print(&out, "", "lost", "{}"); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(decided{Decision: "deny", Key: []string{hostile}})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&watching{asJSON: true}).print(&out, "", "decision", string(text)); err != nil {
		t.Fatal(err)
	}
	if err := printJSON(&out, &sim.Comparison{Most: []sim.ComparedClient{{Client: hostile}}}); err != nil {
		t.Fatal(err)
	}
	if err := (&explanation{Key: []string{hostile}, Text: "refused " + hostile, Plan: hostile}).print(&out); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(out.String(), func(r rune) bool { return r > '~' || r < ' ' && r != '\n' }) {
		t.Errorf("%q", out.String())
	}
}

// TestShown: no text of a client does anything to a terminal, or takes more than a line.
func TestShown(t *testing.T) {
	for text, want := range map[string]string{
		"ann": "ann", "käse 日本": "käse 日本", "<b>&": "<b>&",
		"\x1b[2Jx": `\x1b[2Jx`, "a\nb\tc\r": `a\nb\tc\r`, "\u202eevil": `\u202eevil`, "a\u0301": `a\u0301`, "\u00a0": `\u00a0`, "\xff": `\ufffd`, "\u200b": `\u200b`, "\x9b2J": `\ufffd2J`,
		strings.Repeat("x", 81): strings.Repeat("x", 80) + "...", strings.Repeat("x", 79) + "é": strings.Repeat("x", 79) + "...",
	} {
		if got := shown(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
	for _, hostile := range []string{strings.Repeat("\x1b]0;x\a", 10000), strings.Repeat("\u202e", 30000), strings.Repeat("\xff", 64<<10)} {
		got := shown(hostile)
		if len(got) > 10*longShown || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("a hostile text of %d bytes has %d: %.80q", len(hostile), len(got), got)
		}
	}
	line := (&decided{Decision: "deny", Limit: "a", Key: []string{"x\x1b[31m", "\u202ey"}, Route: "/"}).line()
	if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("%q", line)
	}
	if _, err := json.Marshal(line); err != nil {
		t.Error(err)
	}
}

// TestWatchNamesNoCostOfABan: what an adaptive limit or a ban refuses has no cost, and other requests without a cost
// have one of 0.
func TestWatchNamesNoCostOfABan(t *testing.T) {
	for want, d := range map[string]decided{
		"at  deny    adaptive:app     -                    /  0 of 2 left  no wait helps": {Limit: "adaptive:app", Decision: "deny", Capacity: 2},
		"at  deny    a                -                    /  banned":                     {Limit: "a", Decision: "deny", Banned: true},
		"at  allow   a                -                    /  2 of 2 left  cost 0":        {Limit: "a", Decision: "allow", Capacity: 2, Left: 2},
	} {
		d.At, d.Route = "at", "/"
		if got := d.line(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
