package weir

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// A Calendar is the windows of a FixedWindow that are days, weeks, months or years, for those who decide where there are no time zones, such as a
// script on a server. Its zone is as it was known when it was made. It is safe for concurrent use.
type Calendar struct{ of rules.Calendar }

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
	period := c.of.Period().Name
	if period == "week" {
		period += "-" + strings.ToLower(c.of.Period().First.String())
	}
	return period + ":" + c.of.Zone().String()
}

// Windows returns n windows one after another, the first of them the one that a moment is in. A day that the zone left out is a window of no
// length.
func (c Calendar) Windows(at time.Time, n int) []CalendarWindow {
	if c.of.Zone() == nil || n < 1 {
		return nil
	}
	windows := make([]CalendarWindow, 0, n)
	day := c.of.Window(at.Unix())
	begins := c.of.Moment(day)
	for range n {
		next := c.of.Period().After(day, 1)
		ends := c.of.Moment(next)
		windows = append(windows, CalendarWindow{day, time.Unix(begins, 0), time.Unix(ends, 0)})
		day, begins = next, ends
	}
	return windows
}

// newCalendar reads an Align that is a period of the calendar, and loads its time zone.
func newCalendar(a Align, unit time.Duration) (rules.Calendar, error) {
	c, zone, err := rules.ParseCalendar(string(a), unit)
	if err != nil {
		return c, err
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return c, fmt.Errorf("%q: there is no time zone %q here: write a name like Europe/Berlin (a program may import time/tzdata)", a, zone)
	}
	return c.In(location), nil
}

// A cachedCalendar is a calendar that remembers the window it was asked about last: nearly every decision is about the same one, and to
// work it out takes a microsecond or more.
type cachedCalendar struct {
	rules.Calendar
	last atomic.Pointer[calendarWindow]
}

// calendarWindow is a window with its ends, in clock units.
type calendarWindow struct{ id, begins, ends int64 }

// Window implements rules.Windows.
func (c *cachedCalendar) Window(t int64) int64 {
	if w := c.last.Load(); w != nil && w.begins <= t && t < w.ends {
		return w.id
	}
	id := c.Calendar.Window(t)
	c.last.Store(&calendarWindow{id, c.Begins(id), c.Calendar.Ends(id, 1)})
	return id
}

// Ends implements rules.Windows.
func (c *cachedCalendar) Ends(id int64, n uint64) int64 {
	if w := c.last.Load(); w != nil && w.id == id && n == 1 {
		return w.ends
	}
	return c.Calendar.Ends(id, n)
}
