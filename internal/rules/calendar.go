package rules

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Calendar is windows that are days, weeks, months or years in a time zone. A window's id is its
// first day, as days since 1970-01-01: a date and not a moment, so that another version of the time
// zone data does not change the id.
type Calendar struct {
	period Period
	zone   *time.Location
	unit   time.Duration
}

// Period is the unit of a calendar.
type Period struct {
	Name  string       // day, week, month or year
	First time.Weekday // the first day of a week
}

// ParseCalendar parses an Align that is a calendar period, and returns the name of its zone: see
// In.
func ParseCalendar(a string, unit time.Duration) (c Calendar, zone string, err error) {
	name, zone, _ := strings.Cut(a, ":")
	c = Calendar{unit: unit, period: Period{Name: name, First: time.Monday}, zone: time.UTC}
	if day, ok := strings.CutPrefix(name, "week-"); ok {
		c.period.Name = "week"
		for c.period.First = time.Sunday; strings.ToLower(c.period.First.String()) != day; c.period.First++ {
			if c.period.First == time.Saturday {
				return c, zone, fmt.Errorf("%q begins with no day of the week: write week, or week-sunday", a)
			}
		}
	}
	switch c.period.Name {
	case "day", "week", "month", "year":
	default:
		return c, zone, fmt.Errorf("%q is not a valid align: write epoch, first, or day, week, month or year, with a time zone after a colon, as in month:Europe/Berlin", a)
	}
	if unit > time.Second || time.Second%unit != 0 {
		return c, zone, fmt.Errorf("%q cannot be counted in clock units of %v", a, unit)
	}
	if zone == "Local" {
		return c, zone, fmt.Errorf("%q: Local is another zone on each machine: write a name like Europe/Berlin", a)
	}
	return c, zone, nil
}

// In returns the same windows in a time zone.
func (c Calendar) In(zone *time.Location) Calendar {
	c.zone = zone
	return c
}

// calendarIdentity is equal for calendars with the same windows.
type calendarIdentity struct {
	period Period
	zone   string
	unit   time.Duration
}

// Identity implements Windows.
func (c Calendar) Identity() any { return calendarIdentity{c.period, c.zone.String(), c.unit} }

// ReadsWallTime implements Windows: a calendar is one of wall time.
func (c Calendar) ReadsWallTime() bool { return true }

// Readings are limited to the years 1 to 9999; earlier and later ones count as the ends of that
// time.
const (
	firstSecond = -62135596800 // 0001-01-01
	lastSecond  = 253402300799 // 9999-12-31
	daySeconds  = 86400
	hourSeconds = 3600
)

// Window finds the last day that begins a period in the zone, and begins at t or before.
func (c Calendar) Window(t int64) int64 {
	second := c.second(t)
	local := time.Unix(second, 0).In(c.zone)
	id := c.period.firstDay(local)
	for { // after clocks are set back, the day before may come again
		next := c.period.After(id, 1)
		if c.Begins(next) > t || c.Moment(next) > lastSecond {
			break
		}
		id = next
	}
	return id
}

// second is the second of a reading.
func (c Calendar) second(t int64) int64 {
	perSecond := int64(time.Second / c.unit)
	return min(max(floorTo(t, perSecond)/perSecond, firstSecond), lastSecond)
}

// Ends implements Windows.
func (c Calendar) Ends(id int64, n uint64) int64 {
	if n > 1<<20 {
		return math.MaxInt64
	}
	return c.Begins(c.period.After(id, int64(n)))
}

// Begins implements Windows.
func (c Calendar) Begins(id int64) int64 {
	second, perSecond := c.Moment(id), int64(time.Second/c.unit)
	switch {
	case second > math.MaxInt64/perSecond:
		return math.MaxInt64
	case second < math.MinInt64/perSecond:
		return math.MinInt64
	}
	return second * perSecond
}

// Moment is the earliest second at which clocks in the zone show midnight of a day, or a later
// time. Between two changes of its clocks, a zone has a fixed offset from UTC. Moment looks for
// midnight in each such stretch in turn, beginning with one that is certainly early enough.
func (c Calendar) Moment(day int64) int64 {
	midnight := day * daySeconds
	t := midnight - daySeconds // no zone's offset from UTC is a whole day
	for {
		at := time.Unix(t, 0).In(c.zone)
		_, offset := at.Zone()
		_, bound := at.ZoneBounds()
		end := bound.Unix()
		if bound.IsZero() {
			end = math.MaxInt64
		} else if end <= t {
			// beyond its tables, package time ends every year after 365 days: on day 366, that end
			// is past
			end = t + hourSeconds
		}
		found := max(t, midnight-int64(offset))
		if found < end {
			return found
		}
		t = end
	}
}

// firstDay is the first day of the period that a local time is in.
func (p Period) firstDay(local time.Time) int64 {
	year, month, dayOf := local.Date()
	switch p.Name {
	case "year":
		return days(year, time.January, 1)
	case "month":
		return days(year, month, 1)
	case "week":
		return days(year, month, dayOf) - int64((local.Weekday()-p.First+7)%7)
	}
	return days(year, month, dayOf)
}

// After is the first day of the n-th period after the one that begins with a day.
func (p Period) After(id, n int64) int64 {
	date := time.Unix(id*daySeconds, 0).UTC()
	switch p.Name {
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

// LongestOf is the longest window of an Align that is a period of the calendar, but for the hour
// that a day may have more.
func LongestOf(align string) time.Duration {
	period, _, _ := strings.Cut(align, ":")
	switch period {
	case "day":
		return day
	case "month":
		return 31 * day
	case "year":
		return 366 * day
	}
	return 7 * day
}

// A CalendarWindow is one window of a Calendar. Its identity is Day, its first day as days since
// 1970-01-01, and not its moments, which change if the zone's rules change.
type CalendarWindow struct {
	Day          int64
	Begins, Ends time.Time // Ends is the moment at which the next window begins
}

// String returns an Align of the same windows in its full form: "week-monday:UTC" for "week".
func (c Calendar) String() string {
	period := c.period.Name
	if period == "week" {
		period += "-" + strings.ToLower(c.period.First.String())
	}
	return period + ":" + c.zone.String()
}

// Windows returns n successive windows, beginning with the one that contains a moment. The calendar
// counts in seconds. A day that the zone skipped is a window of length 0.
func (c Calendar) Windows(at time.Time, n int) []CalendarWindow {
	windows := make([]CalendarWindow, 0, max(n, 0))
	day := c.Window(at.Unix())
	begins := c.Moment(day)
	for range n {
		next := c.period.After(day, 1)
		ends := c.Moment(next)
		windows = append(windows, CalendarWindow{day, time.Unix(begins, 0), time.Unix(ends, 0)})
		day, begins = next, ends
	}
	return windows
}
