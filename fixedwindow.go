package weir

import (
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// FixedWindow admits at most Limit in each of successive windows. It is the limit of contracts and
// quotas ("10,000 a month"), and the loosest one: around the boundary of two windows, twice Limit
// may come at once.
//
// In any interval of length D > 0 it admits at most Limit for each window that the interval
// touches: Limit*(ceil(D/Window)+1). A cost never straddles two windows. State: three words.
type FixedWindow struct {
	Limit  int64         // the most in each window; at least 1
	Window time.Duration // the length of a window; 0 with a calendar
	Align  Align         // where windows begin; default: AlignEpoch
}

// Align says where the windows of a FixedWindow begin: AlignEpoch, AlignFirst, or a calendar
// period. The periods are "day", "week", "month" and "year", with a time zone after a colon, as in
// "month:Europe/Berlin"; default: UTC. Weeks begin on Monday; "week-sunday" and the like name
// another day.
//
// A calendar window begins at the earliest moment at which clocks in the zone show midnight of its
// first day, or a later time. So midnights that are skipped or repeated make no difference. Zones
// are those of package time; a program that may run on a system without them should import
// time/tzdata.
type Align string

// The alignments without a calendar.
const (
	AlignEpoch Align = "epoch" // windows begin at multiples of Window since 1970-01-01 00:00 UTC
	AlignFirst Align = "first" // a window begins with the first charge while none is open
)

// Validate returns an error if a parameter is invalid. The error names the field.
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
		return field(name, "Window", fmt.Errorf("the calendar %q says how long windows are: leave the window out", l.Align))
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
