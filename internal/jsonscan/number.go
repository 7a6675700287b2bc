package jsonscan

import "math"

// Int returns the whole number that a JSON number stands for: 12, 12.0, 1.2e1 and 120e-1 are 12. It
// reports false for fractions, numbers below 0, numbers above the largest int64, and texts that are
// no JSON number.
func Int(text []byte) (n int64, ok bool) {
	if n, ok = short(text); ok {
		return n, true
	}
	digits, rest := text, []byte(nil)
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		digits = text[1:]
	}
	whole := countDigits(digits)
	if whole == 0 || whole > 1 && digits[0] == '0' {
		return 0, false
	}
	digits, rest = digits[:whole], digits[whole:]
	var fraction []byte
	if len(rest) > 0 && rest[0] == '.' {
		k := countDigits(rest[1:])
		if k == 0 {
			return 0, false
		}
		fraction, rest = rest[1:1+k], rest[1+k:]
	}
	exponent, ok := exponentOf(rest)
	if !ok {
		return 0, false
	}
	if n, ok = compose(digits, fraction, exponent); !ok || negative && n != 0 {
		return 0, false
	}
	return n, true
}

// short reads a number that is at most 18 digits, as nearly all are.
func short(text []byte) (n int64, ok bool) {
	if len(text) == 0 || len(text) > 18 || text[0] == '0' && len(text) > 1 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// compose returns digits.fraction * 10^exponent, if that is whole and fits.
func compose(digits, fraction []byte, exponent int) (n int64, ok bool) {
	for len(fraction) > 0 && fraction[len(fraction)-1] == '0' {
		fraction = fraction[:len(fraction)-1]
	}
	exponent -= len(fraction)
	for len(fraction) == 0 && exponent < 0 && len(digits) > 1 && digits[len(digits)-1] == '0' {
		digits, exponent = digits[:len(digits)-1], exponent+1
	}
	for _, part := range [][]byte{digits, fraction} {
		for _, c := range part {
			d := int64(c - '0')
			if n > (math.MaxInt64-d)/10 {
				return 0, false
			}
			n = n*10 + d
		}
	}
	if n == 0 {
		return 0, true
	}
	for ; exponent < 0 && n%10 == 0; exponent++ {
		n /= 10
	}
	if exponent < 0 {
		return 0, false
	}
	for ; exponent > 0; exponent-- {
		if n > math.MaxInt64/10 {
			return 0, false
		}
		n *= 10
	}
	return n, true
}

// exponentOf reads the exponent of a number, if there is one.
func exponentOf(text []byte) (e int, ok bool) {
	if len(text) == 0 {
		return 0, true
	}
	if text[0] != 'e' && text[0] != 'E' {
		return 0, false
	}
	text = text[1:]
	sign := 1
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		if text[0] == '-' {
			sign = -1
		}
		text = text[1:]
	}
	if len(text) == 0 || countDigits(text) != len(text) {
		return 0, false
	}
	for _, c := range text {
		e = min(e*10+int(c-'0'), 1<<20) // far beyond what any number of digits makes up for
	}
	return sign * e, true
}

// countDigits returns how many digits a text begins with.
func countDigits(text []byte) int {
	for i, c := range text {
		if c < '0' || c > '9' {
			return i
		}
	}
	return len(text)
}
