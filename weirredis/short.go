package weirredis

import (
	"math/bits"
)

// A brief is a limit as take.lua reads it.
type brief struct {
	// def, n, p, the size and what passes in units and rest, and whether it is leaky, in
	// MessagePack
	text string
	n, p uint64
	size int64
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
	b := &brief{n: uint64(n), p: uint64(p), size: size}
	if hi, lo := bits.Mul64(uint64(size), b.p); hi > 0 || lo > most-b.p-b.n {
		return nil
	}
	text := appendString(appendArray(nil, 8), def)
	for _, v := range []int64{n, p} {
		text = appendInt(text, v)
	}
	text = b.appendCost(b.appendCost(text, size), passes)
	b.text = string(appendInt(text, leaky))
	return b
}

// appendCost adds what a cost takes in clock units, and the rest in ticks.
func (b *brief) appendCost(text []byte, cost int64) []byte {
	ticks := uint64(cost) * b.p
	return appendInt(appendInt(text, int64(ticks/b.n)), int64(ticks%b.n))
}
