package rules

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/weirflow/weir/internal/raced"
)

// calendarIn is ParseCalendar with the zone loaded, as package weir does it.
func calendarIn(align string, unit time.Duration) (Calendar, error) {
	c, zone, err := ParseCalendar(align, unit)
	if err != nil {
		return c, err
	}
	location, err := time.LoadLocation(zone)
	return c.In(location), err
}

// TestCalendarWindows: when the window of a moment begins and ends, where clocks are changed around
// midnight. Each moment is in UTC, and each window in seconds from it.
func TestCalendarWindows(t *testing.T) {
	for _, c := range []struct {
		align      string
		at         string
		begins     string
		ends       string
		first      string // the date on which the window begins
		difference time.Duration
	}{
		{"day", "2024-02-29T12:00:00Z", "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z", "2024-02-29", 24 * time.Hour},
		{"month", "2024-02-29T23:59:59Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z", "2024-02-01", 29 * 24 * time.Hour},
		{"month", "2023-02-28T23:59:59Z", "2023-02-01T00:00:00Z", "2023-03-01T00:00:00Z", "2023-02-01", 28 * 24 * time.Hour},
		{"year", "2024-12-31T23:59:59Z", "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z", "2024-01-01", 366 * 24 * time.Hour},
		{"week", "2024-01-07T23:59:59Z", "2024-01-01T00:00:00Z", "2024-01-08T00:00:00Z", "2024-01-01", 7 * 24 * time.Hour},
		{"week-sunday", "2024-01-07T23:59:59Z", "2024-01-07T00:00:00Z", "2024-01-14T00:00:00Z", "2024-01-07", 7 * 24 * time.Hour},
		{"day:Europe/Berlin", "2024-03-31T12:00:00Z", "2024-03-30T23:00:00Z", "2024-03-31T22:00:00Z", "2024-03-31", 23 * time.Hour},
		{"day:Europe/Berlin", "2024-10-27T12:00:00Z", "2024-10-26T22:00:00Z", "2024-10-27T23:00:00Z", "2024-10-27", 25 * time.Hour},
		{"month:Europe/Berlin", "2024-10-31T22:59:59Z", "2024-09-30T22:00:00Z", "2024-10-31T23:00:00Z", "2024-10-01", 31*24*time.Hour + time.Hour},

		// Midnight does not exist: the day begins at 01:00, where time.Date returns 23:00 of the
		// day before.
		{"day:America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z", "2018-11-04", 23 * time.Hour},
		{"day:America/Sao_Paulo", "2018-11-04T02:59:59Z", "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z", "2018-11-03", 24 * time.Hour},
		{"day:America/Havana", "2024-03-10T12:00:00Z", "2024-03-10T05:00:00Z", "2024-03-11T04:00:00Z", "2024-03-10", 23 * time.Hour},
		{"day:America/Santiago", "2023-09-03T12:00:00Z", "2023-09-03T04:00:00Z", "2023-09-04T03:00:00Z", "2023-09-03", 23 * time.Hour},
		// Midnight comes twice: the day begins with the first one.
		{"day:America/Havana", "2024-11-03T12:00:00Z", "2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z", "2024-11-03", 25 * time.Hour},
		// At 00:01 clocks went back to 23:01 of the day before, and the date with them: the new day had begun.
		{"day:America/St_Johns", "2006-10-29T02:30:30Z", "2006-10-29T02:30:00Z", "2006-10-30T03:30:00Z", "2006-10-29", 25 * time.Hour},
		{"day:America/St_Johns", "2006-10-29T02:31:00Z", "2006-10-29T02:30:00Z", "2006-10-30T03:30:00Z", "2006-10-29", 25 * time.Hour},
		{"day:America/St_Johns", "2006-10-29T02:29:59Z", "2006-10-28T02:30:00Z", "2006-10-29T02:30:00Z", "2006-10-28", 24 * time.Hour},
		// A day that does not exist: from 29 to 31 December.
		{"day:Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-29", 24 * time.Hour},
		{"day:Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z", "2011-12-31", 24 * time.Hour},
	} {
		for _, unit := range []time.Duration{time.Nanosecond, time.Microsecond, time.Second} {
			cal, err := calendarIn(c.align, unit)
			if err != nil {
				t.Fatal(err)
			}
			at, err := time.Parse(time.RFC3339, c.at)
			if err != nil {
				t.Fatal(err)
			}
			reading := at.UnixNano() / int64(unit)
			id := cal.Window(reading)
			text := func(units int64) string { return time.Unix(0, units*int64(unit)).UTC().Format(time.RFC3339) }
			begins, ends := cal.Begins(id), cal.Ends(id, 1)
			if text(begins) != c.begins || text(ends) != c.ends || time.Duration(ends-begins)*unit != c.difference {
				t.Errorf("%s at %s: from %s to %s, want %s to %s", c.align, c.at, text(begins), text(ends), c.begins, c.ends)
			}
			if first := time.Unix(id*daySeconds, 0).UTC().Format(time.DateOnly); first != c.first {
				t.Errorf("%s at %s: the window of %s, want %s", c.align, c.at, first, c.first)
			}
		}
	}
}

// TestCalendarsInEveryZone: windows follow one another without a gap, and each moment is in the
// window that is found for it.
func TestCalendarsInEveryZone(t *testing.T) {
	raced.Skip(t)
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/St_Johns", "America/Sao_Paulo", "America/Havana", "Pacific/Apia", "Pacific/Kiritimati",
		"Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Casablanca", "Antarctica/Troll", "Asia/Tehran", "America/Scoresbysund", "Asia/Gaza"} {
		for _, period := range []string{"day", "week", "month", "year"} {
			c, err := calendarIn(period+":"+zone, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			for _, year := range []int{2028, 2040, 2096, 2112} { // beyond the tables, and leap years
				for at := time.Date(year, time.December, 29, 0, 0, 0, 0, time.UTC).Unix(); at < days(year+1, 1, 3)*daySeconds; at += hourSeconds {
					id := c.Window(at)
					if c.Begins(id) > at || c.Ends(id, 1) <= at {
						t.Fatalf("%s: at %d the window %d, from %d to %d", c.zone, at, id, c.Begins(id), c.Ends(id, 1))
					}
				}
			}
			last := int64(none)
			for at := int64(0); at < 2_000_000_000; at += 86400 * 3 / 2 { // to 2033
				id := c.Window(at)
				if id < last || c.Begins(id) > at || c.Ends(id, 1) <= at {
					t.Fatalf("%s: at %d the window %d, from %d to %d, after %d", c.zone, at, id, c.Begins(id), c.Ends(id, 1), last)
				}
				last = id
			}
		}
	}
}

// TestTheLastDayOfALeapYear: for that day, package time returns an end of the zone's period that is
// in the past. A search that relied on it never ended.
func TestTheLastDayOfALeapYear(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/St_Johns", "America/Havana", "UTC"} {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for year := 2024; year < 2262; year += 4 {
			for hour := range 72 {
				now := time.Date(year, time.December, 30, hour, 30, 0, 0, loc)
				want := time.Date(year, time.December, now.Day(), 0, 0, 0, 0, loc)
				if now.Year() > year {
					want = time.Date(year+1, time.January, 1, 0, 0, 0, 0, loc)
				}
				c, err := calendarIn("day:"+zone, 1)
				if err != nil {
					t.Fatal(err)
				}
				if got := c.Begins(c.Window(now.UnixNano())); got != want.UnixNano() {
					t.Fatalf("the day of %v begins at %v", now, time.Unix(0, got).In(loc))
				}
			}
		}
	}
}

// TestWindows: windows one after another, with the day that does not exist between two of them.
func TestWindows(t *testing.T) {
	at := time.Date(2011, 12, 29, 12, 0, 0, 0, time.UTC)
	calendar, err := calendarIn("day:Pacific/Apia", time.Second)
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
}

// TestCalendar: which limits have a calendar, and its name.
func TestCalendar(t *testing.T) {
	for align, want := range map[string]string{
		"day": "day:UTC", "day:UTC": "day:UTC", "week": "week-monday:UTC", "week-monday:Europe/Berlin": "week-monday:Europe/Berlin",
		"week-sunday": "week-sunday:UTC", "month:Europe/Berlin": "month:Europe/Berlin", "year:": "year:UTC",
	} {
		if c, err := calendarIn(align, time.Second); err != nil || c.String() != want {
			t.Errorf("%q is called %v, %v, want %s", align, c, err, want)
		}
	}
	for _, align := range []string{"", "epoch", "first", "day:Nowhere", "day:Local", "week-noday", "fortnight"} {
		if c, err := calendarIn(align, time.Second); err == nil {
			t.Errorf("%q has a calendar: %v", align, c)
		}
	}
}
