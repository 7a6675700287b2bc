package weirsql

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// The functions compute no calendars, as the time zone data of the server may differ from ours. A call
// about a calendar window carries the windows around the present, and the function picks one by the
// server's clock. If it needs another window, it changes nothing and says so. A state holds the day on
// which its window begins, so that other time zone data do not reset it.

// A calendar is the windows of a limit by the dates of a time zone.
type calendar struct {
	name   string // the same for limits whose windows are the same
	of     rules.Calendar
	latest atomic.Pointer[stretch]

	unknown bool // no windows are known: see exchange.learn
}

// A stretch is consecutive windows as they are sent, with the begin and end of the first one.
type stretch struct {
	begins, ends int64
	text         string
}

func newCalendar(align string) (*calendar, error) {
	c, zone, err := rules.ParseCalendar(align, time.Second)
	if err != nil {
		return nil, err
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return nil, err
	}
	c = c.In(location)
	return &calendar{name: c.String(), of: c}, nil
}

// slack is how far our estimate of the server's clock may be ahead: see clock.see.
const slack = 10 * time.Second / tick

// farSlack is how much earlier or later a window may be by other time zone data.
const farSlack = 25 * time.Hour / tick

// now returns the windows that a call at a time of the server's clock may need: the current one, the
// next one, for charges made ahead, and one more in case the call arrives after the end of the first.
func (c *calendar) now(t int64) *stretch {
	t -= int64(slack)
	if s := c.latest.Load(); s != nil && s.begins <= t && t < s.ends {
		return s
	}
	s := c.from(t, 3)
	c.latest.Store(s)
	return s
}

// from returns n windows, beginning with the one of a time.
func (c *calendar) from(t int64, n int) *stretch {
	windows := c.of.Windows(time.UnixMicro(t), n)
	var words []string
	for _, w := range windows {
		for _, v := range []int64{w.Day, min(w.Begins.UnixMicro(), most), min(w.Ends.UnixMicro(), most)} {
			words = append(words, strconv.FormatInt(v, 10))
		}
	}
	return &stretch{windows[0].Begins.UnixMicro(), windows[0].Ends.UnixMicro(), strings.Join(words, ",")}
}

// calendars returns the calendars for a call: the name of each, and its windows around the present and
// around x.times.
func (x *exchange) calendars() (texts []string) {
	now, known := x.store.clock.now()
	if !known {
		return nil // the call only learns the clock
	}
	all := slices.Clone(x.strange)
	for _, r := range x.requests {
		for i := range r.charges {
			if c := r.charges[i].limit.calendar; c != nil && !slices.ContainsFunc(all, c.is) {
				all = append(all, c)
			}
		}
	}
	for _, c := range all {
		if c.unknown {
			texts = append(texts, c.name, "{}")
			continue
		}
		words := []string{c.now(now).text}
		for _, t := range x.times {
			words = append(words, c.from(t-int64(farSlack), 4).text)
		}
		texts = append(texts, c.name, "{"+strings.Join(words, ",")+"}")
	}
	return texts
}

// is reports whether two calendars have the same windows.
func (c *calendar) is(other *calendar) bool { return c.name == other.name }

// maxTimes bounds how many windows one call may request.
const maxTimes = 256

// lacking adds what a call lacked that was not carried out: a time in the window that is needed, or the
// name of the calendar of another version. It reports whether that is new.
func (x *exchange) lacking(detail string) bool {
	t, err := strconv.ParseInt(detail, 10, 64)
	switch {
	case len(x.times)+len(x.strange) >= maxTimes:
		return false
	case err != nil:
		return x.learn(detail)
	case slices.Contains(x.times, t):
		return false
	}
	x.times = append(x.times, t)
	return true
}

// learn adds the calendar of another version. One that this process cannot know, as it lacks the time
// zone, is sent without windows.
func (x *exchange) learn(name string) bool {
	c, err := newCalendar(name)
	if err != nil || c.name != name {
		c = &calendar{name: name, unknown: true}
	}
	if name == "" || slices.ContainsFunc(x.strange, c.is) {
		return false
	}
	x.strange = append(x.strange, c)
	return true
}
