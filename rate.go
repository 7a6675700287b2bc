package weir

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/duration"
	"github.com/weirflow/weir/internal/nearest"
	"github.com/weirflow/weir/internal/rules"
)

// A Rate is N per duration: an exact fraction, never truncated. It is written N/PER, as in 100/s,
// 6/m, 5000/h, 1/d or 20/100ms.
//
// The zero Rate is invalid, so that a forgotten rate is an error instead of a limit that admits
// nothing.
type Rate struct {
	N   int64         // how many per Per; at least 1
	Per time.Duration // 1ns to 100 years
}

// Unlimited is the infinite rate. Only SmoothBursty and WarmUp accept it.
var Unlimited = Rate{N: math.MaxInt64, Per: 0}

// PerSecond returns the rate of n a second.
func PerSecond(n int64) Rate { return Rate{n, time.Second} }

// PerMinute returns the rate of n a minute.
func PerMinute(n int64) Rate { return Rate{n, time.Minute} }

// PerHour returns the rate of n an hour.
func PerHour(n int64) Rate { return Rate{n, time.Hour} }

// PerDay returns the rate of n in 24 hours.
func PerDay(n int64) Rate { return Rate{n, day} }

const (
	day  = 24 * time.Hour
	week = 7 * day

	maxRateText = 64 // longer than any valid rate
)

// String formats the rate so that ParseRate reads back the same N and Per.
func (r Rate) String() string { return rules.Rate(r).String() }

// ParseRate reads a rate as Rate.String writes it: a whole number, a slash, and a duration, like
// 100/s or 20/100ms. The units are ns, us, ms, s, m, h, d and w; a number before the unit is
// optional. The duration may have several parts (1h30m) or a fraction (1.5s). ParseRate also reads
// "unlimited". The error says what is wrong and what to write instead.
func ParseRate(s string) (Rate, error) {
	if s == "unlimited" {
		return Unlimited, nil
	}
	if len(s) > maxRateText {
		return Rate{}, fmt.Errorf("weir: rate %.20q... is too long: write a number, a slash and a duration, as in 100/s", s)
	}
	bad := func(format string, args ...any) (Rate, error) {
		why := fmt.Sprintf(format, args...)
		if meant := nearest.Rate(s); meant != "" && meant != s {
			why += ": did you mean " + meant + "?"
		}
		return Rate{}, fmt.Errorf("weir: rate %q: %s", s, why)
	}
	count, per, found := strings.Cut(s, "/")
	if !found {
		return bad("no slash: write a number, a slash and a duration, as in 100/s")
	}
	n, err := strconv.ParseInt(count, 10, 64)
	switch {
	case err != nil && strings.TrimLeft(count, "0123456789") == "" && count != "":
		return bad("%s does not fit: the largest number is %d", count, int64(math.MaxInt64))
	case err != nil || count[0] == '+':
		return bad("%q is not a whole number (a fraction is written with a longer duration: 1/2s, not 0.5/s)", count)
	case n < 1:
		return bad("%d lets nothing pass: the number must be at least 1", n)
	}
	d, err := parseSpan(per)
	if err != nil {
		return bad("%v", err)
	}
	r := Rate{n, d}
	if err := r.validate(); err != nil {
		return bad("%v", err)
	}
	return r, nil
}

// parseSpan reads the duration of a rate: anything that time.ParseDuration reads, a unit without a
// number, and the units d and w.
func parseSpan(s string) (time.Duration, error) {
	if s == "" {
		return 0, fmt.Errorf("no duration after the slash: write s, m, h, d or one like 100ms")
	}
	text := s
	if c := s[0]; (c < '0' || c > '9') && c != '.' && c != '-' && c != '+' {
		text = "1" + s
	}
	if s[0] == '-' || s[0] == '+' {
		return 0, fmt.Errorf("the duration %q has a sign: write s, m, h, d or one like 100ms", s)
	}
	if strings.ContainsAny(text, "dw") {
		d, err := duration.Parse(text)
		if err != nil {
			return 0, fmt.Errorf("the duration %q is not a whole number of days or weeks up to 100 years", s)
		}
		return d, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration: write s, m, h, d or one like 100ms", s)
	}
	return d, nil
}

// validate returns an error if the rate is invalid for a limit. Unlimited is.
func (r Rate) validate() error {
	switch {
	case r == Unlimited:
		return fmt.Errorf("unlimited is not a rate for this limit: leave the limit out instead")
	case r.N < 1:
		return fmt.Errorf("a rate of %d lets nothing pass: it must be at least 1", r.N)
	case r.Per < 1:
		return fmt.Errorf("a rate per %v has no meaning: the duration must be at least 1ns", r.Per)
	case r.Per > rules.MaxSpan:
		return fmt.Errorf("a rate per %v is too slow to keep: the duration may be at most 100 years", r.Per)
	}
	return nil
}

// MarshalText formats the rate as String does. It fails for a rate that ParseRate would not read
// back.
func (r Rate) MarshalText() ([]byte, error) {
	if r != Unlimited {
		if err := r.validate(); err != nil {
			return nil, fmt.Errorf("weir: rate %d per %v cannot be written: %w", r.N, r.Per, err)
		}
	}
	return []byte(r.String()), nil
}

// UnmarshalText parses the rate as ParseRate does.
func (r *Rate) UnmarshalText(text []byte) error {
	parsed, err := ParseRate(string(text))
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}
