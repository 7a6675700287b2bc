package weirredis

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// TestRefusedWindows: windows that Redis cannot count exactly are refused, and the error says what
// is wrong.
func TestRefusedWindows(t *testing.T) {
	const tooMany = 1 << 53
	for _, c := range []struct {
		limit weir.Limit
		want  string
	}{
		{weir.IntervalBucket{Burst: tooMany, Refill: tooMany, Every: time.Second}, "9007199254740992 is more than Redis can count: at most 9007199254740991"},
		{weir.IntervalBucket{Burst: 1, Refill: math.MaxInt64, Every: time.Second}, "9223372036854775807 is more than Redis can count"},
		{weir.IntervalBucket{Burst: 1, Refill: 1, Every: 1500 * time.Nanosecond}, "IntervalBucket.Every: 1.5µs is not a whole number of clock units of 1µs"},
		{weir.FixedWindow{Limit: tooMany, Window: time.Second}, "is more than Redis can count"},
		{weir.FixedWindow{Limit: tooMany, Window: time.Second, Align: weir.AlignFirst}, "is more than Redis can count"},
		{weir.FixedWindow{Limit: tooMany, Align: "day"}, "is more than Redis can count"},
		{weir.FixedWindow{Limit: 1, Window: 999}, "FixedWindow.Window: 999ns is not a whole number of clock units of 1µs"},
		{weir.FixedWindow{Limit: 1, Window: 1, Align: weir.AlignFirst}, "FixedWindow.Window: 1ns is not a whole number"},
		{weir.FixedWindow{Limit: 1, Align: "day:Nowhere"}, "there is no time zone"},
		{weir.SlidingCounter{Limit: tooMany, Window: time.Second}, "is more than Redis can count"},
		{weir.SlidingCounter{Limit: 1, Window: 1001}, "SlidingCounter.Window: 1.001µs is not a whole number"},
		{weir.All(weir.FixedWindow{Limit: 1, Align: "day"}, weir.SlidingCounter{Limit: 1, Window: 1}), "sliding_counter.2.Window: 1ns is not a whole number"},
	} {
		if _, err := compile(c.limit); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T%+v: %v, want one with %q", c.limit, c.limit, err, c.want)
		}
	}
}

// TestDefined: equal limits are stored in the same way, and different ones differently.
func TestDefined(t *testing.T) {
	hundredYears := 36525 * 24 * time.Hour
	seen := map[string]string{}
	for i, same := range [][]weir.Limit{
		{weir.IntervalBucket{Burst: most, Refill: most, Every: hundredYears}},
		{weir.IntervalBucket{Burst: 2, Refill: 1, Every: time.Second}},
		{weir.FixedWindow{Limit: 1, Window: time.Second}, weir.FixedWindow{Limit: 1, Window: time.Second, Align: weir.AlignEpoch}},
		{weir.FixedWindow{Limit: 1, Window: time.Second, Align: weir.AlignFirst}},
		{weir.FixedWindow{Limit: most, Window: hundredYears}},
		{weir.FixedWindow{Limit: 1, Align: "day"}, weir.FixedWindow{Limit: 1, Align: "day:UTC"}, weir.FixedWindow{Limit: 1, Align: "day:"}},
		{weir.FixedWindow{Limit: 1, Align: "week"}, weir.FixedWindow{Limit: 1, Align: "week-monday:UTC"}},
		{weir.FixedWindow{Limit: 1, Align: "week-sunday"}},
		{weir.FixedWindow{Limit: 1, Align: "week:Europe/Berlin"}},
		{weir.SlidingCounter{Limit: 1, Window: time.Second}},
		{weir.SlidingCounter{Limit: most, Window: hundredYears}},
	} {
		for _, l := range same {
			c, err := compile(l)
			if err != nil {
				t.Errorf("%T%+v: %v", l, l, err)
				continue
			}
			if was, ok := seen[c.def]; ok && was != fmt.Sprint(i) {
				t.Errorf("%T%+v is written down as number %s is", l, l, was)
			} else if !ok && l != same[0] {
				t.Errorf("%T%+v is not written down as %+v is", l, l, same[0])
			}
			seen[c.def] = fmt.Sprint(i)
		}
	}
}
