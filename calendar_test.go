package weir

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

// TestWindows: windows one after another, and the day that never was between two of them.
func TestWindows(t *testing.T) {
	at := time.Date(2011, 12, 29, 12, 0, 0, 0, time.UTC)
	calendar, err := FixedWindow{Limit: 1, Align: "day:Pacific/Apia"}.Calendar()
	if err != nil {
		t.Fatal(err)
	}
	windows := calendar.Windows(at, 4)
	day := time.Date(2011, time.December, 29, 0, 0, 0, 0, time.UTC).Unix() / 86400
	for i, want := range []struct{ begins, ends string }{
		{"2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"2011-12-31T10:00:00Z", "2012-01-01T10:00:00Z"},
	} {
		got := windows[i]
		begins, ends := got.Begins.UTC().Format(time.RFC3339), got.Ends.UTC().Format(time.RFC3339)
		if begins != want.begins || ends != want.ends || got.Day != day+int64(i) {
			t.Errorf("window %d is day %d from %s to %s, want day %d from %s to %s", i, got.Day, begins, ends, day+int64(i), want.begins, want.ends)
		}
	}
	if none := (Calendar{}).Windows(at, 1); none != nil {
		t.Errorf("no calendar has windows: %v", none)
	}
}

// TestCalendar: which limits have one, and what it is called.
func TestCalendar(t *testing.T) {
	for align, want := range map[Align]string{
		"day": "day:UTC", "day:UTC": "day:UTC", "week": "week-monday:UTC", "week-monday:Europe/Berlin": "week-monday:Europe/Berlin",
		"week-sunday": "week-sunday:UTC", "month:Europe/Berlin": "month:Europe/Berlin", "year:": "year:UTC",
	} {
		if c, err := (FixedWindow{Limit: 1, Align: align}).Calendar(); err != nil || c.String() != want {
			t.Errorf("%q is called %v, %v, want %s", align, c, err, want)
		}
	}
	for _, l := range []FixedWindow{{Limit: 1, Window: time.Second}, {Limit: 1, Window: time.Second, Align: AlignFirst}, {Align: "day"}, {Limit: 1, Align: "day:Nowhere"}} {
		if c, err := l.Calendar(); err == nil {
			t.Errorf("%+v has a calendar: %v", l, c)
		} else if l.Window > 0 && !strings.Contains(err.Error(), "of no calendar") {
			t.Errorf("%+v: %v", l, err)
		}
	}
}

// TestCachedCalendar: what a calendar remembers changes none of its answers, in whatever order it is asked.
func TestCachedCalendar(t *testing.T) {
	for _, align := range []Align{"day:America/St_Johns", "week", "month:Europe/Berlin", "year:Pacific/Apia"} {
		pure, err := newCalendar(align, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		cached := &cachedCalendar{Calendar: pure}
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 20_000 {
			at := rnd.Int64N(40 * 366 * 86400)
			if rnd.IntN(2) == 0 && cached.last.Load() != nil { // near a boundary of the window that is remembered
				w := cached.last.Load()
				at = []int64{w.begins - 1, w.begins, w.ends - 1, w.ends}[rnd.IntN(4)]
			}
			id := cached.Window(at)
			if want := pure.Window(at); id != want {
				t.Fatalf("%s: at %d the window %d, want %d", align, at, id, want)
			}
			for n := range uint64(3) {
				if got, want := cached.Ends(id, n), pure.Ends(id, n); got != want {
					t.Fatalf("%s: the window %d ends at %d, want %d", align, id, got, want)
				}
			}
		}
		if cached.Identity() != pure.Identity() {
			t.Errorf("%s: the cached calendar is taken for another", align)
		}
	}
}
