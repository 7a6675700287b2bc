package weirsql

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// most is the largest number in states and results: as in other stores, so that a limit that one of
// them can keep behaves alike in all.
const (
	most      = 1<<53 - 1
	mostTicks = 1 << 51
	tick      = time.Microsecond
)

// maxEntries is how many charges a log may have: each charge writes them all.
const maxEntries = 1 << 11

// counting is how the functions count.
var counting = rules.Counting{Store: "PostgreSQL", Unit: tick, Most: most, MostTicks: mostTicks, MostEntries: maxEntries}

// A limit is a weir.Limit as the functions read it.
type limit struct {
	def      string // its algorithm and parameters, and the name of its calendar
	capacity int64
	calendar *calendar // nil for one without
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

// decided are the scripts that the functions have, by number.
var decided = [...]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true}

// compile checks a limit and encodes it for the functions.
func compile(l weir.Limit) (*limit, error) {
	prepared, err := weir.Prepare(l, tick)
	if err != nil {
		return nil, err
	}
	if weir.PartNames(l) != nil {
		return nil, errors.New("weirsql: an All cannot be kept in PostgreSQL: charge its limits as a group")
	}
	p, ok := rules.ParamsOf(l).(rules.Stored)
	if !ok || p.Kind().Script.Number >= len(decided) || !decided[p.Kind().Script.Number] {
		return nil, fmt.Errorf("weirsql: a %s cannot be kept in PostgreSQL", weir.Algorithm(l))
	}
	n, err := p.StoreNumbers(counting)
	var wrong *rules.FieldError
	switch {
	case errors.As(err, &wrong):
		return nil, fmt.Errorf("weirsql: %s.%w", p.Kind().GoName, wrong)
	case err != nil:
		return nil, fmt.Errorf("weirsql: %w", err)
	}
	c := &limit{capacity: prepared.Peek(nil, 0, 0).Limit}
	words := []string{strconv.Itoa(p.Kind().Script.Number)}
	for _, v := range n {
		if v > most || v < -most {
			return nil, fmt.Errorf("weirsql: %T%+v: %d is more than PostgreSQL can count: at most %d", l, l, v, int64(most))
		}
		words = append(words, strconv.FormatInt(v, 10))
	}
	c.def = "{" + strings.Join(words, ",") + "}"
	if w, ok := p.(rules.Calendared); ok && w.CalendarAlign() != "" {
		if c.calendar, err = newCalendar(w.CalendarAlign()); err != nil {
			return nil, err
		}
		c.def += c.calendar.name
	}
	return c, nil
}

// Check returns why a limit cannot be kept in PostgreSQL: parameters that could not be counted exactly,
// or an algorithm that the functions do not know.
func Check(l weir.Limit) error {
	_, err := compile(l)
	return err
}

// Keeps implements weir.Keeper: it is Check.
func (s *Store) Keeps(l weir.Limit) error { return Check(l) }

// cost returns a cost as the functions read it: a larger one fits no limit anyway.
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
