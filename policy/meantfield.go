package policy

import (
	"slices"
	"strconv"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/duration"
)

// A MeantField is a field with its value, in place of one that an algorithm does not have.
type MeantField struct{ Name, Value string }

// MeantFields returns what was probably meant by a field that an algorithm does not have: the fields
// for the same thing, such as queue for the burst of a leaky_bucket, as nginx names it. others are the
// fields that are there, with their values. It returns nil if the meaning is unknown.
func MeantFields(algorithm, name, value string, others map[string]string) []MeantField {
	known := Fields(algorithm)
	has := func(field string) bool { return slices.Contains(known, field) }
	free := func(field string) bool { return has(field) && others[field] == "" }
	switch name {
	case "burst", "capacity", "size", "max", "limit", "queue", "max_burst":
		if free("max_burst") {
			if d := burstDuration(value, others["rate"]); d != "" {
				return []MeantField{{"max_burst", d}}
			}
			return nil
		}
		if others["rate"] != "" && !has("rate") {
			return nil // the rate says how many
		}
		for _, field := range []string{"burst", "limit", "queue"} {
			if _, err := strconv.ParseInt(value, 10, 64); err == nil && has(field) {
				return only(free(field), MeantField{field, value})
			}
		}
	case "rate":
		r, err := weir.ParseRate(value)
		for _, pair := range [][2]string{{"limit", "window"}, {"refill", "every"}} {
			if err == nil && r.Per > 0 && free(pair[0]) && free(pair[1]) {
				return []MeantField{{pair[0], strconv.FormatInt(r.N, 10)}, {pair[1], duration.Format(r.Per)}}
			}
		}
	case "delay":
		return only(free("delay_after"), MeantField{"delay_after", value})
	case "window", "period", "interval", "per":
		for _, field := range []string{"window", "every"} {
			if _, err := duration.Parse(value); err == nil && has(field) {
				return only(free(field), MeantField{field, value})
			}
		}
	}
	return nil
}

func only(is bool, f MeantField) []MeantField {
	if !is {
		return nil
	}
	return []MeantField{f}
}

// burstDuration returns the time in which a rate has as many units as a burst; "" for none.
func burstDuration(burst, rate string) string {
	n, err := strconv.ParseInt(burst, 10, 64)
	r, wrong := weir.ParseRate(rate)
	if err != nil || wrong != nil || n < 1 || n > 1<<20 || r.Per <= 0 || r.Per > 1<<42 || int64(r.Per)*n%r.N != 0 {
		return ""
	}
	return duration.Format(time.Duration(int64(r.Per) * n / r.N))
}
