// Package scripted is what the stores have in common whose server computes the rules, by scripts or by
// functions of its own: weirredis and weirsql. They read a limit as a few integers, and count in
// microseconds of the server's clock.
package scripted

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

const (
	// Tick is the unit of the server's clock.
	Tick = time.Microsecond

	// Most is the largest number in states and results. Redis counts in doubles, which are exact below
	// 2^53. The other stores have the same bound, so that a limit that one of them can keep behaves
	// alike in all.
	Most = 1<<53 - 1

	// MostTicks is the largest number of parts of a token, and of a clock unit: products of two are
	// divided with a bit to spare.
	MostTicks = 1 << 51
)

// A Reader is how a store's scripts read limits.
type Reader struct {
	Package string // the name of the store's package, which begins errors
	Count   rules.Counting
	Kept    func(script int) bool // which scripts there are; nil: all
}

// Counting returns how a store counts: maxEntries is how many charges a log may have.
func Counting(store string, maxEntries int64) rules.Counting {
	return rules.Counting{Store: store, Unit: Tick, Most: Most, MostTicks: MostTicks, MostEntries: maxEntries}
}

// A Definition is a limit that is no All, as scripts read it.
type Definition struct {
	Script  int     // the number of its script
	Numbers []int64 // its parameters
	Align   string  // of its calendar; empty if it has none
}

// Define returns the definition of a limit, or why the store cannot keep it.
func (r Reader) Define(l weir.Limit) (d Definition, err error) {
	p, ok := rules.ParamsOf(l).(rules.Stored)
	if !ok || r.Kept != nil && !r.Kept(p.Kind().Script.Number) {
		return d, fmt.Errorf("%s: a %s cannot be kept in %s", r.Package, weir.Algorithm(l), r.Count.Store)
	}
	d.Script = p.Kind().Script.Number
	d.Numbers, err = p.StoreNumbers(r.Count)
	var wrong *rules.FieldError
	switch {
	case errors.As(err, &wrong):
		return d, fmt.Errorf("%s: %s.%w", r.Package, p.Kind().GoName, wrong)
	case err != nil:
		return d, fmt.Errorf("%s: %w", r.Package, err)
	}
	for _, v := range d.Numbers {
		if v > Most || v < -Most {
			return d, fmt.Errorf("%s: %T%+v: %d is more than %s can count: at most %d", r.Package, l, l, v, r.Count.Store, int64(Most))
		}
	}
	if w, ok := p.(rules.Calendared); ok {
		d.Align = w.CalendarAlign()
	}
	return d, nil
}

// Limits caches what a store has compiled of limits. The zero value is empty.
type Limits[T any] struct {
	mu    sync.Mutex
	known map[weir.Limit]T
}

// maxLimits bounds the cache. A program has few limits, and a change of one makes another.
const maxLimits = 1024

// Of returns what compile returns for a limit.
func (s *Limits[T]) Of(l weir.Limit, compile func(weir.Limit) (T, error)) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.known[l]; ok {
		return c, nil
	}
	c, err := compile(l)
	if err != nil {
		return c, err
	}
	if len(s.known) >= maxLimits || s.known == nil {
		s.known = map[weir.Limit]T{}
	}
	s.known[l] = c
	return c, nil
}

// Cost returns a cost as scripts read it: a larger one fits no limit anyway.
func Cost(c int64) int64 {
	switch {
	case c < 0:
		return -1
	case c > Most:
		return Most + 1
	}
	return c
}

// Within returns the longest acceptable delay, in clock units; below 0: however long.
func Within(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return int64(d / Tick)
}

// Span returns a number of clock units as a duration; -1 is never.
func Span(units int64) time.Duration {
	switch {
	case units < 0:
		return weir.Never
	case units > math.MaxInt64/int64(Tick):
		return math.MaxInt64
	}
	return time.Duration(units) * Tick
}
