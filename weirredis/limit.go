package weirredis

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// The scripts count in doubles, which are exact below 2^53.
const (
	most      = 1<<53 - 1
	mostTicks = 1 << 51 // of a token, and of a clock unit: products of two are divided with a bit to spare
	tick      = time.Microsecond
)

// limit is a limit as the scripts read it.
type limit struct {
	def      string // its numbers, in MessagePack
	kinds    kindSet
	capacity int64
	names    []string // of the parts of an All
	short    *brief   // nil where the short way does not know it

	calendars []*calendar // whose windows it needs
}

// limits keeps what was worked out for each limit that was asked about lately.
type limits struct {
	mu    sync.Mutex
	known map[weir.Limit]*limit
}

// maxLimits bounds them. A program has few limits, and makes a new one where it changes one.
const maxLimits = 1024

func (s *limits) of(l weir.Limit) (*limit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.known[l]; c != nil {
		return c, nil
	}
	c, err := compile(l)
	if err != nil {
		return nil, err
	}
	if len(s.known) >= maxLimits || s.known == nil {
		s.known = map[weir.Limit]*limit{}
	}
	s.known[l] = c
	return c, nil
}

// compile checks a limit, and writes it down for the scripts.
func compile(l weir.Limit) (*limit, error) {
	p, err := weir.Prepare(l, tick)
	if err != nil {
		return nil, err
	}
	c := &limit{capacity: p.Peek(nil, 0, 0).Limit}
	parts, names := weir.Parts(l), weir.PartNames(l)
	if names == nil {
		if c.def, c.kinds, err = c.define(l); err != nil {
			return nil, err
		}
		return c, nil
	}
	def := appendInt(appendInt(appendArray(nil, 2+len(parts)), version), kindAll)
	c.kinds = 1 << kindAll
	c.names = names
	for _, part := range parts {
		text, kinds, err := c.define(part)
		if err != nil {
			return nil, err
		}
		def = appendString(def, text)
		c.kinds |= kinds
	}
	c.def, c.short = string(def), nil // the short way is for one bucket
	return c, nil
}

// version is that of what the scripts keep and are asked.
const version = 1

// counting is how the scripts count.
var counting = rules.Counting{Store: "Redis", Unit: tick, Most: most, MostTicks: mostTicks, MostEntries: maxEntries}

// maxEntries is how many charges a log may remember in Redis: each one copies them.
const maxEntries = 1 << 14

// define writes a limit down that is no All: version, kind, and numbers; and where it has a calendar, the name of that.
func (c *limit) define(l weir.Limit) (string, kindSet, error) {
	p, ok := rules.ParamsOf(l).(rules.Stored)
	if !ok {
		return "", 0, fmt.Errorf("weirredis: %T cannot be kept in Redis", l)
	}
	n, err := p.StoreNumbers(counting)
	var wrong *rules.FieldError
	switch {
	case errors.As(err, &wrong):
		return "", 0, fmt.Errorf("weirredis: %s.%w", p.Kind().GoName, wrong)
	case err != nil:
		return "", 0, fmt.Errorf("weirredis: %w", err)
	}
	var name []string // of a calendar
	if w, ok := p.(rules.Calendared); ok && w.CalendarAlign() != "" {
		cal, err := newCalendar(w.CalendarAlign())
		if err != nil {
			return "", 0, err
		}
		c.calendars = append(c.calendars, cal)
		name = []string{cal.name}
	}
	script := p.Kind().Script
	def := appendInt(appendInt(appendArray(nil, 2+len(n)+len(name)), version), int64(script.Number))
	for _, v := range n {
		if v > most || v < -most {
			return "", 0, fmt.Errorf("weirredis: %T%+v: %d is more than Redis can count: at most %d", l, l, v, int64(most))
		}
		def = appendInt(def, v)
	}
	for _, text := range name {
		def = appendString(def, text)
	}
	if script.Number == kindBucket {
		c.short = shorten(string(def), n)
	}
	return string(def), 1 << script.Number, nil
}

// cost is a cost as the scripts read it: one too large is too large for any limit.
func cost(c int64) int64 {
	switch {
	case c < 0:
		return -1
	case c > most:
		return most + 1
	}
	return c
}

// within is the longest delay, in clock units; below 0 for however long.
func within(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return int64(d / tick)
}

// span is a number of clock units; -1 is never.
func span(units int64) time.Duration {
	switch {
	case units < 0:
		return weir.Never
	case units > math.MaxInt64/int64(tick):
		return math.MaxInt64
	}
	return time.Duration(units) * tick
}

// Check says what is wrong with keeping a limit in Redis: numbers that its scripts could not count exactly, or a limit that they do not know.
func Check(l weir.Limit) error {
	_, err := compile(l)
	return err
}
