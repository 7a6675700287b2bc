package weirredis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirflow/weir/internal/scripted"
)

type calendar = scripted.Calendar

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
				if !slices.ContainsFunc(all, c.Is) {
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
		b = appendString(b, c.Name)
		if c.Unknown {
			b = appendArray(b, 0)
			continue
		}
		s := c.Now(now)
		text, count := s.Text, s.Count
		for _, t := range x.times {
			s := c.Around(t)
			text, count = text+s.Text, count+s.Count
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
	if slices.ContainsFunc(x.strange, func(c *calendar) bool { return c.Name == name }) {
		return
	}
	c := scripted.NamedCalendar(name, appendInt)
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
