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

// A server knows no time zones: of each calendar that a call is about, the windows around the time at which it will be carried out are sent
// along. The script picks by the server's clock, and where others are needed it changes nothing and says so.
//
// A state holds the day that its window begins with. So where this program comes to have other data of the time zones than before, or than
// another process, a window that has begun stays the same one, with what was counted in it, and ends when the new data say so. Two things
// follow the old data for a while: a key expires by the end that was known when it was last charged, and so does what is counted of a
// limit that is no longer asked about, when it is carried over to another one. Where windows become longer, that may let once more pass.

// A calendar is the windows of a limit.
type calendar struct {
	name   string // the same for limits whose windows are the same
	of     rules.Calendar
	latest atomic.Pointer[stretch]
}

// A stretch is some windows one after another, as they are sent, and from when to when the first of them is.
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

// slack is how much later than it is we may take it to be: see clock.see.
const slack = 10 * time.Second / tick

// farSlack is how much earlier or later a window may be by other data of the time zones.
const farSlack = 25 * time.Hour / tick

// now is the windows that may be needed by a call about the present, at a time of the server's clock: that one and the next, in which work is
// booked ahead, and one more for those who stand at the end of the first.
func (c *calendar) now(t int64) *stretch {
	t -= int64(slack)
	if s := c.latest.Load(); s != nil && s.begins <= t && t < s.ends {
		return s
	}
	s := c.from(t, 3)
	c.latest.Store(s)
	return s
}

// from is n windows from the one on that a time is in.
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

// calendars is what a call sends of calendars: the name of each, and its windows around the present and the times that were asked for. It is
// empty where no limit has one, and where the server's clock is not known: such a call only asks for that.
func (x *exchange) calendars() string {
	now, known := x.part.clock.now()
	if !known {
		return ""
	}
	var all []*calendar
	for _, r := range x.requests {
		for i := range r.charges {
			for _, c := range r.charges[i].limit.calendars {
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

// lacking is for a call that was not carried out, as it needs windows that it was not sent: where the server's clock is not where we took it to be,
// and where a state is about a window far ahead. The answer says what that clock reads, and times in those windows.
func (x *exchange) lacking(text string) {
	var times []int64
	for _, word := range strings.Fields(text)[1:] {
		t, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			x.finish(fmt.Errorf("weirredis: %s", text))
			return
		}
		times = append(times, t)
	}
	known := len(x.times)
	for _, t := range times[min(1, len(times)):] {
		if !slices.Contains(x.times, t) {
			x.times = append(x.times, t)
		}
	}
	if len(x.times) == known || len(x.times) > maxTimes {
		x.finish(fmt.Errorf("weirredis: the windows that are needed are not found: %s", text))
		return
	}
	x.part.clock.set(times[0])
	if !x.unsure {
		x.nonce = "" // its expiry may be of another clock
	}
}

// maxTimes bounds how many windows are looked for, of one call.
const maxTimes = 16 * maxCharges
