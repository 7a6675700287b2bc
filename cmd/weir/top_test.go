package main

import (
	"encoding/json"
	"errors"
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
