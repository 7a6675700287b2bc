package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
)

// topWith returns the screen of weir top for one limit and its most refused keys, as /v1/keys writes them.
func topWith(t *testing.T, keys string) *top {
	t.Helper()
	m := newTop(&topServer{servers: &servers{addresses: []string{"http://127.0.0.1:9090"}}, banFor: "1h"}, true)
	r := reading{at: time.Unix(1, 0)}
	if err := json.Unmarshal([]byte(`{"now_ms": 1000, "limits": [{"name": "pair"}]}`), &r.live); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(`{"limits": [{"limit": "pair", "counts": true, "refused": `+keys+`}]}`), &r.keys); err != nil {
		t.Fatal(err)
	}
	m.add(r)
	m.View()
	return m
}

// press types keys of the keyboard.
func press(m *top, names ...string) {
	for _, name := range names {
		k := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(name)}
		switch name {
		case "tab":
			k = tea.KeyMsg{Type: tea.KeyTab}
		case "down":
			k = tea.KeyMsg{Type: tea.KeyDown}
		}
		m.Update(k)
	}
}

// TestTopTellsKeysApart: of keys that are shown alike, as a client chose their texts, the one with the cursor is
// the one that would be banned.
func TestTopTellsKeysApart(t *testing.T) {
	m := topWith(t, `[{"key": ["ann", "x, y"], "shown": "ann, x, y", "count": 9}, {"key": ["ann, x", "y"], "shown": "ann, x, y", "count": 5}]`)
	press(m, "tab", "down", "down", "b")
	if chosen := m.chosenKey(); m.asking != "ban" || chosen == nil || chosen.Key[0] != "ann, x" {
		t.Errorf("asking %q about %+v, want the second key", m.asking, chosen)
	}
	if marked := strings.Count(m.View(), "\x1b[7m"); marked != 1 {
		t.Errorf("%d lines have the cursor", marked)
	}
}

// TestTopBansNoOtherKey: a key with bytes that are no text has no name to ban it by. What stands for them would be
// the name of another key.
func TestTopBansNoOtherKey(t *testing.T) {
	m := topWith(t, `[{"shown": "\\xff\\xfe", "count": 9}]`)
	press(m, "tab", "down", "b")
	if m.asking != "" || !strings.Contains(m.message, "no text") {
		t.Errorf("asking %q, message %q", m.asking, m.message)
	}
	if !strings.Contains(m.View(), `\xff\xfe`) {
		t.Error(m.View())
	}
}

// TestTopCountsAsTheDashboard: requests that pass by a grant, or are exempt, are admitted.
func TestTopCountsAsTheDashboard(t *testing.T) {
	m := topWith(t, `[]`)
	var r reading
	if err := json.Unmarshal([]byte(`{"now_ms": 2000, "limits": [{"name": "pair", "allowed": 1, "granted": 20, "exempt": 300, "limited": 5, "banned": 60}]}`), &r.live); err != nil {
		t.Fatal(err)
	}
	m.add(r)
	if all := m.rates(); len(all) != 1 || all[0].allowed != 321 || all[0].refused != 65 {
		t.Errorf("%+v", all)
	}
}

// TestTopShowsAdaptiveLimits: limits of requests in flight that find themselves stand behind the others, each target of
// an upstream by its address.
func TestTopShowsAdaptiveLimits(t *testing.T) {
	m := topWith(t, `[]`)
	m.width = 100
	for i, counts := range []string{`"ok": 10, "dropped": 2, "refused": 1`, `"ok": 40, "dropped": 4, "refused": 8, "waiting": 3`} {
		r := reading{at: time.Unix(int64(i+2), 0)}
		all := fmt.Sprintf(`{"now_ms": %d, "limits": [{"name": "pair"}], "adaptive": [{"limit": "adaptive:app", "target": "127.0.0.1:9000", %s}]}`, 2000+1000*i, counts)
		if err := json.Unmarshal([]byte(all), &r.live); err != nil {
			t.Fatal(err)
		}
		r.live.withAdaptive()
		m.add(r)
	}
	if view := m.View(); !strings.Contains(view, "adaptive:app 127.0.0.1:9000         7.0        32.0         0.0       0.0        3        0") {
		t.Error(view)
	}
	m.width = 80
	if view := m.View(); !strings.Contains(view, "adaptive:app 127.0.0.1:…") {
		t.Error(view)
	}
}

// TestTopForgetsAnOutage: the message that the server does not respond goes away when it responds again.
func TestTopForgetsAnOutage(t *testing.T) {
	m := topWith(t, `[]`)
	m.add(reading{err: errors.New("nothing listens there")})
	if !strings.Contains(m.View(), "nothing listens there") {
		t.Error(m.View())
	}
	m.add(m.now)
	if strings.Contains(m.View(), "nothing listens there") {
		t.Error(m.View())
	}
}

// topOf returns a screen after two readings, one second apart, of limits that refuse as often as said.
func topOf(t *testing.T, refused map[string]uint64, order ...string) (*top, func()) {
	t.Helper()
	screen := newTop(&topServer{servers: &servers{addresses: []string{"http://x"}}, banFor: "1h"}, false)
	second := 0
	next := func() {
		r := reading{at: time.Unix(int64(second), 0)}
		r.live.Now = int64(second) * 1000
		for _, name := range order {
			l := liveLimit{Name: strings.TrimPrefix(name, "rest of "), Rest: strings.HasPrefix(name, "rest of "), Limited: refused[name] * uint64(second)}
			l.Shadow = l.Rest
			r.live.Limits = append(r.live.Limits, l)
		}
		second++
		screen.add(r)
		screen.rates()
	}
	next()
	next()
	return screen, next
}

// TestTopBeginsWithTheFirstLimit: until a limit is chosen, the keys are those of the one that is sorted first. They were those
// of the first limit of the policy, which often refuses nobody, whatever others did.
func TestTopBeginsWithTheFirstLimit(t *testing.T) {
	refused := map[string]uint64{"quiet": 0, "busy": 10, "calm": 5}
	screen, next := topOf(t, refused, "quiet", "busy", "calm")
	if screen.limit.name != "busy" {
		t.Errorf("it begins with %q", screen.limit.name)
	}
	refused["calm"] = 50
	next()
	if screen.limit.name != "calm" {
		t.Errorf("later it is %q", screen.limit.name)
	}
	press(screen, "down")
	chosen := screen.limit.name
	refused["quiet"] = 500
	next()
	if screen.limit.name != chosen {
		t.Errorf("the limit that was chosen, %q, has become %q", chosen, screen.limit.name)
	}
}

// TestTopReachesEachLimit: down leads through all lines, also past both lines of a limit with a roll_out. From the second of
// them, it led back to the first.
func TestTopReachesEachLimit(t *testing.T) {
	screen, _ := topOf(t, map[string]uint64{"a": 9, "rest of new": 8, "b": 7, "new": 6, "c": 5}, "a", "b", "c", "new", "rest of new")
	var way []string
	for range 5 {
		name := screen.limit.name
		if screen.limit.rest {
			name = "rest of " + name
		}
		way = append(way, name)
		press(screen, "down")
	}
	if got := strings.Join(way, ", "); got != "a, rest of new, b, new, c" {
		t.Errorf("down leads through %s", got)
	}
}

// TestTopChoosesAKey: tab chooses the first key. A key that is masked cannot be banned, and the screen says what to do.
func TestTopChoosesAKey(t *testing.T) {
	screen, next := topOf(t, map[string]uint64{"l": 1}, "l")
	keys := func(of ...liveKey) {
		next()
		screen.now.keys.Limits = append(screen.now.keys.Limits, struct {
			Limit   string    `json:"limit"`
			Counts  bool      `json:"counts"`
			Refused []liveKey `json:"refused"`
		}{"l", true, of})
	}
	ban := func() { press(screen, "b") }
	keys(liveKey{Shown: "a***", Count: 2}, liveKey{Shown: "b***", Count: 1})
	if ban(); !strings.Contains(screen.message, "choose a key first") {
		t.Errorf("%q", screen.message)
	}
	press(screen, "tab")
	if screen.key != "a***" {
		t.Errorf("tab chooses %q", screen.key)
	}
	if ban(); screen.asking != "" || !strings.Contains(screen.message, "show keys first") {
		t.Errorf("%q, %q", screen.asking, screen.message)
	}
	keys(liveKey{Key: []string{"ann"}, Shown: "ann", Count: 2}, liveKey{Key: []string{"bob"}, Shown: "bob", Count: 1})
	screen.key = ""
	press(screen, "down", "down")
	if ban(); screen.asking != "ban" || screen.chosenKey().Shown != "bob" {
		t.Errorf("%q of %q", screen.asking, screen.key)
	}
}
