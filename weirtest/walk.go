package weirtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir"
)

// walk is a limit with a sequence of calls.
type walk struct {
	limit weir.Limit
	calls []call
}

// call is one call of a walk.
type call struct {
	at     int64 // the reading, in clock units
	verb   verb
	key    string
	cost   int64 // for settle: the actual cost
	within int64 // for reserve and join: the longest delay, in clock units; for keep: 1 for an estimate
	of     int   // for settle and leave: the index of the reserve, keep or join in the walk
	limit  weir.Limit
}

type verb uint8

const (
	doTake verb = iota
	doPeek
	doReserve
	doSettle
	doJoin
	doLeave
	doSet
	doSwitch
	doKeep // a take or a place that can be settled
	doSome // a take of as much as there is
)

// shorten removes calls and reduces costs while the results still differ.
func (s Subject) shorten(w walk, found *difference) (walk, *difference) {
	w.calls = w.calls[:found.call+1]
	for again := true; again; {
		again = false
		for i := len(w.calls) - 1; i >= 0 && len(w.calls) > 1; i-- {
			shorter := walk{w.limit, without(w.calls, i)}
			if d, err := s.try(shorter); err == nil && d != nil {
				w, found, again = walk{w.limit, shorter.calls[:d.call+1]}, d, true
				i = min(i, len(w.calls))
			}
		}
	}
	return w, found
}

// without removes one call, and all calls that refer to it.
func without(calls []call, left int) []call {
	var kept []call
	for i, c := range calls {
		switch {
		case i == left || (c.verb == doSettle || c.verb == doLeave) && c.of == left:
			continue
		case (c.verb == doSettle || c.verb == doLeave) && c.of > left:
			c.of--
		}
		kept = append(kept, c)
	}
	if len(kept) == 0 {
		return slices.Clone(calls)
	}
	return kept
}

// script writes a walk as a test script.
func (w walk) script(tick time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%T%+v\n", w.limit, w.limit)
	for i, c := range w.calls {
		fmt.Fprintf(&b, "%3d  at %v ", i, time.Duration(c.at)*tick)
		switch c.verb {
		case doTake:
			fmt.Fprintf(&b, "take %s %d\n", c.key, c.cost)
		case doPeek:
			fmt.Fprintf(&b, "peek %s %d\n", c.key, c.cost)
		case doReserve:
			fmt.Fprintf(&b, "reserve %s %d max=%v\n", c.key, c.cost, time.Duration(c.within)*tick)
		case doSettle:
			fmt.Fprintf(&b, "settle the one of line %d for %d\n", c.of, c.cost)
		case doJoin:
			fmt.Fprintf(&b, "join %s %d max=%v\n", c.key, c.cost, time.Duration(c.within)*tick)
		case doLeave:
			fmt.Fprintf(&b, "leave the one of line %d\n", c.of)
		case doKeep:
			fmt.Fprintf(&b, "keep %s %d estimate=%v\n", c.key, c.cost, c.within == 1)
		case doSome:
			fmt.Fprintf(&b, "take at most %s %d\n", c.key, c.cost)
		case doSet:
			fmt.Fprintf(&b, "set %T%+v\n", c.limit, c.limit)
		case doSwitch:
			fmt.Fprintf(&b, "a caller of %T%+v\n", c.limit, c.limit)
		}
	}
	return b.String()
}

// difference is the first result in which the subject differs from the model.
type difference struct {
	call      int
	got, want string
}

func (d *difference) String() string { return fmt.Sprintf("\twant %s\n\tgot  %s\n", d.want, d.got) }
