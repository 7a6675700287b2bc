package weirredis

import (
	"math/bits"

	"github.com/weirflow/weir"
)

// A brief is a limit as a short script reads it: take.lua a bucket, fixedtake.lua a fixed window.
type brief struct {
	protocol protocol
	// of a bucket: def, n, p, the size and what passes in units and rest, and whether it is leaky; of a
	// fixed window: def, the limit, the length, and whether it begins with its first charge; in MessagePack
	text string
	size int64 // the most that one charge may cost

	// of a bucket
	n, p         uint64
	room, passes span // the size, and what passes without delay
	leaky        bool
}

// A span is a time in clock units and a rest of ticks below n.
type span struct{ units, rest int64 }

func (a span) above(b span) bool { return a.units > b.units || a.units == b.units && a.rest > b.rest }

// over is by how many units, rounded up, a span exceeds another.
func (a span) over(b span) int64 {
	if a.rest > b.rest {
		return a.units - b.units + 1
	}
	return a.units - b.units
}

// longestShort is the longest fixed window for fixedtake.lua, in microseconds: the horizon of the scripts.
const longestShort = 3155760000000000

// shortenFixed prepares a fixed window for fixedtake.lua, if it has a length and no calendar.
func shortenFixed(def string, numbers []int64) *brief {
	if len(numbers) != 3 || numbers[0] > 1 || numbers[2] > longestShort {
		return nil
	}
	text := appendString(appendArray(nil, 4), def)
	for _, v := range []int64{numbers[1], numbers[2], numbers[0]} {
		text = appendInt(text, v)
	}
	return &brief{protocol: protocolFixed, text: string(text), size: numbers[1]}
}

// shorten prepares a bucket for take.lua, if its parameters are small enough for plain products,
// and it begins full.
func shorten(def string, numbers []int64) *brief {
	leaky, n, p, size, passes := numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
	switch {
	case leaky == 0 && passes == 0: // nothing is missing at first
		passes = size
	case leaky != 1:
		return nil
	}
	b := &brief{protocol: protocolShort, n: uint64(n), p: uint64(p), size: size, leaky: leaky == 1}
	if hi, lo := bits.Mul64(uint64(size), b.p); hi > 0 || lo > most-b.p-b.n {
		return nil
	}
	b.room, b.passes = b.cost(size), b.cost(passes)
	text := appendString(appendArray(nil, 8), def)
	for _, v := range []int64{n, p} {
		text = appendInt(text, v)
	}
	text = b.appendCost(b.appendCost(text, size), passes)
	b.text = string(appendInt(text, leaky))
	return b
}

// appendCharge adds the cost of a charge.
func (b *brief) appendCharge(text []byte, cost int64) []byte {
	if b.protocol == protocolFixed {
		return appendInt(text, cost)
	}
	return b.appendCost(text, cost)
}

// fields is how many numbers a run has in the argument of the script.
func (p protocol) fields() int {
	if p == protocolFixed {
		return 5
	}
	return 6
}

// script is the short script.
func (b *brief) script() kindSet {
	if b.protocol == protocolFixed {
		return shortFixed
	}
	return short
}

// isShort reports whether a script is a short one, which leaves what it does not support to main.lua.
func (p protocol) isShort() bool { return p == protocolShort || p == protocolFixed }

// shortProtocol is the short script for some charges; that of main.lua if there is none.
func shortProtocol(charges []charge) protocol {
	p := protocolCharges
	for i, c := range charges {
		if c.long() || i > 0 && c.limit.short.protocol != p {
			return protocolCharges
		}
		p = c.limit.short.protocol
	}
	return p
}

// cost is what a cost takes of a bucket.
func (b *brief) cost(cost int64) span {
	ticks := uint64(cost) * b.p
	return span{int64(ticks / b.n), int64(ticks % b.n)}
}

// appendCost adds what a cost takes of a bucket.
func (b *brief) appendCost(text []byte, cost int64) []byte {
	s := b.cost(cost)
	return appendInt(appendInt(text, s.units), s.rest)
}

// decide is the decision about a charge that finds a backlog, and the backlog after it. Of a fixed window,
// the units are what was counted in it, and the rest is the time until it ends.
func (b *brief) decide(backlog span, c *charge) (wait, remaining, reset int64, after span) {
	if b.protocol == protocolFixed {
		return b.decideFixed(backlog, c)
	}
	cost := b.cost(c.cost)
	after = span{backlog.units + cost.units, backlog.rest + cost.rest}
	if after.rest >= int64(b.n) {
		after = span{after.units + 1, after.rest - int64(b.n)}
	}
	wait = after.over(b.room)
	if b.leaky {
		wait = max(wait, backlog.over(b.passes))
	}
	switch {
	case wait > longestShort && c.cost > 0:
		wait = -1 // never
	case wait > 0 && c.cost > 0:
	case c.op == weir.OpTake:
		wait, backlog = 0, after
	default:
		wait = 0
	}
	if !backlog.above(b.passes) {
		room := uint64(b.room.units-backlog.units)*b.n + uint64(b.room.rest) - uint64(backlog.rest)
		remaining = int64(room / b.p)
	}
	return wait, remaining, backlog.over(span{}), backlog
}

func (b *brief) decideFixed(window span, c *charge) (wait, remaining, reset int64, after span) {
	switch end := window.rest; {
	case c.cost > 0 && window.units > b.size-c.cost:
		wait = end
	case c.op == weir.OpTake:
		window.units += c.cost
	}
	if window.units > 0 {
		reset = window.rest
	}
	return wait, max(b.size-window.units, 0), reset, window
}
