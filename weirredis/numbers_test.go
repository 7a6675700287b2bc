package weirredis

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// The numbers that the scripts use for algorithms.
const windowScript, logScript, warmScript = 5, 6, 7

// TestNumbers: how scripts get the parameters of windows, logs and WarmUp.
func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		limit weir.Limit
		want  []int64
	}{
		{weir.SlidingWindow{Limit: 10, Window: time.Second, Slots: 4}, []int64{1, windowScript, 10, 10, 4, 250_000}},
		{weir.SlidingWindow{Limit: most, Window: time.Second, Slots: 4, SlotLimit: 3}, []int64{1, windowScript, most, 3, 4, 250_000}},
		{weir.SlidingLog{Limit: 1, Window: time.Minute}, []int64{1, logScript, 1, 60_000_000, 2}},
		{weir.SlidingLog{Limit: 1e6, Window: time.Minute}, []int64{1, logScript, 1e6, 60_000_000, 4096}},
		{weir.SlidingLog{Limit: 1e6, Window: time.Minute, MaxEntries: 7}, []int64{1, logScript, 1e6, 60_000_000, 7}},
		{weir.WarmUp{Rate: weir.PerSecond(333), Period: time.Second}, []int64{1, warmScript, 333, 1e6, 1e6, 3, 1}},
		{weir.WarmUp{Rate: weir.PerSecond(100), Period: time.Second, ColdFactor: 1.25}, []int64{1, warmScript, 1, 1e4, 1e6, 5, 4}},
		{weir.WarmUp{Rate: weir.PerSecond(100), Period: time.Second, ColdFactor: 1.3}, []int64{1, warmScript, 1, 1e4, 1e6, 85197, 65536}},
		{weir.WarmUp{Rate: weir.Unlimited, Period: time.Second}, []int64{1, warmScript, 0, 1, 0, 1, 1}},
	} {
		l, err := compile(c.limit)
		if err != nil {
			t.Errorf("%+v: %v", c.limit, err)
			continue
		}
		r := reader{b: l.def}
		var got []int64
		for range r.array() {
			got = append(got, r.int())
		}
		if r.err != nil || r.b != "" || !slices.Equal(got, c.want) || l.kinds != 1<<c.want[1] {
			t.Errorf("%T%+v is %v of kinds %b; want %v", c.limit, c.limit, got, l.kinds, c.want)
		}
	}
}

// TestRefused: a limit that Redis cannot count is an error that says what is wrong, and why.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		limit weir.Limit
		want  string
	}{
		{weir.SlidingWindow{Limit: 10, Window: 10 * time.Microsecond, Slots: 4}, "Slots: 2.5µs is not a whole number of clock units of 1µs"},
		{weir.SlidingWindow{Limit: most + 1, Window: time.Second, Slots: 4}, "9007199254740992 is more than Redis can count"},
		{weir.SlidingLog{Limit: 10, Window: 1500}, "Window: 1.5µs is not a whole number of clock units of 1µs"},
		{weir.SlidingLog{Limit: most + 1, Window: time.Second}, "9007199254740992 is more than Redis can count"},
		{weir.SlidingLog{Limit: 10, Window: time.Second, MaxEntries: maxEntries + 1}, "MaxEntries: 16385 are too many for Redis"},
		{weir.WarmUp{Rate: weir.PerSecond(1), Period: 1}, "Period: 1ns is not a whole number of clock units of 1µs"},
		{weir.WarmUp{Rate: weir.PerSecond(1e9), Period: 365 * 24 * time.Hour}, "Period: 8760h0m0s at 1000000000/s stores 31536000000000000 permits, which is more than Redis can count"},
		{weir.SmoothBursty{Rate: weir.PerSecond(1e9), MaxBurst: 365 * 24 * time.Hour}, "31536000000000000 is more than Redis can count"},
		{weir.WarmUp{Rate: weir.Rate{N: 1<<53 - 111, Per: time.Second}, Period: time.Second}, "cannot be counted exactly in Redis"},
	} {
		for _, l := range []weir.Limit{c.limit, weir.All(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, c.limit)} {
			if _, err := compile(l); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%T%+v: %v; want %q", l, l, err, c.want)
			}
		}
	}
}
