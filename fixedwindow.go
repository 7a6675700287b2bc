package weir

import (
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// FixedWindow counts in windows that follow one another: at most Limit in each. It is the limit of contracts and quotas ("10,000 a
// month"), and the loosest one: around the boundary of two windows, twice Limit may come at once.
//
// In any interval of length D it admits at most Limit for each window that it touches: Limit*(ceil(D/Window)+1) for D > 0. A cost never
// straddles two windows. State: three words.
type FixedWindow struct {
	Limit  int64         // how many in each window; at least 1
	Window time.Duration // how long a window is; 0 with a calendar
	Align  Align         // where windows begin; empty is AlignEpoch
}

// Align says where the windows of a FixedWindow begin: AlignEpoch, AlignFirst, or a period of the calendar, "day", "week", "month" or
// "year", with the name of a time zone after a colon, as in "month:Europe/Berlin"; without one it is UTC. Weeks begin on Monday; with
// another day it is "week-sunday" or the like.
//
// A calendar's window begins at the earliest moment at which clocks in the zone show midnight of its first day, or anything later, so
// that midnights that are skipped, or come twice, make no difference. Zones are those of the time package; a program that may run where
// there are none imports time/tzdata.
type Align string

// The alignments that are not of a calendar.
const (
	AlignEpoch Align = "epoch" // windows begin at multiples of their length since 1970-01-01 00:00 UTC
	AlignFirst Align = "first" // a window begins with the first charge for which none is open
)

// Validate reports what is wrong with the numbers.
func (l FixedWindow) Validate() error {
	const name = "FixedWindow"
	if l.Limit < 1 {
		return field(name, "Limit", fmt.Errorf("%d lets nothing pass: it must be at least 1", l.Limit))
	}
	if l.Align == "" || l.Align == AlignEpoch || l.Align == AlignFirst {
		if l.Window < 1 || l.Window > rules.MaxSpan {
			return field(name, "Window", fmt.Errorf("%v is not within 1ns and 100 years", l.Window))
		}
		return nil
	}
	if _, err := newCalendar(l.Align, time.Nanosecond); err != nil {
		return field(name, "Align", err)
	}
	if l.Window != 0 {
		return field(name, "Window", fmt.Errorf("%v with Align %q: the calendar says how long windows are: leave it out", l.Window, l.Align))
	}
	return nil
}

func (l FixedWindow) compile(unit time.Duration) (rules.Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	p := rules.FixedWindow{Limit: l.Limit, Window: l.Window, Align: string(l.Align)}
	if l.Align != "" && l.Align != AlignEpoch && l.Align != AlignFirst {
		c, err := newCalendar(l.Align, unit)
		if err != nil {
			return nil, field("FixedWindow", "Align", err)
		}
		p.Calendar = &cachedCalendar{Calendar: c}
	}
	return compiled("FixedWindow")(p.Compile(unit))
}

func (l FixedWindow) normal() Limit {
	if l.Align == "" {
		l.Align = AlignEpoch
	}
	return l
}
