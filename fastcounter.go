package weir

import "github.com/weirflow/weir/internal/u128"

// The word of a SlidingCounter is the number of the current window from the base on, and what was counted in it and in the one before.

func (w *weighted) rebase(s []int64, now int64) (base, reach int64, kept bool) {
	if w.reach == 0 || w.window > w.horizon/4 {
		return 0, 0, false
	}
	number := w.number(now)
	if kept = len(s) == 0 || until(number, s[wordNumber]) > 1; !kept {
		number = s[wordNumber]
	}
	if number == w.first {
		return 0, 0, false // it begins before the clock
	}
	return number * w.window, w.reach, kept
}

func (w *weighted) pack(f *fastWord, s []int64) int64 {
	number := s[wordNumber] - f.base/w.window
	if number < 0 || number > f.reach/w.window || s[wordCurrent] > w.limit || s[wordPrevious] > w.limit {
		return ask
	}
	return number<<(2*w.bits) | s[wordCurrent]<<w.bits | s[wordPrevious]
}

func (w *weighted) unpack(f *fastWord, word int64, s []int64) []int64 {
	number, current, previous := w.parts(word)
	return append(s[:0], f.base/w.window+number, current, previous)
}

// parts reads a word.
func (w *weighted) parts(word int64) (number, current, previous int64) {
	mask := int64(1)<<w.bits - 1
	return word >> (2 * w.bits), word >> w.bits & mask, word & mask
}

func (w *weighted) step(_ *fastWord, word, now, cost int64, charge bool) (next, remaining, reset, retry int64) {
	number, current, previous := w.parts(word)
	begins := number * w.window
	into := max(now-begins, 0)
	if into >= w.window {
		passed := into / w.window
		if previous = 0; passed == 1 {
			previous = current
		}
		current = 0
		number += passed
		begins += passed * w.window
		into -= passed * w.window
	}
	left := w.limit - current
	if previous > 0 {
		left -= int64(u128.Mul(uint64(previous), uint64(w.window-into)).DivCeil(uint64(w.window)))
	}
	switch {
	case cost > left && cost > 0:
		retry = w.wait(counts{number, current, previous, into, max(begins-now, 0)}, cost)
	case charge:
		current += cost
		left -= cost
	}
	switch {
	case current > 0:
		reset = begins + 2*w.window - now
	case previous > 0:
		reset = begins + w.window - now
	}
	return number<<(2*w.bits) | current<<w.bits | previous, max(left, 0), reset, retry
}
