// Package u128 is unsigned 128-bit arithmetic, as much of it as exact rates need. A product of two
// 64-bit numbers always fits, a sum saturates at Max instead of wrapping, and a quotient reports
// whether it fits 64 bits.
package u128

import (
	"math"
	"math/bits"
)

// Uint is an unsigned 128-bit integer. The zero value is 0.
type Uint struct{ Hi, Lo uint64 }

// Max is the largest Uint. A saturated sum equals it.
func Max() Uint { return Uint{math.MaxUint64, math.MaxUint64} }

// From widens v.
func From(v uint64) Uint { return Uint{0, v} }

// Mul returns a*b, which always fits.
func Mul(a, b uint64) Uint {
	hi, lo := bits.Mul64(a, b)
	return Uint{hi, lo}
}

// Add returns a+b, or Max if that does not fit.
func (a Uint) Add(b Uint) Uint {
	lo, carry := bits.Add64(a.Lo, b.Lo, 0)
	hi, carry := bits.Add64(a.Hi, b.Hi, carry)
	if carry != 0 {
		return Max()
	}
	return Uint{hi, lo}
}

// Sub returns a-b, or 0 if b is larger.
func (a Uint) Sub(b Uint) Uint {
	lo, borrow := bits.Sub64(a.Lo, b.Lo, 0)
	hi, borrow := bits.Sub64(a.Hi, b.Hi, borrow)
	if borrow != 0 {
		return Uint{}
	}
	return Uint{hi, lo}
}

// Cmp returns -1, 0 or 1 as a is less than, equal to or greater than b.
func (a Uint) Cmp(b Uint) int {
	switch {
	case a == b:
		return 0
	case a.Hi < b.Hi || a.Hi == b.Hi && a.Lo < b.Lo:
		return -1
	}
	return 1
}

// Less reports whether a < b.
func (a Uint) Less(b Uint) bool {
	_, borrow := bits.Sub64(a.Lo, b.Lo, 0)
	_, borrow = bits.Sub64(a.Hi, b.Hi, borrow)
	return borrow != 0
}

// IsZero reports whether a is 0.
func (a Uint) IsZero() bool { return a == Uint{} }

// Min returns the smaller of a and b.
func (a Uint) Min(b Uint) Uint {
	if b.Less(a) {
		return b
	}
	return a
}

// Div returns the quotient and the remainder of a/d. fits is false if the quotient needs more than
// 64 bits; q is then math.MaxUint64 and r is undefined. d must not be 0.
func (a Uint) Div(d uint64) (q, r uint64, fits bool) {
	if a.Hi >= d {
		return math.MaxUint64, 0, false
	}
	q, r = bits.Div64(a.Hi, a.Lo, d)
	return q, r, true
}

// DivCeil returns a/d rounded up, or math.MaxUint64 if that does not fit 64 bits. d must not be 0.
func (a Uint) DivCeil(d uint64) uint64 {
	q, r, fits := a.Div(d)
	if fits && r != 0 && q != math.MaxUint64 {
		q++
	}
	return q
}
