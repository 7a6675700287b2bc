package observe

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"unicode"
)

var attackers = flag.Int("attackers", 40_000, "how many keys TestAttackerWithManyKeys uses; a million in make long")

// attack sends n requests, each with a key of its own, over eight connections. The keys would be elements of a page, turn the
// direction of a text or move the cursor of a terminal, and some have 60 KiB.
func attack(t *testing.T, address string, n int) {
	t.Helper()
	const at, ahead = 8, 32
	send := func(part int) error {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		w, r := bufio.NewWriterSize(conn, 1<<16), bufio.NewReaderSize(conn, 1<<16)
		open := 0
		read := func() error {
			if err := w.Flush(); err != nil {
				return err
			}
			for ; open > 0; open-- {
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					return err
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					return err
				}
				if code := resp.StatusCode; code != http.StatusNoContent && code != http.StatusTooManyRequests {
					return fmt.Errorf("status %d", code)
				}
			}
			return nil
		}
		for i := range n / at {
			key := fmt.Sprintf("<script>%d-%d</script>\u202e\u009b2J", part, i)
			if i%2000 == 0 {
				key += strings.Repeat("L", 60<<10)
			}
			for range 2 { // the second one is refused
				fmt.Fprintf(w, "GET / HTTP/1.1\r\nHost: x\r\nUser: %s\r\n\r\n", key)
				open++
			}
			if open >= ahead {
				if err := read(); err != nil {
					return err
				}
			}
		}
		return read()
	}
	var all sync.WaitGroup
	errs := make([]error, at)
	for i := range at {
		all.Go(func() { errs[i] = send(i) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestAttackerWithManyKeys: an attacker with very many hostile keys adds no series to the metrics, and no memory after the
// first of them; what pages are made of stays small; the key that is refused most is still found; and the terminal shows no
// character that nobody sees.
func TestAttackerWithManyKeys(t *testing.T) {
	policy := strings.Replace(observed, "burst: 1 } }", "burst: 1 }, max_keys: 10000 }", 1)
	policy = strings.Replace(policy, "burst: 1 }, shadow: true", "burst: 1 }, max_keys: 10000, shadow: true", 1) + "admin: { recent: 1000 }\n"
	w, visit := start(t, policy)
	most := max(*attackers/10, 5000)
	for range most {
		visit("mallory")
	}
	series := func() int { return strings.Count(get(t, "http://"+w.Admin+"/metrics"), "\n") }
	attack(t, w.Gateway, *attackers/4)
	memory, lines := w.Resident(t), series()
	attack(t, w.Gateway, *attackers)
	if now := w.Resident(t); now > memory+64<<20 {
		t.Errorf("%d MiB after the first keys, %d MiB after the others", memory>>20, now>>20)
	}
	if now := series(); now != lines {
		t.Errorf("%d lines of metrics, and then %d", lines, now)
	}
	for path, most := range map[string]int{"/v1/live": 8 << 10, "/v1/keys?n=100&identities=1": 128 << 10, "/v1/keys?n=100": 128 << 10} {
		if text := get(t, "http://"+w.Admin+path); len(text) > most || strings.Contains(text, "LLLL") || strings.ContainsFunc(text, func(r rune) bool { return r > '~' || r < ' ' && r != '\n' }) {
			t.Errorf("%s: %d bytes: %.2000q", path, len(text), text)
		}
	}
	x := run(t, binary, "top", "--admin", "http://"+w.Admin, "--identities")
	screen := x.until("mallory", `</script>\u202e\u009b2J`)
	if strings.ContainsFunc(screen, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Errorf("the screen has characters that nobody sees: %q", screen)
	}
	if mallory, other := strings.Index(screen, "mallory"), strings.Index(screen, "<script>"); mallory > other {
		t.Errorf("the key that is refused most is not the first:\n%s", screen)
	}
}
