package rules

import "math"

// Until returns how long after now a time is; 0 if it is past.
func Until(t, now int64) int64 {
	if t <= now {
		return 0
	}
	return int64(min(uint64(t)-uint64(now), math.MaxInt64))
}

// ClockLeft is how many clock units are left to the end of the clock.
func ClockLeft(now int64) uint64 { return math.MaxInt64 - uint64(now) }

// pending returns how long it is until a promised time; 0 for none.
func pending(promised, now int64) int64 {
	if promised == none {
		return 0
	}
	return Until(promised, now)
}

// floorTo is the largest multiple of length that is not above t, or the least int64.
func floorTo(t, length int64) int64 {
	over := t % length
	if over < 0 {
		over += length
	}
	return Minus(t, over)
}

// PlusTimes is t + n*d, or the end of the clock.
func PlusTimes(t int64, n uint64, d int64) int64 {
	if d == 0 {
		return t
	}
	if left := ClockLeft(t); n > left/uint64(d) {
		return math.MaxInt64
	}
	return t + int64(n*uint64(d))
}

// modulo is the remainder that is at least 0.
func modulo(a, b int64) int64 {
	if m := a % b; m >= 0 {
		return m
	} else {
		return m + b
	}
}

// plus is a+b, or the largest int64 on overflow; b is at least 0.
func plus(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxInt64
}

// Minus is a-b, saturated at the ends of int64.
func Minus(a, b int64) int64 {
	d := a - b
	switch {
	case b > 0 && d > a:
		return math.MinInt64
	case b < 0 && d < a:
		return math.MaxInt64
	}
	return d
}
