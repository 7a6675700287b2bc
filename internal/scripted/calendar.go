package scripted

import (
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// A Calendar is the windows of a limit by the dates of a time zone. Scripts compute no calendars, as
// a server knows no time zones, or others than this process. A call about a calendar window carries
// the windows around the present, and the script picks one by the server's clock. If it needs another
// window, it changes nothing and says so.
//
// A state holds the day on which its window begins. So if the time zone data of this process
// change, or differ from those of another process, a window that has begun keeps its count, and
// ends when the new data say. Two things follow the old data for a while: a key expires by the end
// that was known at its last charge, and so does the count of a limit that was replaced by another
// one. If windows become longer, that may admit one more window's worth, once.
type Calendar struct {
	Name    string // the same for limits whose windows are the same
	Unknown bool   // no windows are known: this process lacks the time zone, or another program named it

	of     rules.Calendar
	number func(to []byte, v int64) []byte
	latest atomic.Pointer[Stretch]
}

// A Stretch is consecutive windows as they are sent, with the begin and end of the first one: the
// day, the begin and the end of each.
type Stretch struct {
	Begins, Ends int64
	Text         string
	Count        int
}

// NewCalendar returns the calendar of an alignment. number writes a number as the store sends it.
func NewCalendar(align string, number func(to []byte, v int64) []byte) (*Calendar, error) {
	c, zone, err := rules.ParseCalendar(align, time.Second)
	if err != nil {
		return nil, err
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return nil, err
	}
	c = c.In(location)
	return &Calendar{Name: c.String(), of: c, number: number}, nil
}

// NamedCalendar returns the calendar with a name that the server sent. It is without windows where
// this process cannot know them.
func NamedCalendar(name string, number func(to []byte, v int64) []byte) *Calendar {
	c, err := NewCalendar(name, number)
	if err != nil || c.Name != name {
		return &Calendar{Name: name, Unknown: true}
	}
	return c
}

// slack is how far our estimate of the server's clock may be ahead.
const slack = 10 * time.Second / Tick

// farSlack is how much earlier or later a window may be by other time zone data.
const farSlack = 25 * time.Hour / Tick

// Now returns the windows that a call at a time of the server's clock may need: the current one,
// the next one, for charges made ahead, and one more in case the call arrives after the end of the
// first.
func (c *Calendar) Now(t int64) *Stretch {
	t -= int64(slack)
	if s := c.latest.Load(); s != nil && s.Begins <= t && t < s.Ends {
		return s
	}
	s := c.From(t, 3)
	c.latest.Store(s)
	return s
}

// Around returns the windows around a time that the server has named.
func (c *Calendar) Around(t int64) *Stretch { return c.From(t-int64(farSlack), 4) }

// From returns n windows, beginning with the one of a time.
func (c *Calendar) From(t int64, n int) *Stretch {
	windows := c.of.Windows(time.UnixMicro(t), n)
	var b []byte
	for _, w := range windows {
		b = c.number(b, w.Day)
		b = c.number(b, min(w.Begins.UnixMicro(), Most))
		b = c.number(b, min(w.Ends.UnixMicro(), Most))
	}
	return &Stretch{windows[0].Begins.UnixMicro(), windows[0].Ends.UnixMicro(), string(b), n}
}

// Is reports whether two calendars have the same windows.
func (c *Calendar) Is(other *Calendar) bool { return c.Name == other.Name }
