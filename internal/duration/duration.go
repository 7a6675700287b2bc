// Package duration parses and formats durations as policy files and scripts write them: Go's
// format, and also days and weeks.
package duration

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Parse accepts what time.ParseDuration accepts, preceded by whole weeks (w) and whole days (d):
// 1w, 1d, 1d12h.
func Parse(text string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not a duration", text)
	rest, negative := strings.CutPrefix(text, "-")
	var sum time.Duration
	for _, long := range []struct {
		unit string
		d    time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		head, tail, found := strings.Cut(rest, long.unit)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(head, 10, 32)
		if err != nil || n > uint64((math.MaxInt64-sum)/long.d) {
			return 0, bad
		}
		sum, rest = sum+time.Duration(n)*long.d, tail
		if rest == "" {
			return sign(sum, negative), nil
		}
	}
	if rest == "" || rest[0] == '-' || rest[0] == '+' && (negative || sum > 0) {
		return 0, bad
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d > math.MaxInt64-sum {
		return 0, bad
	}
	return sign(sum+d, negative), nil
}

func sign(d time.Duration, negative bool) time.Duration {
	if negative {
		return -d
	}
	return d
}

// Format writes a duration in few characters, for Parse to read back: 1d, 1d12h, 90m becomes 1h30m,
// 500ms.
func Format(d time.Duration) string {
	const day = 24 * time.Hour
	if d <= 0 {
		return d.String()
	}
	text := ""
	if days := d / day; days > 0 {
		text = strconv.FormatInt(int64(days), 10) + "d"
		if d %= day; d == 0 {
			return text
		}
	}
	short := d.String()
	if strings.HasSuffix(short, "m0s") {
		short = strings.TrimSuffix(short, "0s")
	}
	if strings.HasSuffix(short, "h0m") {
		short = strings.TrimSuffix(short, "0m")
	}
	return text + short
}
