package policyfile

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/duration"
	"github.com/weirflow/weir/internal/nearest"
)

// fieldFix returns a line with a valid value for a parameter that is wrong; "" if there is no obvious
// one. n is the algorithm's map.
func fieldFix(n *node, field string) string {
	written := text(n.get(field))
	value := ""
	switch field {
	case "rate":
		value = rateFix(written)
	case "window", "every", "period":
		value = durationFix(written)
	case "slots":
		window, err := duration.Parse(text(n.get("window")))
		if err == nil {
			value = slotsFix(window, number(n.get(field)))
		}
	case "burst", "limit", "refill":
		if v, err := strconv.ParseInt(written, 10, 64); err == nil && v < 1 {
			value = "1"
		}
	case "initial":
		value = text(n.get("burst"))
	}
	if value == "" || value == written { // otherwise, the value is not what is wrong
		return ""
	}
	return field + ": " + value
}

// rateFix returns the rate that a count of 0, or a fraction, stands for: 1/2s for 0.5/s.
func rateFix(written string) string {
	count, unit, found := strings.Cut(written, "/")
	v, err := strconv.ParseFloat(count, 64)
	if !found || err != nil {
		return nearest.Rate(written)
	}
	_, err = duration.Parse("1" + unit)
	switch slower := map[string]string{"s": "m", "m": "h"}[unit]; {
	case err != nil:
		return ""
	case v == 0:
		return "1/" + unit
	case v > 0 && v < 1 && 1/v == math.Trunc(1/v):
		return fmt.Sprintf("1/%.0f%s", 1/v, unit)
	case v > 0 && slower != "" && v*60 == math.Trunc(v*60) && v < 1<<40:
		return fmt.Sprintf("%.0f/%s", v*60, slower)
	}
	return ""
}

// durationFix returns the duration that words stand for: 1m for 1 minute.
func durationFix(written string) string {
	digits := len(written) - len(strings.TrimLeft(written, "0123456789"))
	if digits == 0 || digits == len(written) || strings.Trim(written[:digits], "0") == "" {
		return ""
	}
	meant := nearest.Rate("1/" + strings.TrimSpace(written[digits:]))
	if meant == "" {
		return ""
	}
	return written[:digits] + strings.TrimPrefix(meant, "1/")
}

// slotsFix returns the number of slots nearest below one, that divides a window.
func slotsFix(window time.Duration, slots int64) string {
	for n := min(max(slots, 2), 4096); n >= 2; n-- {
		if window%time.Duration(n) == 0 {
			return strconv.FormatInt(n, 10)
		}
	}
	return ""
}
