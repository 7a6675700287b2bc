package weirsql

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weirflow/weir/internal/scripted"
)

type calendar = scripted.Calendar

// number writes a number of a calendar as an element of an array.
func number(to []byte, v int64) []byte { return append(strconv.AppendInt(to, v, 10), ',') }

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
			if c := r.charges[i].limit.calendar; c != nil && !slices.ContainsFunc(all, c.Is) {
				all = append(all, c)
			}
		}
	}
	for _, c := range all {
		if c.Unknown {
			texts = append(texts, c.Name, "{}")
			continue
		}
		windows := c.Now(now).Text
		for _, t := range x.times {
			windows += c.Around(t).Text
		}
		texts = append(texts, c.Name, "{"+strings.TrimSuffix(windows, ",")+"}")
	}
	return texts
}

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
	c := scripted.NamedCalendar(name, number)
	if name == "" || slices.ContainsFunc(x.strange, c.Is) {
		return false
	}
	x.strange = append(x.strange, c)
	return true
}
