package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"
)

// top is the screen of weir top: a tea.Model.
type top struct {
	server     *topServer
	identities bool
	before     reading
	now        reading

	width, height int
	onKeys        bool // the keys have the cursor
	limit         row
	chosen        bool   // by the user; until then, the limit is the first one
	key           string // the id of the chosen one
	sort          int    // the column
	filter        string
	typing        bool   // the filter is being typed
	asking        string // ban or lift, until y or another key
	message       string
	failing       bool // the server did not respond, and the message says so
}

// columns are what the limits are sorted by.
var columns = []struct {
	name string
	of   func(r *rates) float64
}{
	{"refused/s", func(r *rates) float64 { return r.refused }},
	{"admitted/s", func(r *rates) float64 { return r.allowed }},
	{"delayed/s", func(r *rates) float64 { return r.delayed }},
	{"errors/s", func(r *rates) float64 { return r.errors }},
	{"waiting", func(r *rates) float64 { return float64(r.waiting) }},
	{"keys", func(r *rates) float64 { return float64(r.keys) }},
}

// Cells for the name of a limit, at least, and for the columns beside it.
const (
	shortName  = 24
	besideName = 64
)

// A row is a line of the limits: a limit with a roll_out has two.
type row struct {
	name string
	rest bool // the shadow beyond its roll_out
}

// rates are a limit's, in a second.
type rates struct {
	row
	text                              string // as it is shown
	allowed, refused, delayed, errors float64
	waiting, keys                     int
}

func newTop(s *topServer, identities bool) *top {
	return &top{server: s, identities: identities, width: 80, height: 24}
}

type tick struct{}

func (t *top) every() tea.Cmd {
	return tea.Tick(topEvery, func(time.Time) tea.Msg { return tick{} })
}

func (t *top) ask() tea.Cmd {
	identities := t.identities
	return func() tea.Msg { return t.server.load(context.Background(), identities) }
}

// Init implements tea.Model.
func (t *top) Init() tea.Cmd { return t.every() }

// add takes a reading.
func (t *top) add(r reading) {
	if r.err != nil {
		t.message, t.failing = shown(strings.ReplaceAll(r.err.Error(), "\n", " ")), true
		return
	}
	if t.failing {
		t.message, t.failing = "", false
	}
	t.before, t.now = t.now, r
	if t.before.at.IsZero() {
		t.before = r
	}
}

// Update implements tea.Model.
func (t *top) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tea.WindowSizeMsg:
		t.width, t.height = m.Width, m.Height
	case tick:
		return t, t.ask()
	case reading:
		t.add(m)
		return t, t.every()
	case string: // the answer to a ban
		t.message = m
	case tea.KeyMsg:
		return t, t.press(m)
	}
	return t, nil
}

// press handles a key of the keyboard.
func (t *top) press(k tea.KeyMsg) tea.Cmd {
	name := k.String()
	switch {
	case name == "ctrl+c":
		return tea.Quit
	case t.typing:
		t.edit(k)
		return nil
	case t.asking != "":
		return t.confirm(name)
	}
	t.message = ""
	switch name {
	case "q":
		return tea.Quit
	case "up", "k":
		t.move(-1)
	case "down", "j":
		t.move(1)
	case "tab":
		if t.onKeys = !t.onKeys; t.onKeys {
			t.chosen = true // another limit would have other keys
			if t.chosenKey() == nil {
				t.move(-1) // to the first
			}
		}
	case "s":
		t.sort = (t.sort + 1) % len(columns)
	case "/":
		t.typing = true
	case "esc":
		t.filter = ""
	case "i":
		t.identities, t.key = !t.identities, ""
		t.message = "keys are shown or masked from the next second on"
	case "b", "l":
		t.asking = map[string]string{"b": "ban", "l": "lift"}[name]
		switch chosen := t.chosenKey(); {
		case chosen == nil:
			t.asking, t.message = "", "choose a key first: tab, then up and down"
		case chosen.Key == nil && !t.identities:
			t.asking, t.message = "", "show keys first (i), and choose one: a masked key cannot be banned"
		case chosen.Key == nil:
			t.asking, t.message = "", "this key is too long, or no text: it cannot be banned by its name"
		}
	}
	return nil
}

// edit changes the filter.
func (t *top) edit(k tea.KeyMsg) {
	switch k.Type {
	case tea.KeyEnter:
		t.typing = false
	case tea.KeyEsc:
		t.typing, t.filter = false, ""
	case tea.KeyBackspace:
		if r := []rune(t.filter); len(r) > 0 {
			t.filter = string(r[:len(r)-1])
		}
	case tea.KeyRunes, tea.KeySpace:
		if len(t.filter) < longShown {
			t.filter += string(k.Runes)
		}
	}
}

// confirm bans the chosen key, or lifts its ban, if the user says y.
func (t *top) confirm(name string) tea.Cmd {
	what, chosen, limit := t.asking, t.chosenKey(), t.limit.name
	t.asking = ""
	if name != "y" || chosen == nil || chosen.Key == nil {
		t.message = "nothing was changed"
		return nil
	}
	return func() tea.Msg { return t.server.override(context.Background(), what, limit, chosen.Key) }
}

// move moves the cursor.
func (t *top) move(by int) {
	if t.onKeys {
		keys := t.keys()
		if len(keys) > 0 {
			at := slices.IndexFunc(keys, func(k liveKey) bool { return k.id() == t.key })
			t.key = keys[min(max(at+by, 0), len(keys)-1)].id()
		}
		return
	}
	all := t.rates()
	if len(all) > 0 {
		at := slices.IndexFunc(all, func(r rates) bool { return r.row == t.limit })
		t.limit, t.key, t.chosen = all[min(max(at+by, 0), len(all)-1)].row, "", true
	}
}

// rates returns the limits, sorted.
func (t *top) rates() (all []rates) {
	seconds := float64(t.now.live.Now-t.before.live.Now) / 1000
	per := func(now, before uint64) float64 {
		if seconds <= 0 || now < before { // the server was replaced
			return 0
		}
		return float64(now-before) / seconds
	}
	for _, l := range t.now.live.Limits {
		was := l
		for _, o := range t.before.live.Limits {
			if o.Name == l.Name && o.Shadow == l.Shadow && o.Rest == l.Rest {
				was = o
			}
		}
		r := rates{row: row{l.Name, l.Rest}, text: shown(l.Name), allowed: per(l.admitted(), was.admitted()), refused: per(l.Limited+l.Banned, was.Limited+was.Banned),
			delayed: per(l.Delayed, was.Delayed), errors: per(l.Errors, was.Errors), waiting: l.Waiting, keys: l.KeysCount}
		if l.Shadow {
			r.text = "(" + r.text + ")"
		}
		if t.onKeys || t.filter == "" || strings.Contains(l.Name, t.filter) {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b rates) int { return cmp.Compare(columns[t.sort].of(&b), columns[t.sort].of(&a)) })
	if !t.chosen && len(all) > 0 {
		t.limit = all[0].row
	}
	return all
}

// keys returns the most refused keys of the chosen limit.
func (t *top) keys() (all []liveKey) {
	for _, l := range t.now.keys.Limits {
		if l.Limit != t.limit.name || t.limit.rest { // its keys are not counted
			continue
		}
		for _, k := range l.Refused {
			if !t.onKeys || t.filter == "" || strings.Contains(k.Shown, t.filter) {
				all = append(all, k)
			}
		}
	}
	return all
}

// refusals returns how often a key was refused in a second.
func (t *top) refusals(k liveKey) float64 {
	seconds := float64(t.now.live.Now-t.before.live.Now) / 1000
	for _, l := range t.before.keys.Limits {
		for _, was := range l.Refused {
			if l.Limit == t.limit.name && was.id() == k.id() && k.Count >= was.Count && seconds > 0 {
				return float64(k.Count-was.Count) / seconds
			}
		}
	}
	return 0
}

func (t *top) chosenKey() *liveKey {
	for _, k := range t.keys() {
		if t.onKeys && k.id() == t.key {
			return &k
		}
	}
	return nil
}

// View implements tea.Model.
func (t *top) View() string {
	var b strings.Builder
	line := func(chosen bool, format string, args ...any) {
		text := ansi.Truncate(fmt.Sprintf(format, args...), t.width, "…")
		if chosen {
			text = "\x1b[7m" + text + strings.Repeat(" ", max(0, t.width-ansi.StringWidth(text))) + "\x1b[0m"
		}
		b.WriteString(text + "\n")
	}
	line(false, "weir top  %s  %s  sorted by %s  %s", shown(t.server.addresses[0]), t.now.at.Format("15:04:05"), columns[t.sort].name, shown(t.now.live.File))
	for _, s := range t.now.live.Stores {
		line(false, "store %s: breaker %s", shown(s.Name), shown(s.Breaker))
	}
	all := t.rates()
	room := max(t.height-6-len(t.now.live.Stores), 4)
	wide := shortName // names that are longer get what room there is
	for _, r := range all {
		wide = max(wide, min(ansi.StringWidth(r.text), t.width-besideName))
	}
	line(false, "%-*s %11s %11s %11s %9s %8s %8s", wide, "LIMIT", "refused/s", "admitted/s", "delayed/s", "errors/s", "waiting", "keys")
	at := slices.IndexFunc(all, func(r rates) bool { return r.row == t.limit })
	for _, r := range window(all, at, room/2) {
		line(!t.onKeys && r.row == t.limit, "%-*s %11.1f %11.1f %11.1f %9.1f %8d %8d", wide, ansi.Truncate(r.text, wide, "…"), r.refused, r.allowed, r.delayed, r.errors, r.waiting, r.keys)
	}
	keys := t.keys()
	line(false, "")
	line(false, "%-40s %11s %11s   MOST REFUSED BY %s", "KEY", "refused", "refused/s", shown(t.limit.name))
	if len(keys) == 0 {
		line(false, "(no key was refused, or this limit counts none)")
	}
	at = slices.IndexFunc(keys, func(k liveKey) bool { return k.id() == t.key })
	for _, k := range window(keys, at, room-min(len(all), room/2)) {
		count := fmt.Sprint(k.Count)
		if k.Error > 0 {
			count = "≤" + count
		}
		line(t.onKeys && k.id() == t.key, "%-40s %11s %11.1f", shown(k.Shown), count, t.refusals(k))
	}
	b.WriteString(ansi.Truncate(t.footer(), t.width, "…"))
	return b.String()
}

// footer is the last line.
func (t *top) footer() string {
	switch {
	case t.asking != "":
		what := t.asking
		if what == "ban" {
			what += " for " + shown(t.server.banFor)
		}
		key := ""
		if chosen := t.chosenKey(); chosen != nil {
			key = shown(chosen.Shown)
		}
		return fmt.Sprintf("%s: %s at %s? y or n", what, key, shown(t.limit.name))
	case t.typing:
		return "filter: " + shown(t.filter) + "_"
	case t.message != "":
		return t.message
	case t.filter != "":
		return "filter: " + shown(t.filter) + " (esc clears it)"
	}
	return "up/down choose  tab limits/keys  s sort  / filter  i identities  b ban  l lift  q quit"
}

// window returns most elements with the one at a position among them.
func window[T any](all []T, at, most int) []T {
	if len(all) <= most {
		return all
	}
	from := min(max(at-most/2, 0), len(all)-most)
	return all[from : from+most]
}
