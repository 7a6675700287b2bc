package weirredis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// Redis knows no time zones. A call about a calendar window carries the windows around the present;
// the script picks one by the server's clock. If it needs another window, it changes nothing and
// says so.
//
// A state holds the day on which its window begins. So if the time zone data of this process
// change, or differ from those of another process, a window that has begun keeps its count, and
// ends when the new data say. Two things follow the old data for a while: a key expires by the end
// that was known at its last charge, and so does the count of a limit that was replaced by another
// one. If windows become longer, that may admit one more window's worth, once.

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
	count        int
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

// now returns the windows that a call at a time of the server's clock may need: the current one,
// the next one, for charges made ahead, and one more in case the call arrives after the end of the
// first.
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
	var b []byte
	for _, w := range windows {
		b = appendInt(b, w.Day)
		b = appendInt(b, min(w.Begins.UnixMicro(), most))
		b = appendInt(b, min(w.Ends.UnixMicro(), most))
	}
	return &stretch{windows[0].Begins.UnixMicro(), windows[0].Ends.UnixMicro(), string(b), n}
}

// calendars returns the calendars for a call: the name of each, with its windows around the present
// and around x.times. It is empty if no limit has a calendar, and if the server's clock is not
// known: such a call only learns the clock.
func (x *exchange) calendars() string {
	now, known := x.part.clock.now()
	if !known {
		return ""
	}
	var all []*calendar
	for _, r := range x.requests {
		for i := range r.charges {
			l := r.charges[i].limit
			known := l.calendars
			if other := l.met(); other != nil {
				known = slices.Concat(known, other.calendars)
			}
			for _, c := range slices.Concat(known, x.strange) {
				if !slices.ContainsFunc(all, func(o *calendar) bool { return o.name == c.name }) {
					all = append(all, c)
				}
			}
		}
	}
	if all == nil {
		return ""
	}
	b := appendArray(nil, 2*len(all))
	for _, c := range all {
		b = appendString(b, c.name)
		if c.unknown {
			b = appendArray(b, 0)
			continue
		}
		s := c.now(now)
		text, count := s.text, s.count
		for _, t := range x.times {
			s := c.from(t-int64(farSlack), 4)
			text, count = text+s.text, count+s.count
		}
		b = append(appendArray(b, 3*count), text...)
	}
	return string(b)
}

// lacking is for a call that was not carried out as it lacked a window: our estimate of the
// server's clock was wrong, or a state is about a window far ahead. The answer has a reading of
// that clock, times in the windows that are needed, and the names of calendars by which another
// version of a limit goes.
func (x *exchange) lacking(text string) {
	var times []int64
	known := len(x.times) + len(x.strange)
	for _, word := range strings.Fields(text)[1:] {
		t, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			x.learn(word)
		} else {
			times = append(times, t)
		}
	}
	if len(times) == 0 {
		x.finish(fmt.Errorf("weirredis: %s", text))
		return
	}
	for _, t := range times[1:] {
		if !slices.Contains(x.times, t) {
			x.times = append(x.times, t)
		}
	}
	if n := len(x.times) + len(x.strange); n == known || n > maxTimes {
		x.finish(fmt.Errorf("weirredis: the windows that are needed are not found: %s", text))
		return
	}
	x.part.clock.set(times[0])
	if !x.unsure {
		x.nonce = "" // its expiry may follow another clock
	}
}

// learn adds the calendar of another version. One that this process cannot know, as it lacks the
// time zone, or as another program wrote the state, is sent without windows.
func (x *exchange) learn(name string) {
	if slices.ContainsFunc(x.strange, func(c *calendar) bool { return c.name == name }) {
		return
	}
	c, err := newCalendar(name)
	if err != nil || c.name != name {
		c = &calendar{name: name, unknown: true}
	}
	x.strange = append(x.strange, c)
	for _, r := range x.requests {
		for i := range r.charges {
			if l := r.charges[i].limit; l.met() != nil {
				l.meet(c)
			}
		}
	}
}

// maxTimes bounds how many windows one call may request.
const maxTimes = 16 * maxCharges
