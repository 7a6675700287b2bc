package weirtest

import (
	"math/big"
	"strings"
	"time"
)

// calendarModel finds windows of the calendar by looking: a day begins at the first second at which clocks in its zone show its midnight
// or anything later.
type calendarModel struct {
	period string // day, week, month or year
	first  time.Weekday
	zone   string
	tick   time.Duration
	found  map[time.Time]int64 // the starts of dates, so that each is looked for once
}

func newCalendarModel(align string, tick time.Duration) *calendarModel {
	period, zone, _ := strings.Cut(align, ":")
	c := &calendarModel{period: period, zone: zone, first: time.Monday, tick: tick, found: map[time.Time]int64{}}
	if _, day, ok := strings.Cut(period, "-"); ok {
		c.period = "week"
		for c.first = time.Sunday; !strings.EqualFold(c.first.String(), day); c.first++ {
		}
	}
	return c
}

func (c *calendarModel) same(o *calendarModel) bool {
	return c.period == o.period && c.first == o.first && c.zone == o.zone && c.tick == o.tick
}

// start is the second at which a date begins.
func (c *calendarModel) start(date time.Time) int64 {
	at, ok := c.found[date]
	if !ok {
		at = c.look(date)
		c.found[date] = at
	}
	return at
}

func (c *calendarModel) look(date time.Time) int64 {
	zone, err := time.LoadLocation(c.zone)
	if err != nil {
		panic(err) // the limit was valid
	}
	wanted := date.Format("2006-01-02 15:04:05")
	shows := func(second int64) bool { return time.Unix(second, 0).In(zone).Format("2006-01-02 15:04:05") >= wanted }
	at := date.Unix() - 86400
	for step := int64(900); step > 0; step /= 30 { // changes of clocks are at least a quarter of an hour apart
		for !shows(at + step) {
			at += step
		}
		if step == 1 {
			return at + 1
		}
	}
	return at
}

// begins is the first date of the n-th period after the one that a date is in.
func (c *calendarModel) begins(date time.Time, n int) time.Time {
	year, month, day := date.Date()
	switch c.period {
	case "year":
		return time.Date(year+n, 1, 1, 0, 0, 0, 0, time.UTC)
	case "month":
		return time.Date(year, month+time.Month(n), 1, 0, 0, 0, 0, time.UTC)
	case "week":
		for date.Weekday() != c.first {
			date = date.AddDate(0, 0, -1)
		}
		return time.Date(date.Year(), date.Month(), date.Day()+7*n, 0, 0, 0, 0, time.UTC)
	}
	return time.Date(year, month, day+n, 0, 0, 0, 0, time.UTC)
}

// window is the first date of the period that a reading is in: of those around the date that clocks show, the last that has begun.
func (c *calendarModel) window(t int64) time.Time {
	zone, err := time.LoadLocation(c.zone)
	if err != nil {
		panic(err)
	}
	second := new(big.Int).Div(big.NewInt(t), big.NewInt(int64(time.Second/c.tick))).Int64()
	shown := time.Unix(second, 0).In(zone)
	date := time.Date(shown.Year(), shown.Month(), shown.Day(), 0, 0, 0, 0, time.UTC)
	for n := 2; ; n-- {
		if first := c.begins(date, n); c.start(first) <= second {
			return first
		}
	}
}

func (c *calendarModel) starts(t int64) int64 {
	return c.start(c.window(t)) * int64(time.Second/c.tick)
}

func (c *calendarModel) ends(starts int64, n *big.Int) *big.Int {
	if !n.IsInt64() || n.Int64() > 1<<20 {
		return nil
	}
	end := big.NewInt(c.start(c.begins(c.window(starts), int(n.Int64()))))
	return end.Mul(end, big.NewInt(int64(time.Second/c.tick)))
}
