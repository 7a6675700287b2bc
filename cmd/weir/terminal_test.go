package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

// evil is a name that a client may choose: it clears a terminal whose C1 controls work, and turns the direction of text.
const evil = "evil\u009b2J\u202e<b>"

// harmless fails for an output with a character that is not plain ASCII.
func harmless(t *testing.T, what, out string) {
	t.Helper()
	if !strings.Contains(out, "u009b2J") || strings.ContainsFunc(out, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }) {
		t.Errorf("%s: %q", what, out)
	}
}

// TestNoNameReachesTheTerminal: no name that a client has chosen does anything to a terminal, also where a command prints JSON.
// weir watch --json printed it as it came.
func TestNoNameReachesTheTerminal(t *testing.T) {
	admin, visit := watched(t)
	at := []string{"--admin", "http://" + admin}
	done, watched := make(chan struct{}), ""
	go func() {
		defer close(done)
		_, watched, _ = weir(t, "", append([]string{"watch", "--json", "--keys", "--count", "1"}, at...)...)
	}()
	for waiting := true; waiting; {
		select {
		case <-done:
			waiting = false
		case <-time.After(20 * time.Millisecond): // until it watches, nothing is seen
			visit(evil)
		}
	}
	harmless(t, "watch --json", watched)
	for _, args := range [][]string{{"explain", "per-user", evil, "--json"}, {"explain", "per-user", evil}, {"ban", "per-user", evil, "--for", "1h"}, {"bans"}, {"bans", "--json"}} {
		code, out, errs := weir(t, "", append(args, at...)...)
		if code != 0 {
			t.Fatalf("%v: %d %s", args, code, errs)
		}
		if args[0] != "ban" {
			harmless(t, strings.Join(args, " "), out)
		}
	}

	t.Chdir(t.TempDir())
	log := strings.Repeat(evil+" - - [06/Feb/2009:12:14:13 +0000] \"GET / HTTP/1.1\" 200 5\n", 9)
	for name, text := range map[string]string{"p.yaml": replayLimits, "a.log": log} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"replay", "p.yaml", "a.log"}, {"replay", "p.yaml", "--json", "a.log"}} {
		if code, out, errs := weir(t, "", args...); code != 0 {
			t.Errorf("%v: %d %s", args, code, errs)
		} else {
			harmless(t, strings.Join(args, " "), out)
		}
	}
}
