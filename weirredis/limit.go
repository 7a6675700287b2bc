package weirredis

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// The scripts count in doubles, which are exact below 2^53.
const (
	most = 1<<53 - 1
	// of a token, and of a clock unit: products of two are divided with a bit to spare
	mostTicks = 1 << 51
	tick      = time.Microsecond
)

// A limit is a weir.Limit as the scripts read it.
type limit struct {
	def      string // version, algorithm and parameters, in MessagePack
	kinds    kindSet
	capacity int64
	names    []string // of the parts of an All
	short    *brief   // nil if take.lua does not know it

	calendars []*calendar // whose windows it needs

	beside atomic.Pointer[beside] // another version of it that was met lately
}

// beside is that keys held a state of another version of a limit: until then, calls about the limit
// use the script that knows all algorithms at once, and send the other version's calendars, and so
// take one round trip and not several.
type beside struct {
	until     time.Time
	calendars []*calendar
}

// besideFor is how long another version is expected after it was met.
const besideFor = 10 * time.Second

// meet notes that a key held a state of another version, which goes by such calendars.
func (l *limit) meet(calendars ...*calendar) {
	b := &beside{until: time.Now().Add(besideFor), calendars: calendars}
	if before := l.met(); before != nil {
		b.calendars = append(b.calendars, before.calendars...)
	}
	l.beside.Store(b)
}

// met is the other version that was met lately; nil if none was.
func (l *limit) met() *beside {
	if b := l.beside.Load(); b != nil && time.Now().Before(b.until) {
		return b
	}
	return nil
}

// limits caches compiled limits.
type limits struct {
	mu    sync.Mutex
	known map[weir.Limit]*limit
}

// maxLimits bounds the cache. A program has few limits, and a change of one makes another.
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

// compile checks a limit and encodes it for the scripts.
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
	c.def, c.short = string(def), nil // take.lua is for a single bucket
	return c, nil
}

// version is the version of states and arguments.
const version = 1

// counting is how the scripts count.
var counting = rules.Counting{Store: "Redis", Unit: tick, Most: most, MostTicks: mostTicks, MostEntries: maxEntries}

// maxEntries is how many charges a log may have in Redis: each charge copies them.
const maxEntries = 1 << 14

// define encodes a limit that is no All: version, algorithm, parameters, and the name of its
// calendar, if it has one.
func (l *limit) define(given weir.Limit) (string, kindSet, error) {
	p, ok := rules.ParamsOf(given).(rules.Stored)
	if !ok {
		return "", 0, fmt.Errorf("weirredis: %T cannot be kept in Redis", given)
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
		l.calendars = append(l.calendars, cal)
		name = []string{cal.name}
	}
	script := p.Kind().Script
	def := appendInt(appendInt(appendArray(nil, 2+len(n)+len(name)), version), int64(script.Number))
	for _, v := range n {
		if v > most || v < -most {
			return "", 0, fmt.Errorf("weirredis: %T%+v: %d is more than Redis can count: at most %d", given, given, v, int64(most))
		}
		def = appendInt(def, v)
	}
	for _, text := range name {
		def = appendString(def, text)
	}
	if script.Number == kindBucket {
		l.short = shorten(string(def), n)
	}
	return string(def), 1 << script.Number, nil
}

// cost returns a cost as the scripts read it: a larger one fits no limit anyway.
func cost(c int64) int64 {
	switch {
	case c < 0:
		return -1
	case c > most:
		return most + 1
	}
	return c
}

// within returns the longest acceptable delay, in clock units; below 0: however long.
func within(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return int64(d / tick)
}

// span returns a number of clock units as a duration; -1 is never.
func span(units int64) time.Duration {
	switch {
	case units < 0:
		return weir.Never
	case units > math.MaxInt64/int64(tick):
		return math.MaxInt64
	}
	return time.Duration(units) * tick
}

// Check returns why a limit cannot be kept in Redis: parameters that the scripts could not count
// exactly, or an algorithm that they do not know.
func Check(l weir.Limit) error {
	_, err := compile(l)
	return err
}

// Keeps implements weir.Keeper: it is Check.
func (s *Store) Keeps(l weir.Limit) error { return Check(l) }
