package weir

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// newCalendar parses an Align with a calendar period, and loads its time zone.
func newCalendar(a Align, unit time.Duration) (rules.Calendar, error) {
	c, zone, err := rules.ParseCalendar(string(a), unit)
	if err != nil {
		return c, err
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return c, fmt.Errorf("%q: there is no time zone %q on this machine: write a name like Europe/Berlin", a, zone)
	}
	return c.In(location), nil
}

// A cachedCalendar is a calendar that caches the last window. Nearly every decision is about the
// same window, and computing one takes a microsecond or more.
type cachedCalendar struct {
	rules.Calendar
	last atomic.Pointer[calendarWindow]
}

// calendarWindow is a window, with its ends in clock units.
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
