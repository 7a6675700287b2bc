package main

import (
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
)

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

func press(screen *top, keys ...tea.KeyType) {
	for _, k := range keys {
		screen.press(tea.KeyMsg{Type: k})
	}
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
	press(screen, tea.KeyDown)
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
		press(screen, tea.KeyDown)
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
	ban := func() { screen.press(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("b")}) }
	keys(liveKey{Shown: "a***", Count: 2}, liveKey{Shown: "b***", Count: 1})
	if ban(); !strings.Contains(screen.message, "choose a key first") {
		t.Errorf("%q", screen.message)
	}
	press(screen, tea.KeyTab)
	if screen.key != "a***" {
		t.Errorf("tab chooses %q", screen.key)
	}
	if ban(); screen.asking != "" || !strings.Contains(screen.message, "show keys first") {
		t.Errorf("%q, %q", screen.asking, screen.message)
	}
	keys(liveKey{Key: []string{"ann"}, Shown: "ann", Count: 2}, liveKey{Key: []string{"bob"}, Shown: "bob", Count: 1})
	screen.key = ""
	press(screen, tea.KeyDown, tea.KeyDown)
	if ban(); screen.asking != "ban" || screen.key != "bob" {
		t.Errorf("%q of %q", screen.asking, screen.key)
	}
}
