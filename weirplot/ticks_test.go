package weirplot

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/sim"
)

// TestClockTicks: the labels of a time axis are round times, and few enough to be read. They were 22:00, 01:46 and 05:33.
func TestClockTicks(t *testing.T) {
	start := time.Date(2015, 5, 17, 10, 5, 3, 0, time.UTC)
	for _, c := range []struct {
		long time.Duration
		want string
	}{
		{5 * time.Second, "10:05:03 10:05:04 10:05:05 10:05:06 10:05:07 10:05:08"},
		{8 * time.Minute, "10:06 10:07 10:08 10:09 10:10 10:11 10:12 10:13"},
		{7 * time.Hour, "11:00 12:00 13:00 14:00 15:00 16:00 17:00"},
		{20 * time.Hour, "12:00\n2015-05-17 18:00\n2015-05-17 00:00\n2015-05-18 06:00\n2015-05-18"},
		{83 * time.Hour, "12:00\n2015-05-17 00:00\n2015-05-18 12:00\n2015-05-18 00:00\n2015-05-19 12:00\n2015-05-19 00:00\n2015-05-20 12:00\n2015-05-20"},
		{9 * day, "2015-05-19 2015-05-21 2015-05-23 2015-05-25"},
	} {
		var labels []string
		for _, tick := range (clockTicks{}).Ticks(float64(start.Unix()), float64(start.Add(c.long).Unix())) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("%v: %q, want %q", c.long, got, c.want)
		}
	}
	for _, years := range []int{1, 30, 300} {
		from, to := float64(start.Unix()), float64(start.AddDate(years, 0, 0).Unix())
		if n := len((clockTicks{}).Ticks(from, to)); n == 0 || n > mostTicks+1 {
			t.Errorf("%d years: %d labels", years, n)
		}
	}
}

// TestSlot: the length of a slot is written as people name it.
func TestSlot(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Second: "1s", 30 * time.Second: "30s", 10 * time.Minute: "10m", 6 * time.Hour: "6h", day: "1d", 2 * day: "2d"} {
		if got := slot(&sim.Report{Slot: d}); got != want {
			t.Error(fmt.Sprint(d), got, want)
		}
	}
}
