package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"sync"
	"time"
)

// calendarWindows are days, weeks, months or years of a calendar. It is slow and only for years
// near the present, because it searches for a boundary second by second.
type calendarWindows struct {
	period string // "day", "week", "week-sunday" and so on, "month" or "year"
	zone   *time.Location
	tick   time.Duration
}

func (d calendarWindows) wall() bool     { return true }
func (d calendarWindows) String() string { return fmt.Sprint(d.period, d.zone) }

// date returns the calendar day of a time, as its midnight in UTC.
func (d calendarWindows) date(t time.Time) time.Time {
	year, month, day := t.Date()
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// first reports whether a window begins on a date.
func (d calendarWindows) first(date time.Time) bool {
	switch name, weekday, _ := strings.Cut(d.period, "-"); name {
	case "year":
		return date.YearDay() == 1
	case "month":
		return date.Day() == 1
	case "week":
		return weekday == "" && date.Weekday() == time.Monday || strings.EqualFold(weekday, date.Weekday().String())
	}
	return true
}

// midnights caches the results of midnight.
var midnights sync.Map

// midnight returns the first second at which the local date and time are not before a date's
// midnight.
func (d calendarWindows) midnight(date time.Time) int64 {
	key := d.zone.String() + date.Format(time.DateOnly)
	if found, ok := midnights.Load(key); ok {
		return found.(int64)
	}
	for t := date.Unix() - 36*3600; ; t++ {
		if !d.date(time.Unix(t, 0).In(d.zone)).Before(date) {
			midnights.Store(key, t)
			return t
		}
	}
}

// units converts a second to clock units.
func (d calendarWindows) units(second int64) int64 {
	return clamp(new(big.Int).Mul(big.NewInt(second), big.NewInt(int64(time.Second/d.tick))))
}

// begins returns the start of the last window that begins at t or before.
func (d calendarWindows) begins(t int64) int64 {
	second := new(big.Int).Div(big.NewInt(t), big.NewInt(int64(time.Second/d.tick))).Int64()
	for date := d.date(time.Unix(second, 0).UTC()).AddDate(0, 0, 2); ; date = date.AddDate(0, 0, -1) {
		if d.first(date) && d.midnight(date) <= second {
			return d.units(d.midnight(date))
		}
	}
}

func (d calendarWindows) ends(begins int64, n *big.Int) int64 {
	if n.Cmp(big.NewInt(1<<20)) > 0 {
		return math.MaxInt64
	}
	second := begins / int64(time.Second/d.tick)
	// the window's first day, or a later one if the zone skipped that day
	date := d.date(time.Unix(second, 0).In(d.zone))
	for left := n.Int64(); left > 0; {
		date = date.AddDate(0, 0, 1)
		if d.first(date) && (date.Unix() > second+3*86400 || d.midnight(date) > second) {
			left--
		}
		if date.Year() > 2500 {
			return math.MaxInt64
		}
	}
	return d.units(d.midnight(date))
}
