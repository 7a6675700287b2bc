package weir

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"
)

// calendar is windows that are days, weeks, months or years in a time zone. The id is the first day of one, as days since 1970-01-01: a
// date and not a moment, so that another version of the time zones does not make another window of it.
type calendar struct {
	period period
	zone   *time.Location
	unit   time.Duration
	last   *atomic.Pointer[frame] // the window asked for most recently
}

// frame is a window with its ends, in clock units.
type frame struct{ id, begins, ends int64 }

// A Calendar is the windows of a FixedWindow that are days, weeks, months or years, for those who decide where there are no time zones, such as a
// script on a server. Its zone is as it was known when it was made. It is safe for concurrent use.
type Calendar struct{ of calendar }

// A CalendarWindow is one window of a Calendar. Day is its first day, as days since 1970-01-01: the window is known by that, and not by its
// moments, which are others where the zone is decided anew.
type CalendarWindow struct {
	Day          int64
	Begins, Ends time.Time // Ends is the moment at which the next one begins
}

// Calendar returns the windows of a limit whose Align is a period of the calendar. The error says what is wrong with the limit.
func (l FixedWindow) Calendar() (Calendar, error) {
	if err := l.Validate(); err != nil {
		return Calendar{}, err
	}
	c, err := newCalendar(l.Align, time.Second)
	if err != nil {
		return Calendar{}, field("FixedWindow", "Align", fmt.Errorf("%q is of no calendar", l.Align)) // all others are valid
	}
	return Calendar{c}, nil
}

// String is an Align of the same windows, written out: "week-monday:UTC" for "week".
func (c Calendar) String() string {
	period := c.of.period.name
	if period == "week" {
		period += "-" + strings.ToLower(c.of.period.first.String())
	}
	return period + ":" + c.of.zone.String()
}

// Windows returns n windows one after another, the first of them the one that a moment is in. A day that the zone left out is a window of no
// length.
func (c Calendar) Windows(at time.Time, n int) []CalendarWindow {
	if c.of.zone == nil || n < 1 {
		return nil
	}
	windows := make([]CalendarWindow, 0, n)
	day := c.of.window(at.Unix())
	begins := c.of.moment(day)
	for range n {
		next := c.of.period.plus(day, 1)
		ends := c.of.moment(next)
		windows = append(windows, CalendarWindow{day, time.Unix(begins, 0), time.Unix(ends, 0)})
		day, begins = next, ends
	}
	return windows
}

// period is what a calendar counts by.
type period struct {
	name  string
	first time.Weekday // of a week
}

// newCalendar reads an Align.
func newCalendar(a Align, unit time.Duration) (calendar, error) {
	name, zoneName, _ := strings.Cut(string(a), ":")
	c := calendar{unit: unit, period: period{name: name, first: time.Monday}, last: new(atomic.Pointer[frame])}
	if day, ok := strings.CutPrefix(name, "week-"); ok {
		c.period.name = "week"
		for c.period.first = time.Sunday; strings.ToLower(c.period.first.String()) != day; c.period.first++ {
			if c.period.first == time.Saturday {
				return c, fmt.Errorf("%q begins with no day of the week: write week, or week-sunday", a)
			}
		}
	}
	switch c.period.name {
	case "day", "week", "month", "year":
	default:
		return c, fmt.Errorf("%q is no alignment: write epoch, first, or day, week, month or year, with a time zone after a colon, as in month:Europe/Berlin", a)
	}
	if unit > time.Second || time.Second%unit != 0 {
		return c, fmt.Errorf("%q cannot be counted in clock units of %v", a, unit)
	}
	if zoneName == "Local" {
		return c, fmt.Errorf("%q: Local is another zone on each machine: write a name like Europe/Berlin", a)
	}
	var err error
	if c.zone, err = time.LoadLocation(zoneName); err != nil {
		return c, fmt.Errorf("%q: there is no time zone %q here: write a name like Europe/Berlin (a program may import time/tzdata)", a, zoneName)
	}
	return c, nil
}

func (c calendar) wall() bool { return true }

func (c calendar) same(others frames) bool {
	o, ok := others.(calendar)
	return ok && o.period == c.period && o.zone.String() == c.zone.String() && o.unit == c.unit
}

// Readings are taken from the years 1 to 9999; those outside count as the ends of that time.
const (
	firstSecond = -62135596800 // 0001-01-01
	lastSecond  = 253402300799 // 9999-12-31
	daySeconds  = 86400
	hourSeconds = 3600
)

// window finds the last day that begins a period, in the zone, of which the beginning is not after t.
func (c calendar) window(t int64) int64 {
	if f := c.last.Load(); f != nil && f.begins <= t && t < f.ends {
		return f.id
	}
	second := c.second(t)
	local := time.Unix(second, 0).In(c.zone)
	id := c.period.firstDay(local)
	for { // a clock that was put back may show the day before again
		next := c.period.plus(id, 1)
		if c.begins(next) > t || c.moment(next) > lastSecond {
			break
		}
		id = next
	}
	c.last.Store(&frame{id, c.begins(id), c.ends(id, 1)})
	return id
}

// second is the second of a reading.
func (c calendar) second(t int64) int64 {
	perSecond := int64(time.Second / c.unit)
	return min(max(floorTo(t, perSecond)/perSecond, firstSecond), lastSecond)
}

func (c calendar) ends(id int64, n uint64) int64 {
	if f := c.last.Load(); f != nil && f.id == id && n == 1 {
		return f.ends
	}
	if n > 1<<20 {
		return math.MaxInt64
	}
	return c.begins(c.period.plus(id, int64(n)))
}

func (c calendar) begins(id int64) int64 {
	second, perSecond := c.moment(id), int64(time.Second/c.unit)
	switch {
	case second > math.MaxInt64/perSecond:
		return math.MaxInt64
	case second < math.MinInt64/perSecond:
		return math.MinInt64
	}
	return second * perSecond
}

// moment is the earliest second at which clocks in the zone show midnight of a day or anything later. Between two changes of its
// clocks, a zone is a fixed distance from UTC: midnight is looked for in each such stretch in turn, from one that is certainly before.
func (c calendar) moment(day int64) int64 {
	midnight := day * daySeconds
	t := midnight - daySeconds // no zone is a day from UTC
	for {
		at := time.Unix(t, 0).In(c.zone)
		_, offset := at.Zone()
		_, bound := at.ZoneBounds()
		end := bound.Unix()
		if bound.IsZero() {
			end = math.MaxInt64
		} else if end <= t {
			end = t + hourSeconds // beyond its tables, time ends all years after 365 days: on the last of 366, that is past
		}
		found := max(t, midnight-int64(offset))
		if found < end {
			return found
		}
		t = end
	}
}

// firstDay is the first day of the period that a local time is in.
func (p period) firstDay(local time.Time) int64 {
	year, month, dayOf := local.Date()
	switch p.name {
	case "year":
		return days(year, time.January, 1)
	case "month":
		return days(year, month, 1)
	case "week":
		return days(year, month, dayOf) - int64((local.Weekday()-p.first+7)%7)
	}
	return days(year, month, dayOf)
}

// plus is the first day of the n-th period after the one that begins with a day.
func (p period) plus(id, n int64) int64 {
	date := time.Unix(id*daySeconds, 0).UTC()
	switch p.name {
	case "year":
		return days(date.Year()+int(n), time.January, 1)
	case "month":
		return days(date.Year(), date.Month()+time.Month(n), 1)
	case "week":
		return id + 7*n
	}
	return id + n
}

// days counts the days from 1970-01-01.
func days(year int, month time.Month, dayOf int) int64 {
	return floorTo(time.Date(year, month, dayOf, 0, 0, 0, 0, time.UTC).Unix(), daySeconds) / daySeconds
}
