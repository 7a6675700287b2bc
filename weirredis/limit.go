package weirredis

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/weirflow/weir"
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
		c.short = shorten(c.def, l)
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
	c.def = string(def)
	return c, nil
}

// version is that of what the scripts keep and are asked.
const version = 1

// define writes a limit down that is no All: version, kind, and numbers; and where it has a calendar, the name of that.
func (c *limit) define(l weir.Limit) (string, kindSet, error) {
	var kind int
	var n []int64
	var name []string // of a calendar
	var err error
	switch l := l.(type) {
	case weir.TokenBucket:
		missing := int64(0)
		switch {
		case l.Initial == weir.InitialEmpty:
			missing = l.Burst
		case l.Initial != 0:
			missing = l.Burst - l.Initial
		}
		kind = kindBucket
		n, err = bucketNumbers(0, l.Rate, l.Burst, missing)
	case weir.LeakyBucket:
		kind = kindBucket
		n, err = bucketNumbers(1, l.Rate, l.Queue+1, l.DelayAfter)
	case weir.SmoothBursty:
		kind = kindBucket
		n, err = burstyNumbers(l)
	case weir.IntervalBucket:
		kind = kindInterval
		n = []int64{l.Burst, l.Refill, int64(l.Every / tick)}
	case weir.FixedWindow:
		kind = kindFixed
		n, name, err = c.fixedNumbers(l)
	case weir.SlidingCounter:
		kind = kindCounter
		n = []int64{l.Limit, int64(l.Window / tick)}
	case weir.SlidingWindow:
		kind, n = kindWindow, windowNumbers(l)
	case weir.SlidingLog:
		kind = kindLog
		n, err = logNumbers(l)
	case weir.WarmUp:
		kind = kindWarm
		n, err = warmNumbers(l)
	default:
		return "", 0, fmt.Errorf("weirredis: %T cannot be kept in Redis", l)
	}
	if err != nil {
		return "", 0, err
	}
	def := appendInt(appendInt(appendArray(nil, 2+len(n)+len(name)), version), int64(kind))
	for _, v := range n {
		if v > most || v < -most {
			return "", 0, fmt.Errorf("weirredis: %T%+v: %d is more than Redis can count: at most %d", l, l, v, int64(most))
		}
		def = appendInt(def, v)
	}
	for _, text := range name {
		def = appendString(def, text)
	}
	return string(def), 1 << kind, nil
}

// ticks is a rate in the scripts' clock unit: one unit brings n ticks, and one token costs p.
func ticks(r weir.Rate) (n, p int64, err error) {
	n, p = r.N, int64(r.Per)
	g := gcd(n, p)
	n, p = n/g, p/g
	u := int64(tick)
	g = gcd(u, p)
	u, p = u/g, p/g
	if n > mostTicks/u || p > mostTicks {
		return 0, 0, fmt.Errorf("weirredis: the rate %v cannot be counted exactly in Redis: reduced, it may be up to %d for each microsecond, or one each %v", r, int64(mostTicks), time.Duration(mostTicks)*tick)
	}
	return n * u, p, nil
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func bucketNumbers(kind int64, r weir.Rate, size, extra int64) ([]int64, error) {
	n, p, err := ticks(r)
	return []int64{kind, n, p, size, extra}, err
}

func burstyNumbers(l weir.SmoothBursty) ([]int64, error) {
	store := l.MaxBurst / tick
	switch {
	case l.MaxBurst == 0:
		store = time.Second / tick
	case l.MaxBurst < 0:
		store = 0
	}
	if l.Rate == weir.Unlimited {
		return []int64{2, 1, 0, most, int64(store)}, nil
	}
	n, p, err := ticks(l.Rate)
	if err != nil {
		return nil, err
	}
	p2, err := weir.Prepare(l, tick)
	if err != nil {
		return nil, err
	}
	return []int64{2, n, p, p2.Peek(nil, 0, 0).Limit, int64(store)}, nil
}

// fixedNumbers keeps the calendar, if there is one.
func (c *limit) fixedNumbers(l weir.FixedWindow) (n []int64, name []string, err error) {
	switch l.Align {
	case "", weir.AlignEpoch:
		return []int64{0, l.Limit, int64(l.Window / tick)}, nil, nil
	case weir.AlignFirst:
		return []int64{1, l.Limit, int64(l.Window / tick)}, nil, nil
	}
	cal, err := newCalendar(l)
	if err != nil {
		return nil, nil, err
	}
	c.calendars = append(c.calendars, cal)
	return []int64{2, l.Limit}, []string{cal.name}, nil
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
