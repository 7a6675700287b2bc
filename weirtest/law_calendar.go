package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"sync"
	"time"
)

// dated is windows that are days, weeks, months or years of a calendar. It is for the years in which anyone lives: a boundary is looked
// for second by second.
type dated struct {
	period string // "day", "week", "week-sunday" and so on, "month" or "year"
	zone   *time.Location
	tick   time.Duration
}

func (d dated) wall() bool     { return true }
func (d dated) String() string { return fmt.Sprint(d.period, d.zone) }

// date is a day of the calendar, which is the same everywhere: midnight in UTC stands for it.
func (d dated) date(t time.Time) time.Time {
	year, month, day := t.Date()
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// first reports whether a window begins with a date.
func (d dated) first(date time.Time) bool {
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

// midnights remembers what was looked for once.
var midnights sync.Map

// midnight is the earliest second at which the date and time in the zone are those of a date's midnight, or later.
func (d dated) midnight(date time.Time) int64 {
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

// units is a second in clock units.
func (d dated) units(second int64) int64 {
	return clamp(new(big.Int).Mul(big.NewInt(second), big.NewInt(int64(time.Second/d.tick))))
}

// begins is the beginning of the last window that begins at t or before.
func (d dated) begins(t int64) int64 {
	second := new(big.Int).Div(big.NewInt(t), big.NewInt(int64(time.Second/d.tick))).Int64()
	for date := d.date(time.Unix(second, 0).UTC()).AddDate(0, 0, 2); ; date = date.AddDate(0, 0, -1) {
		if d.first(date) && d.midnight(date) <= second {
			return d.units(d.midnight(date))
		}
	}
}

func (d dated) ends(begins int64, n *big.Int) int64 {
	if n.Cmp(big.NewInt(1<<20)) > 0 {
		return math.MaxInt64
	}
	second := begins / int64(time.Second/d.tick)
	date := d.date(time.Unix(second, 0).In(d.zone)) // the window's first, or a later one where that never was
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
