package rules

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/weirflow/weir/internal/u128"
)

// A Rate is N per duration, an exact fraction.
type Rate struct {
	N   int64
	Per time.Duration
}

// Unlimited is the rate without a bound.
var Unlimited = Rate{N: math.MaxInt64}

// units are the ways to write a duration in a rate, the longest first.
var units = [...]struct {
	name string
	d    time.Duration
}{
	{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}, {"ns", 1},
}

// String writes the rate in the longest unit that fits without a remainder: "100/s", "5/90s".
func (r Rate) String() string {
	if r == Unlimited {
		return "unlimited"
	}
	return strconv.FormatInt(r.N, 10) + "/" + spanText(r.Per)
}

// spanText writes d in one unit, without the number where it is 1: "s", "100ms", "90s".
func spanText(d time.Duration) string {
	for _, u := range units {
		if n := d / u.d; n != 0 && d%u.d == 0 {
			if n == 1 {
				return u.name
			}
			return strconv.FormatInt(int64(n), 10) + u.name
		}
	}
	return "0s"
}

// Normal reduces the fraction; a rate that is not valid stays as it is.
func (r Rate) Normal() Rate {
	if r.N < 1 || r.Per < 1 {
		return r
	}
	g := gcd(r.N, int64(r.Per))
	return Rate{r.N / g, r.Per / time.Duration(g)}
}

// FillsInTime reports whether size tokens come within the longest span that a limit may count over.
func (r Rate) FillsInTime(size int64) bool {
	return !u128.Mul(uint64(MaxSpan), uint64(r.N)).Less(u128.Mul(uint64(size), uint64(r.Per)))
}

// ticks reduces the rate to whole numbers for a clock unit: one clock unit brings n ticks, and one
// token costs p of them.
func (r Rate) ticks(unit time.Duration) (n, p int64, err error) {
	n, p = r.N, int64(r.Per)
	g := gcd(n, p)
	n, p = n/g, p/g
	u := int64(unit)
	g = gcd(u, p)
	u, p = u/g, p/g
	if n > math.MaxInt64/u {
		return 0, 0, fmt.Errorf("the rate %v is too fast to count in units of %v", r, unit)
	}
	return n * u, p, nil
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// A FieldError says which parameter a limit cannot be compiled with, by the name of its Go field.
type FieldError struct {
	Field string
	Err   error
}

// Error names the field and says what is wrong.
func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// wholeUnits is a duration in clock units, of which it must be a whole number.
func wholeUnits(field string, d, unit time.Duration) (int64, error) {
	if d%unit != 0 {
		return 0, &FieldError{field, fmt.Errorf("%v is not a whole number of clock units of %v", d, unit)}
	}
	return int64(d / unit), nil
}
